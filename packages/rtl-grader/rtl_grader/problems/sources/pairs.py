"""Pairs of a specification and a golden design. The golden design judges the answers (problems/judged.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from rtl_grader.errors import ConfigError
from rtl_grader.hdl.text import compact
from rtl_grader.problems.design import Design, difficulty_of
from rtl_grader.problems.faults import FieldError, NotGradableError
from rtl_grader.problems.fetch import KNOWN_SETS, known_set, read_record
from rtl_grader.problems.judged import Judging, judged_problem, tops_of
from rtl_grader.problems.module_header import HeaderRule
from rtl_grader.problems.pairs import Pair, columns_of, compilation_in, difficulty_in, pair_of
from rtl_grader.problems.problem_set import BrokenLine, LeftOut, ProblemSet
from rtl_grader.problems.rows import Row, files_at, read_rows
from rtl_grader.problems.sources import SOURCES, FileSource
from rtl_grader.types.problem import Problem
from rtl_grader.words import command

_ORIGINS = ("repository", "repo", "repo_url", "origin", "project_name")
_LICENCES = ("licence", "license")
MAX_ID_CHARS = 200
_COPY = "its golden answer is that of an earlier problem of the set"


@SOURCES.register("pairs")
class PairsSource(FileSource):
    """Pairs of a specification and a golden answer, which judges: RTLCoder, CodeV-R1, VeriThoughts, ..., your own."""

    path: Path
    """A file of JSON Lines, JSON, CSV or Parquet, a folder of them, or a glob such as `data/*.parquet`."""
    name: str = Field(default="pairs", pattern=r"^[\w.-]+$")
    """Name of the set in reports, and in `tinker.teachers`."""
    where: str | None = None
    """SQL condition over the columns that selects rows, such as `verified AND length(code) < 4000`."""
    specification: str | None = None
    """Column of the specification, or its JSON path `a.b.0.c`. By default that of the published set that the
    file is in the form of, as for the other columns."""
    golden: str | None = None
    """Column of the golden answer: Verilog, perhaps in a fenced block, or an object of path (`rtl/x.sv`) and text."""
    top: str | None = None
    """Column of the top module's name. By default the module that no other one instantiates."""
    context: str | None = None
    """Column of files that the model sees and that are compiled: an object of path (`rtl/x.sv`) and text, or a text."""
    id: str | None = None
    """Column of the problem's id. By default that of the published set, or `pairs_FILE_ROW`."""
    header: HeaderRule = "missing"
    """When the golden module's header is appended to the specification. `missing`: when the specification does
    not name the module and all its ports."""
    licence: str = ""
    """Licence of the rows without a column `licence` or `license`. By default what `problems fetch` recorded."""
    judge: Judging = Judging()
    """How the golden answer judges: `proof`, `proof_share`, `proof_cpu_s`, `valid`."""

    @classmethod
    def how_to_get(cls, path: Path) -> str:
        name = known_set(path)
        return (
            f"get it with `{command('problems fetch')} {name}`"
            if name
            else super().how_to_get(path)
        )

    @property
    def assumed(self) -> tuple[int, float] | None:
        name = known_set(self.path)
        return KNOWN_SETS[name].size if name else None

    def design_of(self, problem: Problem) -> Design:
        return Design(f"{self.name} {problem.family or problem.id}")

    def read(self) -> ProblemSet:
        """Read all files at the path. Of problems with the same golden answer the first one stays.

        Raises ProblemError when there is no file, ConfigError as `read_rows` does.
        """
        result = ProblemSet()
        seen: set[Any] = set()
        for file in files_at(self.path):
            self._read_file(file, result, seen)
        if not (result.problems or result.broken or result.left_out):
            chosen = " that `where` selects" if self.where else ""
            raise ConfigError(f"{self.path} holds no row{chosen}", "check `path` and `where`")
        return result

    def _read_file(self, file: Path, result: ProblemSet, seen: set[Any]) -> None:
        record = read_record(self.path if self.path.is_dir() else file.parent)
        licence = self.licence or (record.licence if record else None) or ""
        unknown: set[str] = set()
        for row in read_rows(file, self.where):
            identity = f"pairs_{re.sub(r'[^A-Za-z0-9]+', '_', file.stem)}_{row.number}"
            try:
                problem, marks = self._problem(
                    row, identity, f"{file.name}:{row.number}", licence
                )
                if problem.id in seen:
                    raise FieldError("id", f"{problem.id} was already used")
                if not marks.isdisjoint(seen):
                    raise NotGradableError(_COPY)
                seen |= marks | {problem.id}
                result.problems.append(problem)
            except NotGradableError as reason:
                result.left_out.append(LeftOut(identity, reason.message, self.name))
            except FieldError as error:
                # Rows with the same unknown columns are one mistake.
                if error.field == "columns" and error.reason in unknown:
                    continue
                unknown.add(error.reason)
                line = BrokenLine(
                    file.name, row.number, None, error.field, error.reason[:400], self.name
                )
                result.broken.append(line)

    def _problem(
        self, row: Row, identity: str, place: str, licence: str
    ) -> tuple[Problem, set[Any]]:
        """The problem of a row, and what no other problem of the set may share with it."""
        if isinstance(row.value, str):
            raise FieldError("line", row.value)
        columns = row.value
        pair = pair_of(columns, columns_of(columns, self._columns()))
        identity = identity if pair.id is None else pair.id
        if not identity.strip() or not identity.isprintable() or len(identity) > MAX_ID_CHARS:
            raise FieldError("id", "is empty, too long or cannot be printed")
        # Rows of `problems repair`: several bugs in one design.
        is_repair = columns.get("task") == "repair"
        category = "cid002" if pair.masked or pair.context else "cid003"
        top = pair.top or _only_top(pair)
        golden = pair.files or {f"rtl/{top}.sv": pair.design}
        beside = {path: text for path, text in pair.context.items() if path not in golden}
        try:
            problem = judged_problem(
                id=identity,
                source=self.name,
                category="cid016" if is_repair else category,
                difficulty=difficulty_in(columns) or difficulty_of(pair.design),
                prompt=pair.specification.strip() + "\n",
                golden=golden,
                top=top,
                context=pair.context,
                compilation=compilation_in(columns, beside),
                judging=self.judge,
                header=self.header,
                family=pair.family,
                system=pair.system,
                request=pair.request,
                frame=dict.fromkeys(golden, pair.masked) if pair.masked else {},
                origin=_first(columns, _ORIGINS) or place,
                licence=_first(columns, _LICENCES) or licence,
            )
        except ValueError as error:
            raise NotGradableError(
                "the ports of its golden answer's top module cannot be read"
            ) from error
        design = "".join(compact(pair.design).split())
        report = pair.specification if is_repair else ""
        return problem, {(design, pair.masked or report)}

    def _columns(self) -> dict[str, Any]:
        """The columns that the user names."""
        names = ("specification", "golden", "top", "id", "context")
        own = {name: getattr(self, name) for name in names if getattr(self, name)}
        if self.specification:
            own["specification"] = (self.specification,)
        return own


def _only_top(pair: Pair) -> str:
    """The golden answer's top module: of several the one that the specification names."""
    tops = tops_of(pair.design)
    if not tops:
        raise NotGradableError("its golden answer holds no module with a plain name")
    if len(tops) > 1:
        words = set(re.findall(r"[A-Za-z_]\w*", pair.specification))
        tops = [top for top in tops if top in words]
    if len(tops) == 1:
        return tops[0]
    raise NotGradableError(
        "its golden answer has several top modules; name the right one in a column (`top`)"
    )


def _first(row: Mapping[str, Any], columns: tuple[str, ...]) -> str:
    """The first text among these columns."""
    texts = (row.get(column) for column in columns)
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")
