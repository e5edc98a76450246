"""What an audit of a run's passes found, summed up: how many were proved, and how many are doubtful?"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval, mean_interval, wilson
from rtl_core.reporting.text import rate_in_words, visible

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
COUNTS = ("passes", "proved", "same", "doubtful", "unknown")
"""What `cells` counts, in order."""
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
    def passes(self) -> int:
        return self.equal + self.same + self.different + self.unknown

    @property
    def doubtful(self) -> Interval | None:
        """Share of the passes about which something is known that are doubtful, with Wilson's 95 % interval."""
        known = self.equal + self.same + self.different
        if not known:
            return None
        return Interval(self.different / known, *wilson(self.different, known), known, "wilson")


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
        return f"{self.whole.passes} passes, {self.whole.equal} proved, {self.whole.different} doubtful{unknown}"

    def as_json(self) -> dict[str, Any]:
        return {
            **_as_json(self.whole),
            "parts": [_as_json(part) for part in self.parts],
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
                f"{own[0]['policy']} after {own[0]['step']} steps"
                if own[0]["policy"] == "student"
                else own[0]["policy"]
            )
            found.append((words, mean_interval(rates[0]), mean_interval(rates[1])))
    return found


def render(history: History, run: str, summary: AuditSummary) -> RenderableType:
    """The figures by source and family, then every doubtful pass with its difference, why others are unknown, and pass@1 without them."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title="Were the passes deserved?",
        title_justify="left",
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("problems", no_wrap=True)
    for name in COUNTS:
        table.add_column(name, justify="right")
    table.add_column("share, 95 %", justify="right", no_wrap=True)
    for part in (summary.whole, *summary.parts):
        source, colon, family = part.name.partition(": ")
        table.add_row(f"  {visible(family)}" if colon else visible(source), *cells(part)[1:])
    lines = [Text(visible(f"doubtful: {row['rollout']}: {row['detail']}")) for row in summary.doubtful[:SHOWN]]
    if len(summary.doubtful) > SHOWN:
        lines.append(Text(f"and {len(summary.doubtful) - SHOWN} more: rtl-distill query audit"))
    lines += [Text(visible(f"unknown, {n} passes: {why}")) for why, n in list(summary.unknown.items())[:SHOWN]]
    for words, every, kept in deserved_of(history.query(DESERVED_SQL, {"run": run}).to_pylist()):
        lines.append(Text(f"pass@1 of {words}: {rate_in_words(every)}, of deserved passes {rate_in_words(kept)}"))
    return Group(table, *lines)


def cells(part: Slice) -> list[str]:
    """A slice as a table's row: name, `COUNTS`, share doubtful."""
    counts = (part.passes, part.equal, part.same, part.different, part.unknown)
    return [visible(part.name), *(str(n) for n in counts), rate_in_words(part.doubtful)]


def _as_json(part: Slice) -> dict[str, Any]:
    share = part.doubtful
    return {
        "problems": part.name,
        "passes": part.passes,
        "proved": part.equal,
        "same": part.same,
        "doubtful": part.different,
        "unknown": part.unknown,
        "share_doubtful": share.mean if share else None,
        "interval": [share.lo, share.hi] if share else None,
    }
