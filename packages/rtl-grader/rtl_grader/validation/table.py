"""Tables of validation results: counts by source, and each unfit problem with its reason."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rtl_grader.grading.evidence import HARNESS_FAILED
from rtl_grader.problems.errata import edited, errata_of
from rtl_grader.problems.problem_set import MEND, BrokenLine, LeftOut, by_reason
from rtl_grader.types.problem import Problem
from rtl_grader.validation.record import VALIDATION_STATUSES, ValidationRecord, ValidationStatus
from rtl_grader.words import first_lines

_LONG = (HARNESS_FAILED, "the golden answer fails")
"""Beginnings of reasons whose third part says what is wrong."""
_DETAIL = re.compile(r"; |, for example ")
_SPECIAL = re.compile(r"`[^`]*`|(?<=\bport )\S+|\S*\d\S*")
FIT = ("fit", "fit_without_golden")
MOST_SHOWN = 50
"""Unfit problems that the table names one by one."""


@dataclass
class SourceRow:
    """Counts of one source."""

    counts: Counter[str] = field(default_factory=Counter)
    """Status -> number of problems."""
    golden_passed: int = 0
    """Problems with a golden answer that passes under every seed."""
    golden_total: int = 0
    killed: int = 0
    judged: int = 0

    @property
    def golden(self) -> str:
        return f"{self.golden_passed}/{self.golden_total}"

    @property
    def score(self) -> float | None:
        """Share of the mutants with different behaviour that failed."""
        return self.killed / self.judged if self.judged else None


@dataclass(frozen=True)
class Unfit:
    """A problem that is not fit."""

    source: str
    problem: str
    """Id, or place in a file."""
    status: ValidationStatus
    reason: str


def by_source(
    records: Mapping[str, ValidationRecord],
    broken: Iterable[BrokenLine] = (),
    left_out: Iterable[LeftOut] = (),
    problems: Iterable[Problem] = (),
) -> tuple[dict[str, SourceRow], list[Unfit]]:
    """Return source -> counts, and all unfit problems. Broken lines count as broken, problems that a reader
    left out as unsupported. The reason of one of the `problems` with known faults names them."""
    known = {problem.id: _known_faults(problem) for problem in problems}
    rows: dict[str, SourceRow] = defaultdict(SourceRow)
    unfit: list[Unfit] = []
    for problem_id, record in records.items():
        evidence = record.evidence
        source = str(evidence.get("source", "?"))
        row = rows[source]
        row.counts[record.status] += 1
        golden = evidence.get("golden") or {}
        if golden.get("source"):
            row.golden_total += 1
            outcomes = {verdict["outcome"] for verdict in golden.get("verdicts", [])}
            row.golden_passed += outcomes == {"passed"}
        tally = evidence.get("mutants") or {}
        killed = tally.get("killed", 0)
        row.killed += killed
        row.judged += killed + tally.get("survived", 0)
        if record.status not in FIT:
            reason = f"{evidence.get('reason', '')}{known.get(problem_id, '')}"
            unfit.append(Unfit(source, problem_id, record.status, reason))
    for line in broken:
        rows[line.source].counts["broken"] += 1
        place = f"{line.file}:{line.line} {line.id or ''}".strip()
        unfit.append(Unfit(line.source, place, "broken", line.fault))
    for entry in left_out:
        rows[entry.source].counts["unsupported"] += 1
        unfit.append(Unfit(entry.source, entry.id, "unsupported", entry.reason))
    unfit.sort(key=lambda one: (one.source, VALIDATION_STATUSES.index(one.status), one.problem))
    return dict(sorted(rows.items())), unfit


def published(
    problems: Sequence[Problem], records: Mapping[str, ValidationRecord]
) -> list[str]:
    """What is known of published problems, a line each: faults of those that validation calls fit, and sets with
    other texts than the published ones."""
    lines = []
    for problem in problems:
        record = records.get(problem.id)
        faults = _known_faults(problem)
        if faults and record and record.status in FIT:
            status = record.status.replace("_", " ")
            lines.append(f"{status}: {problem.id} ({problem.source}){faults}")
    return lines + edited(problems)


def _known_faults(problem: Problem) -> str:
    return "".join(f"; known fault: {erratum}" for erratum in errata_of(problem))


def reasons_of(unfit: Iterable[Unfit]) -> dict[tuple[str, str], list[str]]:
    """(status, reason without what is special to a problem) -> unfit problems, the most frequent first."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in unfit:
        shown = 3 if one.reason.startswith(_LONG) else 2
        parts = _DETAIL.split(one.reason)[0].split(": ")[:shown]
        groups[one.status, _SPECIAL.sub("…", ": ".join(parts))].append(one.problem)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def in_lines(unfit: Iterable[Unfit], validated: Collection[str]) -> list[str]:
    """A line for each reason why some of the validated problems (ids) are not fit."""
    entries = []
    for one in unfit:
        if one.problem in validated:
            reason = f"{one.status}: {one.reason}"
            entries.append(LeftOut(one.problem, reason, one.source))
    groups = by_reason(entries)
    return first_lines(f"left out: {group.id}: {group.reason}" for group in groups)


def render(rows: Mapping[str, SourceRow], unfit: list[Unfit]) -> RenderableType:
    """Table of counts by source, table of reasons, and a line for each unfit problem, at most `MOST_SHOWN` of
    a source and status."""
    sums = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0))
    sums.add_column("source ", no_wrap=True)
    # Headings of two lines, so that the table fits a terminal of 80 columns.
    statuses = ("fit", "fit, no\ngolden", "weak", "flaky", "broken", "unsup-\nported")
    for name in (*statuses, "golden\npasses", "mutants\nfound out"):
        sums.add_column(name, justify="right", no_wrap=True)
    for source, row in rows.items():
        counts = [str(row.counts[name] or "·") for name in VALIDATION_STATUSES]
        sums.add_row(source, *counts, row.golden, score_text(row))
    reasons = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("problems", "status", "reason", "such as"):
        reasons.add_column(name, overflow="fold")
    for (status, reason), problems in reasons_of(unfit).items():
        reasons.add_row(str(len(problems)), status, Text(reason), Text(problems[0]))
    details = []
    for (source, status), group in groupby(unfit, lambda one: (one.source, one.status)):
        members = list(group)
        for one in members[:MOST_SHOWN]:
            details.append(Text(f"{status}: {one.problem} ({source}): {one.reason}"))
        if more := members[MOST_SHOWN:]:
            details.append(
                Text(f"{status}: {len(more):,} more of {source}; `--audit FILE` lists all")
            )
    if any(one.status == "broken" for one in unfit):
        details.append(Text(MEND))
    return Group(sums, *([reasons] if unfit else []), *details)


def score_text(row: SourceRow) -> str:
    return "·" if row.score is None else f"{row.score:.3f} of {row.judged}"


def as_dicts(rows: Mapping[str, SourceRow], unfit: list[Unfit]) -> list[dict[str, str]]:
    """The same as rows of a table artifact: one per source, then one per unfit problem."""
    table = []
    for source, row in rows.items():
        counts = []
        for name in VALIDATION_STATUSES:
            if count := row.counts[name]:
                words = name.replace("_", " ")
                counts.append(f"{count} {words}")
        reason = f"golden passes {row.golden}; mutants found out {score_text(row)}"
        table.append(
            {"source": source, "problem": "", "status": ", ".join(counts), "reason": reason}
        )
    return table + [asdict(problem) for problem in unfit]
