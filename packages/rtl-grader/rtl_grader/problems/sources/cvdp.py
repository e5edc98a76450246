"""CVDP, read from a file or from a folder of files as one set. `problems/cvdp.py` reads the lines."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rtl_grader.errors import ProblemError
from rtl_grader.problems.cvdp import read_cvdp
from rtl_grader.problems.design import Design, cvdp_design
from rtl_grader.problems.fetch import CVDP, remedy
from rtl_grader.problems.problem_set import LeftOut, ProblemSet
from rtl_grader.problems.sources import SOURCES, FileSource
from rtl_grader.types.problem import CATEGORIES, Problem

Category = Annotated[str, Field(pattern=rf"^({'|'.join(CATEGORIES)})$")]


@SOURCES.register("cvdp")
class CvdpSource(FileSource):
    """A CVDP data set, agentic or single-turn."""

    path: Path = CVDP.path
    """The JSON Lines file, or a folder of them; by default the single-turn file that `rtl-grader problems
    fetch cvdp` gets."""
    categories: tuple[Category, ...] = ()
    """Categories to use, such as `["cid003"]`; empty: all. Others are left out with a reason."""
    published = (302, 1500.0)

    @classmethod
    def how_to_get(cls, path: Path) -> str:
        return remedy(path)

    @property
    def is_whole(self) -> bool:
        return not self.categories

    def design_of(self, problem: Problem) -> Design:
        return cvdp_design(problem)

    def read(self) -> ProblemSet:
        """Read a CVDP file, or every `*.jsonl` of a folder in the order of their names, see `read_folder`.

        Raises ProblemError when there is nothing to read.
        """
        contents = read_folder(self.path) if self.path.is_dir() else read_cvdp(self.path)
        if not self.categories:
            return contents
        used = [one for one in contents.problems if one.category in self.categories]
        reason = f"its category is none of {', '.join(self.categories)}"
        others = [
            LeftOut(one.id, reason, one.source) for one in contents.problems if one not in used
        ]
        return ProblemSet(used, contents.broken, [*contents.left_out, *others])


def read_folder(folder: Path) -> ProblemSet:
    """Read every `*.jsonl` of a folder as one set.

    Of problems with the same id in several files, the first with a golden answer is used, else the
    first; the others are left out with a reason. Raises ProblemError when there is no file.
    """
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise ProblemError(f"{folder} holds no .jsonl file", remedy(folder))
    merged = ProblemSet()
    copies: dict[str, list[tuple[str, Problem]]] = defaultdict(list)
    for file in files:
        contents = read_cvdp(file)
        merged.broken.extend(contents.broken)
        merged.left_out.extend(contents.left_out)
        for problem in contents.problems:
            copies[problem.id].append((file.name, problem))
    for name, own in copies.items():
        own.sort(key=lambda copy: copy[1].golden is None)
        (used, problem), *others = own
        merged.problems.append(problem)
        reason = f"{used} holds a problem of the same id"
        for unused, other in others:
            merged.left_out.append(LeftOut(f"{name} ({unused})", reason, other.source))
    return merged
