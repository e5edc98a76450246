"""Convert a response to the answer to a problem, and files to a response."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rtl_grader.extraction.response import extract_answer
from rtl_grader.hdl.interface import hdl_files
from rtl_grader.hdl.text import module_names
from rtl_grader.problems.interface import top_levels
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem


def answer_to(problem: Problem, response: str) -> Answer:
    """Extract the targets of `problem` from a response, or the reason why there are none, by the rules in
    response.py.

    Never raises, and takes time linear in the length of any response.
    """
    return extract_answer(
        response, problem.targets, demanded_modules(problem), given_design(problem)
    )


def given_design(problem: Problem) -> dict[str, str]:
    """HDL files that the problem provides, in its context or its harness, and that are no targets."""
    files = {**problem.context, **problem.harness}
    return {
        path: text for path, text in hdl_files(files).items() if path not in problem.targets
    }


def response_of(files: Mapping[str, str]) -> str:
    """Return a response from which exactly these files are extracted; empty without files."""
    entries = [{path: text} for path, text in files.items()]
    return json.dumps({"code": entries}) if entries else ""


def demanded_modules(problem: Problem) -> list[str]:
    """Names of the modules that an answer must define, most important first: the interface's, then the
    harness' top levels.

    Top levels that the problem itself provides, in a file that is not a target, are left out.
    """
    names = [problem.interface.module] if problem.interface else []
    tops = [top for top in top_levels(problem.harness) if top not in names]
    files = given_design(problem).values() if tops else ()
    others = {name for text in files for name in module_names(text)}
    return names + [top for top in tops if top not in others]
