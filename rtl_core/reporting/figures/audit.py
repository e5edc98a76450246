"""Are the passes correct? Results of an audit: how many passes were proved, and how many are doubtful."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from rtl_core.history.columns import Row
from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval, mean_interval, wilson
from rtl_core.reporting.blocks import Block, Source, Table, draw, listed, more
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
WITH audited AS (
    SELECT e.evaluation, e.policy, e.step, p.problem_id, p.samples, p.passed, count(a.rollout) AS looked_at,
           count(a.rollout) FILTER (WHERE a.result = 'different') AS doubtful
    FROM evaluation_problems p JOIN evaluations e USING (evaluation)
    LEFT JOIN verdicts v ON v.run = p.run AND v.evaluation = p.evaluation
        AND v.problem_id = p.problem_id AND v.outcome = 'passed'
    LEFT JOIN audits a ON a.rollout = v.rollout
    WHERE p.run = $run AND e.status = 'done' AND p.samples = e.samples GROUP BY ALL)
SELECT policy, step, list(passed / samples) AS every, list((passed - doubtful) / samples) AS sure
FROM audited GROUP BY evaluation, policy, step
HAVING sum(passed) = sum(looked_at) AND sum(passed) > 0 ORDER BY step, policy, evaluation
"""
SIZES_SQL = """
SELECT coalesce(p.family, p.source) AS problems, count(*) AS passes,
       format('{:.2f}', quantile_cont(a.relative_area, 0.25)) AS lower,
       format('{:.2f}', median(a.relative_area)) AS middle,
       format('{:.2f}', quantile_cont(a.relative_area, 0.75)) AS upper,
       format('{:.2f}', median(a.relative_levels)) AS levels
FROM audits a JOIN run_problems p ON p.run = a.run AND p.problem_id = a.problem_id
WHERE a.run = $run AND a.relative_area IS NOT NULL GROUP BY ALL ORDER BY problems
"""
DOUBTFUL_SQL = """
SELECT a.rollout, a.method, a.detail, a.rollout AS example, count(*) OVER () AS total
FROM audits a JOIN verdicts v USING (rollout)
WHERE a.run = $run AND a.result = 'different' AND v.outcome = 'passed' ORDER BY a.rollout LIMIT $most
"""
_RESULTS = {"equal": "proved", "same": "same", "different": "doubtful", "unknown": "unknown"}
"""Result of an audit -> its name in tables."""
MOST = 20
"""Maximum doubtful passes that are listed."""


@dataclass(frozen=True)
class Slice:
    """Audited passes of some problems. Equal answers count individually."""

    name: str
    results: Counter[str]
    """Number of passes by result: proved `equal` to the golden answer, the `same` in all that was tried, `different`
    from it or from the majority, `unknown`."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of passes, in total and by result."""
        counts = {words: self.results[result] for result, words in _RESULTS.items()}
        return {"passes": self.results.total(), **counts}

    @property
    def doubtful(self) -> Interval | None:
        """Share of doubtful passes among those with a known result, with Wilson's 95 % interval."""
        known = self.results.total() - self.results["unknown"]
        if not known:
            return None
        doubtful = self.results["different"]
        return Interval(doubtful / known, *wilson(doubtful, known), known)

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
    doubtful: tuple[Row, ...]
    """Passes that differ from the golden answer or the majority: rollout, problem_id, method, detail."""
    unknown: dict[str, int]
    """Reason for an unknown result -> number of passes."""

    def in_words(self) -> str:
        """The counts in one line."""
        counts = self.whole.counts
        names = ("passes", "proved", "doubtful", *["unknown"] * bool(counts["unknown"]))
        return ", ".join(f"{counts[name]} {name}" for name in names)

    def as_json(self) -> dict[str, Any]:
        return {
            **self.whole.as_json(),
            "parts": [part.as_json() for part in self.parts],
            "doubtful": list(self.doubtful),
            "unknown_because": self.unknown,
        }


def audit_summary(history: History, run: str) -> AuditSummary | None:
    """The audit results of a run; None without an audit."""
    rows = history.rows(AUDITS_SQL, run=run)
    return summary_of(rows) if rows else None


def summary_of(rows: list[Row]) -> AuditSummary:
    """Summarise rows of `AUDITS_SQL`."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        names = ["all", row["source"]]
        if row["family"]:
            names.append(f"{row['source']}: {row['family']}")
        for name in names:
            counts[name][row["result"]] += 1
    whole, *parts = (
        Slice(*named)
        for named in [("all", counts.pop("all", Counter())), *sorted(counts.items())]
    )
    doubtful = tuple(
        {name: row[name] for name in ("rollout", "problem_id", "method", "detail")}
        for row in rows
        if row["result"] == "different"
    )
    why = Counter(row["detail"] for row in rows if row["result"] == "unknown")
    return AuditSummary(whole, tuple(parts), doubtful, dict(why.most_common()))


def corrected(rows: list[Row]) -> list[tuple[str, Interval, Interval]]:
    """(evaluation in words, pass@1, pass@1 without doubtful passes) of each evaluation whose passes were
    all audited, from rows of `DESERVED_SQL`."""
    rates = []
    for row in rows:
        words: str = row["policy"]
        words += f" after {counted(row['step'], 'step')}" if words == "student" else ""
        rates.append((words, mean_interval(row["every"]), mean_interval(row["sure"])))
    return rates


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
        "other passes (rtl-distill grade audit). "
        "Proved: equal for all inputs. Same: no tested input shows a difference. Doubtful: an "
        "input shows a difference. The share excludes "
        "unknown results and has Wilson's 95 % interval.",
        " | ".join(["problems", *map("{}:".format, summary.whole.counts), "share doubtful:"]),
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
        "evaluation | pass@1: | without doubtful passes:",
        [[words, *map(rate_in_words, rates)] for words, *rates in rows],
    )


def doubtful(source: Source) -> Table:
    rows = source.ask(DOUBTFUL_SQL, most=MOST)
    return listed(
        "doubtful",
        "Doubtful passes",
        f"The differences that were found.{more(rows, 'doubtful passes')}",
        "`rollout` | method | difference",
        rows,
    )


def sizes(source: Source) -> Table:
    return listed(
        "netlists",
        "Size of the passes",
        "After synthesis to two-input gates (cells include registers), relative to the golden "
        "answer, or to the median of the passes that "
        "behave the same. Quartiles over the passes that are not doubtful.",
        "problems | passes: | area: lower quartile: | median: | upper: | levels: median:",
        source.ask(SIZES_SQL),
    )


def render(history: History, run: str, summary: AuditSummary) -> RenderableType:
    """For a terminal: counts by source and family, doubtful passes with their differences, reasons for
    unknown results, and pass@1 without doubtful passes."""
    lines = [f"doubtful: {row['rollout']}: {row['detail']}" for row in summary.doubtful[:MOST]]
    if len(summary.doubtful) > MOST:
        lines.append(f"and {len(summary.doubtful) - MOST} more: rtl-distill query audit")
    reasons = itertools.islice(summary.unknown.items(), MOST)
    lines += [f"unknown, {n} passes: {why}" for why, n in reasons]
    for words, *rates in corrected(history.rows(DESERVED_SQL, run=run)):
        every, sure = map(rate_in_words, rates)
        lines.append(f"pass@1 of {words}: {every}, without doubtful passes {sure}")
    return Group(rich_table(table_of(summary)), *(Text(visible(line)) for line in lines))
