"""The files of an answer as every tool is given them."""

from __future__ import annotations

from collections.abc import Mapping

from rtl_core.grading.neutralise import neutralise
from rtl_core.grading.requirements import uses_several_tools
from rtl_core.grading.testbenches import without_test_benches
from rtl_core.types.problem import Problem


def as_graded(problem: Problem, files: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The files without test benches and without what tells tools apart, and a sentence for each bench that was left out."""
    several = uses_several_tools(problem.harness)
    design, left_out = without_test_benches(problem, files)
    return {path: neutralise(text, several_tools=several) for path, text in design.items()}, left_out
