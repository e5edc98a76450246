"""Designs of a user's own with benches of their own, one folder each (problems/folder)."""

from __future__ import annotations

import os
from pathlib import Path

from rtl_grader.errors import ProblemError
from rtl_grader.problems.design import Design, shown_modules
from rtl_grader.problems.folder.reader import SOURCE, Understanding, problem_places, understand
from rtl_grader.problems.problem_set import BrokenLine, ProblemSet
from rtl_grader.problems.sources import SOURCES, FileSource
from rtl_grader.types.problem import Problem


@SOURCES.register(SOURCE)
class FolderSource(FileSource):
    """Your own designs with their benches, or with the golden answer as the judge."""

    path: Path
    """The folder of one problem, or a folder of such folders; each may hold a `problem.toml`."""

    def design_of(self, problem: Problem) -> Design:
        names = {name.lower() for name, _ in shown_modules(problem)}
        return Design(f"{SOURCE} {problem.origin}", frozenset(names))

    def read(self) -> ProblemSet:
        """Read all folders in the order of their names. Raises ProblemError when there is none."""
        result = ProblemSet()
        for reading in understandings(self.path):
            if reading.problem:
                result.problems.append(reading.problem)
            elif error := reading.error:
                file = os.path.relpath(reading.place, self.path)
                broken = BrokenLine(file, 1, reading.name, error.field, error.reason, SOURCE)
                result.broken.append(broken)
        return result


def understandings(path: Path) -> list[Understanding]:
    """How each folder at `path` is understood. Raises ProblemError when there is none."""
    places = problem_places(path) if path.is_dir() else []
    if not places:
        raise ProblemError(
            f"{path} holds no folder with a design",
            "give a folder with Verilog sources, or a folder of such folders; `problems new DIR` writes one",
        )
    return [understand(*place) for place in places]
