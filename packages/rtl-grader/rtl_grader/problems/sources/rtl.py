"""Any RTL: a folder, a filelist, a FuseSoC core, JSONL of designs, or a glob of them (problems/rtl)."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field

from rtl_grader.errors import ProblemError
from rtl_grader.problems.design import Design
from rtl_grader.problems.judged import Judging
from rtl_grader.problems.problem_set import LeftOut, ProblemSet
from rtl_grader.problems.rtl.designs import Library, SourceFile
from rtl_grader.problems.rtl.projects import projects_of
from rtl_grader.problems.rtl.scan import Unit
from rtl_grader.problems.rtl.tasks import MIN_TOKENS, SOURCE, Choice, RtlDesign, Task
from rtl_grader.problems.sources import SOURCES, FileSource
from rtl_grader.types.problem import Problem

_BENCHLS = "RTL-BenchLS"
"""Folder of a clone of the set of this name."""
_CLONE = f"git clone https://github.com/SebastianWANG2024/{_BENCHLS}"
_SLICES = tuple(f"slice_{number:02}.jsonl" for number in range(1, 21))
_UNREAD = ("no part of it", "its name", "it has no output", "the ports of", "the width of")
"""How reasons begin that may be due to an error of syntax."""
_PER_SLICE = 1_570
"""Mean problems of a slice with the default settings, which ask for up to four of a module; counted for two."""


@SOURCES.register(SOURCE)
class RtlSource(FileSource):
    """RTL without specifications and test benches: its parts are masked, and it is the judge itself."""

    path: Path
    """Folder, filelist (`.f`, `.flist`), FuseSoC core (`.core`), JSONL of designs (`files`, `top_module`), or a
    glob of them."""
    tasks: tuple[Task, ...] = ("complete", "module")
    """What to ask: `complete` masks parts of a module, `module` its body."""
    modules: tuple[str, ...] = ("*",)
    """Globs of the names of modules to ask about. One that begins with `!` leaves modules out."""
    max_lines: int = Field(default=1000, ge=1)
    """Most lines of a module's file and of the files that it needs, which a prompt shows."""
    per_module: int = Field(default=3, ge=1)
    """Most parts of a module that are masked, each in a problem of its own."""
    mask_tokens: int | None = Field(default=None, ge=MIN_TOKENS)
    """Most tokens of such a part, at least 4. Default: any number."""
    seed: int = 0
    """Seed of the choice of these parts."""
    define: dict[str, str] = Field(default_factory=dict)
    """Macros that are defined, beside those of a filelist or core."""
    judge: Judging = Judging()
    """How answers are compared with the design."""

    @classmethod
    def how_to_get(cls, path: Path) -> str:
        if _BENCHLS not in path.parts:
            return super().how_to_get(path)
        folder = Path(*path.parts[: path.parts.index(_BENCHLS) + 1])
        return f"run `{_CLONE} {folder}`, or change the path to a folder with RTL of your own"

    @property
    def assumed(self) -> tuple[int, float] | None:
        slices = sum(fnmatchcase(name, self.path.name) for name in _SLICES)
        tasks = self.per_module * ("complete" in self.tasks) + ("module" in self.tasks)
        known = _BENCHLS in self.path.parts and slices > 0
        return (_PER_SLICE * slices * tasks // 4, 480.0) if known else None

    def design_of(self, problem: Problem) -> Design:
        """The project, if there are several, else all modules that instances connect."""
        cluster, _, _ = problem.origin.partition(": ")
        return Design(cluster)

    def read(self) -> ProblemSet:
        """Read all modules, in the order of their files. Raises ProblemError when there is no RTL."""
        contents = ProblemSet()
        for library in projects_of(self.path, self.define, contents):
            for file, unit in library.modules():
                if not self._is_chosen(unit.name):
                    continue
                try:
                    contents.problems.extend(self._problems(library, file, unit))
                except ValueError as error:
                    name = f"{file.origin}: {unit.name}" if unit.name else file.origin
                    contents.left_out.append(LeftOut(name, _reason(file, error), SOURCE))
        if not (contents.problems or contents.left_out or contents.broken):
            raise ProblemError(
                f"there is no RTL in {self.path}",
                "give a folder with .v or .sv files, a filelist, a .core, JSONL of designs or a glob",
            )
        return contents

    def _is_chosen(self, name: str) -> bool:
        without = [entry[1:] for entry in self.modules if entry.startswith("!")]
        return _matches(name, self.modules) and not _matches(name, without)

    def _problems(self, library: Library, file: SourceFile, unit: Unit) -> list[Problem]:
        need = library.need(file, unit)
        most = self.max_lines - file.text.count("\n")
        if need.lines > most:  # without the images of memories, which only fill them
            for data in library.data:
                need.headers.pop(data.path, None)
        if need.lines > most:
            limit = f"max_lines = {self.max_lines}"
            raise ValueError(f"its file and those that it needs have more lines than {limit}")
        design = RtlDesign(file, unit, need, library)
        masks = Choice(self.per_module, self.mask_tokens, self.seed)
        return design.problems(self.tasks, masks, self.judge)


def _reason(file: SourceFile, error: ValueError) -> str:
    """Why a module is left out; an error of its file may be the cause."""
    cause = file.scan.syntax_error
    reason = str(error)
    if cause and reason.startswith(_UNREAD):
        return f"{reason} ({cause})"
    return reason


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, entry) for entry in globs)
