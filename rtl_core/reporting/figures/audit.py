"""Were the passes deserved? What an audit found, where one was made: how many were proved, and how many are doubtful."""

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
from rtl_core.reporting.text import counted, rate_in_words, visible

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
"""How many doubtful passes are listed."""


@dataclass(frozen=True)
class Slice:
    """Audited passes of some problems. The passes of equal answers count one by one, as they were paid."""

    name: str
    equal: int
    """Proved equal to the golden answer."""
    same: int
    """Not told apart from the golden answer, or from the majority."""
    different: int
    unknown: int

    @property
    def counts(self) -> dict[str, int]:
        """How many passes there are, and how many of each kind, by the names that people read."""
        found = {"proved": self.equal, "same": self.same, "doubtful": self.different, "unknown": self.unknown}
        return {"passes": sum(found.values()), **found}

    @property
    def doubtful(self) -> Interval | None:
        """Share of the passes about which something is known that are doubtful, with Wilson's 95 % interval."""
        known = self.equal + self.same + self.different
        if not known:
            return None
        return Interval(self.different / known, *wilson(self.different, known), known)

    def as_json(self) -> dict[str, Any]:
        share = self.doubtful
        interval = [share.lo, share.hi] if share else None
        return {
            "problems": self.name,
            **self.counts,
            "share_doubtful": share.mean if share else None,
            "interval": interval,
        }


@dataclass(frozen=True)
class AuditSummary:
    """All that was found of a run's passes."""

    whole: Slice
    parts: tuple[Slice, ...]
    """By source, and by family where problems have one."""
    doubtful: tuple[dict[str, Any], ...]
    """Passes that are unlike the golden answer or the majority: rollout, problem_id, method, detail."""
    unknown: dict[str, int]
    """Why nothing is known -> of how many passes."""

    def in_words(self) -> str:
        """One line: how many passes were audited, and what was found."""
        unknown = f", {self.whole.unknown} unknown" if self.whole.unknown else ""
        return (
            f"{self.whole.counts['passes']} passes, {self.whole.equal} proved, {self.whole.different} doubtful{unknown}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            **self.whole.as_json(),
            "parts": [part.as_json() for part in self.parts],
            "doubtful": list(self.doubtful),
            "unknown_because": self.unknown,
        }


def audit_summary(history: History, run: str) -> AuditSummary | None:
    """What the history holds of a run's audit; None where none was made."""
    rows = history.query(AUDITS_SQL, {"run": run}).to_pylist()
    return summary_of(rows) if rows else None


def summary_of(rows: list[dict[str, Any]]) -> AuditSummary:
    """The summary of rows as `AUDITS_SQL` gives them."""
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


def deserved_of(rows: list[dict[str, Any]]) -> list[tuple[str, Interval, Interval]]:
    """(evaluation in words, pass@1, pass@1 without the doubtful passes) of each evaluation whose passes were all looked at.

    Takes rows as `DESERVED_SQL` gives them.
    """
    found = []
    for name in dict.fromkeys(row["evaluation"] for row in rows):
        own = [row for row in rows if row["evaluation"] == name]
        if sum(row["passed"] for row in own) == sum(row["looked_at"] for row in own) > 0:
            rates = [[(row["passed"] - less * row["doubtful"]) / row["samples"] for row in own] for less in (0, 1)]
            words = (
                f"{own[0]['policy']} after {counted(own[0]['step'], 'step')}"
                if own[0]["policy"] == "student"
                else own[0]["policy"]
            )
            found.append((words, mean_interval(rates[0]), mean_interval(rates[1])))
    return found


@SECTIONS.register("audited")
@section("Were the passes deserved?", "Passed answers beside the golden ones, or beside one another.", place=20)
def blocks(source: Source) -> list[Block]:
    """Passes by family, and those that are doubtful."""
    return draw(source, audited, deserved, doubtful, sizes)


def audited(source: Source) -> Table:
    """How many passes are proved, not told apart, or doubtful."""
    return table_of(summary_of(source.ask(AUDITS_SQL)))


def table_of(summary: AuditSummary) -> Table:
    """All passes, and those of each source and family; without rows where none was audited."""
    parts = (summary.whole, *summary.parts) if summary.parts else ()
    return Table(
        "audit",
        f"Audited: {summary.in_words()}",
        "Each passed answer was held against the golden one, or where there is none against the other passes (rtl-distill audit). "
        "Proved: equal for all inputs. Same: no input tried tells them apart. Doubtful: one does. The share leaves out what is "
        "unknown and has Wilson's 95 % interval.",
        [("problems", "left"), *((name, "right") for name in (*summary.whole.counts, "share doubtful"))],
        [[part.name, *map(str, part.counts.values()), rate_in_words(part.doubtful)] for part in parts],
    )


def deserved(source: Source) -> Table:
    """pass@1 with and without the doubtful passes, of evaluations whose passes were all looked at."""
    rows = deserved_of(source.ask(DESERVED_SQL))
    return Table(
        "deserved",
        "pass@1 of deserved passes",
        "Doubtful passes count as failed. Mean over the held-out problems with its 95 % interval.",
        [("evaluation", "left"), ("pass@1", "right"), ("deserved", "right")],
        [[words, rate_in_words(every), rate_in_words(kept)] for words, every, kept in rows],
    )


def doubtful(source: Source) -> Table:
    """Passes that are unlike the golden answer or the majority, with the difference."""
    found = summary_of(source.ask(AUDITS_SQL)).doubtful
    shown = found[:SHOWN]
    return Table(
        "doubtful",
        "Doubtful passes",
        f"What tells them apart. {len(shown)} of {len(found)} are shown.",
        [("rollout", "code"), ("by", "left"), ("difference", "left")],
        [[row["rollout"], row["method"], row["detail"]] for row in shown],
        links={i: row["rollout"] for i, row in enumerate(shown)},
    )


def sizes(source: Source) -> Table:
    """Cells and levels of the passes by family, beside the golden answers or the median passes."""
    rows = source.ask(SIZES_SQL)
    return Table(
        "netlists",
        "How large the passes are",
        "After synthesis to gates of two inputs (cells include registers), relative to the golden answer, or to the median of the passes that "
        "behave alike. Quartiles of the passes that are not doubtful.",
        [("problems", "left"), ("passes", "right"), ("area: lower quartile", "right"), ("median", "right"), ("upper", "right"),
         ("levels: median", "right")],
        [[row["problems"], str(row["passes"]), *(f"{row[name]:.2f}" for name in ("q1", "q2", "q3", "levels"))] for row in rows],
    )  # fmt: skip


def render(history: History, run: str, summary: AuditSummary) -> RenderableType:
    """For a terminal: the figures by source and family, then every doubtful pass with its difference, why others are unknown, and pass@1
    without them."""
    lines = [Text(visible(f"doubtful: {row['rollout']}: {row['detail']}")) for row in summary.doubtful[:SHOWN]]
    if len(summary.doubtful) > SHOWN:
        lines.append(Text(f"and {len(summary.doubtful) - SHOWN} more: rtl-distill query audit"))
    lines += [Text(visible(f"unknown, {n} passes: {why}")) for why, n in list(summary.unknown.items())[:SHOWN]]
    for words, every, kept in deserved_of(history.query(DESERVED_SQL, {"run": run}).to_pylist()):
        lines.append(Text(f"pass@1 of {words}: {rate_in_words(every)}, of deserved passes {rate_in_words(kept)}"))
    return Group(rich_table(table_of(summary)), *lines)
