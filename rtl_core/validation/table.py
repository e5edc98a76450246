"""What validation found, by source, for people: counts, and each problem that is not fit with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rtl_core.history.records import VALIDATION_STATUSES, ValidationRecord
from rtl_core.problems.problem_set import BrokenLine, LeftOut


@dataclass
class SourceRow:
    """The figures of one source."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VALIDATION_STATUSES, 0))
    golden_passed: int = 0
    """Problems with a golden answer that passes under every seed."""
    golden_total: int = 0
    killed: int = 0
    judged: int = 0

    @property
    def score(self) -> float | None:
        """Share of the mutants that behave differently and were found out."""
        return self.killed / self.judged if self.judged else None


@dataclass(frozen=True)
class Unfit:
    """One problem that may not train, and why."""

    source: str
    problem_id: str
    status: str
    reason: str


def by_source(
    records: Mapping[str, ValidationRecord], broken: Iterable[BrokenLine] = (), left_out: Iterable[LeftOut] = ()
) -> tuple[dict[str, SourceRow], list[Unfit]]:
    """(source -> figures, every problem that is not fit). Broken lines count as broken, what a reader left out as unsupported."""
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
            outcomes = [v["outcome"] for v in golden.get("verdicts", [])]
            row.golden_passed += bool(outcomes) and set(outcomes) == {"passed"}
        tally = evidence.get("mutants") or {}
        row.killed += tally.get("killed", 0)
        row.judged += tally.get("killed", 0) + tally.get("survived", 0)
        if record.status not in ("fit", "fit_without_golden"):
            unfit.append(Unfit(source, problem_id, record.status, str(evidence.get("reason", ""))))
    for line in broken:
        rows[line.source].counts["broken"] += 1
        place = f"{line.file}:{line.line} {line.id or ''}".strip()
        unfit.append(Unfit(line.source, place, "broken", f"{line.field}: {line.reason}"))
    for entry in left_out:
        rows[entry.source].counts["unsupported"] += 1
        unfit.append(Unfit(entry.source, entry.id, "unsupported", entry.reason))
    return dict(sorted(rows.items())), sorted(
        unfit, key=lambda u: (u.source, VALIDATION_STATUSES.index(u.status), u.problem_id)
    )


def render(rows: Mapping[str, SourceRow], unfit: list[Unfit]) -> RenderableType:
    """Figures by source, and below a line for each problem that is not fit."""
    sums = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0))
    sums.add_column("source ", no_wrap=True)
    # Two lines a heading, so that all of it fits a terminal of 80 columns.
    headings = (
        "fit",
        "fit, no\ngolden",
        "weak",
        "flaky",
        "broken",
        "unsup-\nported",
        "golden\npasses",
        "mutants\nfound out",
    )
    for name in headings:
        sums.add_column(name, justify="right", no_wrap=True)
    for source, row in rows.items():
        counts = [str(row.counts[name]) if row.counts[name] else "·" for name in VALIDATION_STATUSES]
        sums.add_row(source, *counts, f"{row.golden_passed}/{row.golden_total}", score_text(row))
    details = [Text(f"{u.status}: {u.problem_id} ({u.source}): {u.reason}") for u in unfit]
    return Group(sums, *details)


def score_text(row: SourceRow) -> str:
    return "·" if row.score is None else f"{row.score:.3f} of {row.judged}"


def as_dicts(rows: Mapping[str, SourceRow], unfit: list[Unfit]) -> list[dict[str, str]]:
    """The same for a table artifact: a row per source, then a row per problem that is not fit."""
    found = [
        {
            "source": source,
            "problem": "",
            "status": ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in row.counts.items() if n),
            "reason": f"golden passes {row.golden_passed}/{row.golden_total}; mutants found out {score_text(row)}",
        }
        for source, row in rows.items()
    ]
    return found + [
        {"source": u.source, "problem": u.problem_id, "status": u.status, "reason": u.reason} for u in unfit
    ]
