"""CVDP, read from a file or from a folder of files as one set. What a line holds is in `problems/cvdp.py`."""

from __future__ import annotations

from pathlib import Path

from rtl_core.errors import ProblemError
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.problems.design import Design, cvdp_design
from rtl_core.problems.fetch import CVDP, remedy
from rtl_core.problems.problem_set import LeftOut, ProblemSet
from rtl_core.problems.sources import SOURCES, FileSource
from rtl_core.types.problem import Problem


@SOURCES.register("cvdp")
class CvdpSource(FileSource):
    """A CVDP data set, agentic or single-turn."""

    path: Path = CVDP.path
    """The JSON Lines file, or a folder of them; by default where `rtl-distill problems fetch cvdp` puts the single-turn problems."""
    published = (302, 1500.0)

    @classmethod
    def how_to_get(cls, path: Path) -> str:
        return remedy(path)

    def design_of(self, problem: Problem) -> Design:
        return cvdp_design(problem)

    def read(self) -> ProblemSet:
        return read_cvdp_path(self.path)


def read_cvdp_path(path: Path | str) -> ProblemSet:
    """Reads a CVDP file, or every `*.jsonl` of a folder in the order of their names.

    An id that stands in several files of a folder is taken once: the one with a golden answer, else the first; the
    others are left out with the reason.

    Raises ProblemError when there is nothing to read.
    """
    path = Path(path)
    if not path.is_dir():
        return read_cvdp(path)
    files = sorted(path.glob("*.jsonl"))
    if not files:
        raise ProblemError(f"{path} holds no .jsonl file", remedy(path))
    found = ProblemSet()
    home: dict[str, tuple[int, str]] = {}
    for file in files:
        one = read_cvdp(file)
        found.broken.extend(one.broken)
        found.left_out.extend(one.left_out)
        for problem in one.problems:
            if problem.id not in home:
                home[problem.id] = (len(found.problems), file.name)
                found.problems.append(problem)
                continue
            place, name = home[problem.id]
            if found.problems[place].golden is None and problem.golden is not None:
                found.problems[place], home[problem.id] = problem, (place, file.name)
                name, taken = file.name, name
            else:
                taken = file.name
            found.left_out.append(
                LeftOut(f"{problem.id} ({taken})", f"{name} holds a problem of the same id", problem.source)
            )
    return found
