"""Are the passes correct? Results of an audit: how many passes were proved, and how many are doubtful."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval, mean_interval, wilson
from rtl_core.reporting.blocks import Block, Source, Table, draw
from rtl_core.reporting.console import rich_table
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.text import rate_in_words
from rtl_grader.words import counted, visible

AUDITS_SQL = """
SELECT a.rollout, a.problem_id, a.result, a.method, a.detail, p.source, p.family
FROM audits a JOIN verdicts v USING (rollout)
JOIN run_problems p ON p.run = a.run AND p.problem_id = a.problem_id
WHERE a.run = $run AND v.outcome = 'passed' ORDER BY a.rollout
"""
DESERVED_SQL = """
SELECT e.evaluation, e.policy, e.step, p.problem_id, p.samples, p.passed, count(a.rollout) AS looked_at,
       count(a.rollout) FILTER (WHERE a.result = 'different') AS doubtful
FROM evaluation_problems p JOIN evaluations e USING (evaluation)
LEFT JOIN verdicts v ON v.run = p.run AND v.evaluation = p.evaluation AND v.problem_id = p.problem_id AND v.outcome = 'passed'
LEFT JOIN audits a ON a.rollout = v.rollout
WHERE p.run = $run AND e.status = 'done' AND p.samples = e.samples GROUP BY ALL ORDER BY e.step, e.policy, e.evaluation, p.problem_id
"""
SIZES_SQL = """
SELECT coalesce(p.family, p.source) AS problems, count(*) AS passes, quantile_cont(a.relative_area, 0.25) AS q1,
       median(a.relative_area) AS q2, quantile_cont(a.relative_area, 0.75) AS q3, median(a.relative_levels) AS levels
FROM audits a JOIN run_problems p ON p.run = a.run AND p.problem_id = a.problem_id
WHERE a.run = $run AND a.relative_area IS NOT NULL GROUP BY ALL ORDER BY problems
"""
SHOWN = 20
"""Maximum doubtful passes that are listed."""


@dataclass(frozen=True)
class Slice:
    """Audited passes of some problems. Equal answers count individually."""

    name: str
    equal: int
    """Proved equal to the golden answer."""
    same: int
    """No difference found to the golden answer, or to the majority."""
    different: int
    unknown: int

    @property
    def counts(self) -> dict[str, int]:
        """Number of passes, in total and by result."""
        found = {
            "proved": self.equal,
            "same": self.same,
            "doubtful": self.different,
            "unknown": self.unknown,
        }
        return {"passes": sum(found.values()), **found}

    @property
    def doubtful(self) -> Interval | None:
        """Share of doubtful passes among those with a known result, with Wilson's 95 % interval."""
        known = self.equal + self.same + self.different
        if not known:
            return None
        return Interval(self.different / known, *wilson(self.different, known), known)

    def as_json(self) -> dict[str, Any]:
        share = self.doubtful
        interval = {
            "share_doubtful": share and share.mean,
            "interval": share and [share.lo, share.hi],
        }
        return {"problems": self.name, **self.counts, **interval}


@dataclass(frozen=True)
class AuditSummary:
    """Audit results of a run."""

    whole: Slice
    parts: tuple[Slice, ...]
    """By source, and by family where problems have one."""
    doubtful: tuple[dict[str, Any], ...]
    """Passes that differ from the golden answer or the majority: rollout, problem_id, method, detail."""
    unknown: dict[str, int]
    """Reason for an unknown result -> number of passes."""

    def in_words(self) -> str:
        """The counts in one line."""
        unknown = f", {self.whole.unknown} unknown" if self.whole.unknown else ""
        return f"{self.whole.counts['passes']} passes, {self.whole.equal} proved, {self.whole.different} doubtful{unknown}"

    def as_json(self) -> dict[str, Any]:
        return {
            **self.whole.as_json(),
            "parts": [part.as_json() for part in self.parts],
            "doubtful": list(self.doubtful),
            "unknown_because": self.unknown,
        }


def audit_summary(history: History, run: str) -> AuditSummary | None:
    """The audit results of a run; None without an audit."""
    rows = history.query(AUDITS_SQL, {"run": run}).to_pylist()
    return summary_of(rows) if rows else None


def summary_of(rows: list[dict[str, Any]]) -> AuditSummary:
    """Summarise rows of `AUDITS_SQL`."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        names = [row["source"], *([f"{row['source']}: {row['family']}"] if row["family"] else [])]
        for name in ("all", *names):
            counts[name][row["result"]] += 1
    whole, *parts = (
        Slice(name, c["equal"], c["same"], c["different"], c["unknown"])
        for name, c in [("all", counts.pop("all", Counter())), *sorted(counts.items())]
    )
    doubtful = tuple(
        {name: row[name] for name in ("rollout", "problem_id", "method", "detail")}
        for row in rows
        if row["result"] == "different"
    )
    why = Counter(row["detail"] for row in rows if row["result"] == "unknown")
    return AuditSummary(whole, tuple(parts), doubtful, dict(why.most_common()))


def corrected(rows: list[dict[str, Any]]) -> list[tuple[str, Interval, Interval]]:
    """(evaluation in words, pass@1, pass@1 without doubtful passes) of each evaluation whose passes were
    all audited, from rows of `DESERVED_SQL`."""
    found = []
    for name in dict.fromkeys(row["evaluation"] for row in rows):
        own = [row for row in rows if row["evaluation"] == name]
        if sum(row["passed"] for row in own) == sum(row["looked_at"] for row in own) > 0:
            rates = [
                [(row["passed"] - less * row["doubtful"]) / row["samples"] for row in own]
                for less in (0, 1)
            ]
            words: str = own[0]["policy"]
            words += f" after {counted(own[0]['step'], 'step')}" if words == "student" else ""
            found.append((words, mean_interval(rates[0]), mean_interval(rates[1])))
    return found


@SECTIONS.register("audited")
@section(
    "Are the passes correct?",
    "Passed answers compared with the golden answers, or with one another.",
    place=20,
)
def blocks(source: Source) -> list[Block]:
    return draw(source, audited, deserved, doubtful, sizes)


def audited(source: Source) -> Table:
    return table_of(summary_of(source.ask(AUDITS_SQL)))


def table_of(summary: AuditSummary) -> Table:
    """All passes, and those of each source and family; without rows if none was audited."""
    parts = (summary.whole, *summary.parts) if summary.parts else ()
    return Table(
        "audit",
        f"Audited: {summary.in_words()}",
        "Each passed answer was compared with the golden answer, or where there is none with the "
        "other passes (rtl-distill audit). "
        "Proved: equal for all inputs. Same: no tested input shows a difference. Doubtful: an "
        "input shows a difference. The share excludes "
        "unknown results and has Wilson's 95 % interval.",
        [
            ("problems", "left"),
            *((name, "right") for name in (*summary.whole.counts, "share doubtful")),
        ],
        [
            [part.name, *map(str, part.counts.values()), rate_in_words(part.doubtful)]
            for part in parts
        ],
    )


def deserved(source: Source) -> Table:
    rows = corrected(source.ask(DESERVED_SQL))
    return Table(
        "deserved",
        "pass@1 without doubtful passes",
        "Doubtful passes count as failed. Mean over the held-out problems with its 95 % interval.",
        [("evaluation", "left"), ("pass@1", "right"), ("without doubtful passes", "right")],
        [[words, rate_in_words(every), rate_in_words(kept)] for words, every, kept in rows],
    )


def doubtful(source: Source) -> Table:
    rows = source.ask(
        "SELECT a.rollout, a.method, a.detail, count(*) OVER () AS found FROM audits a JOIN verdicts v USING (rollout)"
        " WHERE a.run = $run AND a.result = 'different' AND v.outcome = 'passed' ORDER BY a.rollout LIMIT $most",
        most=SHOWN,
    )
    return Table(
        "doubtful",
        "Doubtful passes",
        f"The differences that were found. {len(rows)} of {rows[0]['found'] if rows else 0} are shown.",
        [("rollout", "code"), ("method", "left"), ("difference", "left")],
        [[row["rollout"], row["method"], row["detail"]] for row in rows],
        links={i: row["rollout"] for i, row in enumerate(rows)},
    )


def sizes(source: Source) -> Table:
    rows = source.ask(SIZES_SQL)
    return Table(
        "netlists",
        "Size of the passes",
        "After synthesis to two-input gates (cells include registers), relative to the golden "
        "answer, or to the median of the passes that "
        "behave the same. Quartiles over the passes that are not doubtful.",
        [
            ("problems", "left"),
            ("passes", "right"),
            ("area: lower quartile", "right"),
            ("median", "right"),
            ("upper", "right"),
            ("levels: median", "right"),
        ],
        [
            [
                row["problems"],
                str(row["passes"]),
                *(f"{row[name]:.2f}" for name in ("q1", "q2", "q3", "levels")),
            ]
            for row in rows
        ],
    )


def render(history: History, run: str, summary: AuditSummary) -> RenderableType:
    """For a terminal: counts by source and family, doubtful passes with their differences, reasons for
    unknown results, and pass@1 without doubtful passes."""
    lines = [
        Text(visible(f"doubtful: {row['rollout']}: {row['detail']}"))
        for row in summary.doubtful[:SHOWN]
    ]
    if len(summary.doubtful) > SHOWN:
        lines.append(Text(f"and {len(summary.doubtful) - SHOWN} more: rtl-distill query audit"))
    lines += [
        Text(visible(f"unknown, {n} passes: {why}"))
        for why, n in list(summary.unknown.items())[:SHOWN]
    ]
    for words, every, kept in corrected(history.query(DESERVED_SQL, {"run": run}).to_pylist()):
        lines.append(
            Text(
                f"pass@1 of {words}: {rate_in_words(every)}, without doubtful passes {rate_in_words(kept)}"
            )
        )
    return Group(rich_table(table_of(summary)), *lines)
