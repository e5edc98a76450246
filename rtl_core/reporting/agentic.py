"""What an evaluation in episodes says beside its single-shot counterpart: one source for the terminal and the report."""

from __future__ import annotations

from rich import box
from rich.table import Table

from rtl_core.history.records import Conditions, EvaluationRecord
from rtl_core.history.store import History
from rtl_core.learning.intervals import mean_interval, paired_test
from rtl_core.learning.passk import pass_at_k_P
from rtl_core.reporting.breakdown import Counts, counts_of
from rtl_core.reporting.text import p_in_words, rate_in_words

COLUMNS = ("", "problems", "pass@1", "tokens an answer", "turns")
COST_SQL = """
SELECT coalesce(avg(tokens), 0) AS tokens, coalesce(avg(turns), 0) AS turns
FROM (SELECT coalesce(sum(m.n_tokens), any_value(r.n_tokens)) AS tokens, coalesce(sum(CAST(m.who = 'model' AS INTEGER)), 1) AS turns
      FROM rollouts r LEFT JOIN messages m USING (rollout) WHERE r.evaluation = $evaluation AND r.purpose = 'evaluation' GROUP BY r.rollout)"""
"""Means over the answers of an evaluation: tokens that the model wrote, and turns. An answer without messages is one turn."""
_PLACE = ("policy", "step", "split", "samples", *(name for name in Conditions.model_fields if name != "turns"))


def of_episodes(history: History, run: str) -> list[EvaluationRecord]:
    """The finished evaluations of a run in which the model worked with tools."""
    return [e for e in history.evaluations(run) if e.status == "done" and e.turns is not None]


def rows(history: History, episodes: EvaluationRecord) -> tuple[list[list[str]], str]:
    """A line for single-shot, one for episodes, and one for single-shot at about as many tokens (a problem counts if any of k answers
    passes); and the paired difference in words. Where there was no single-shot evaluation of the kind: the line for episodes alone."""
    ours, tokens, turns = _side(history, episodes)
    name = f"episodes of up to {episodes.turns} turns"
    line = [name, str(len(ours)), rate_in_words(mean_interval(_rates(ours))), f"{tokens:,.0f}", f"{turns:.1f}"]
    single = next((e for e in history.evaluations(episodes.run) if _is_counterpart(e, episodes)), None)
    if single is None:
        return [line], ""
    theirs, spent, each = _side(history, single)
    rate = rate_in_words(mean_interval(_rates(theirs)))
    lines = [["single-shot", str(len(theirs)), rate, f"{spent:,.0f}", f"{each:.1f}"], line]
    if spent:
        k = min(max(round(tokens / spent), 1), single.samples)
        best = mean_interval(pass_at_k_P([n for n, _ in theirs.values()], [c for _, c in theirs.values()], k))
        lines.append([f"single-shot, any of {k}", str(len(theirs)), rate_in_words(best), f"{k * spent:,.0f}", f"{k}"])
    shared = sorted(theirs.keys() & ours.keys())
    if not shared:
        return lines, ""
    paired = paired_test(*(_rates({p: side[p] for p in shared}) for side in (theirs, ours)))
    return lines, (
        f"episodes minus single-shot, paired by problem: {100 * paired.gain:+.1f} points"
        f" [{100 * paired.lo:+.1f}, {100 * paired.hi:+.1f}], p {p_in_words(paired.p_value)}"
    )


def table(history: History, episodes: EvaluationRecord) -> Table:
    """The same for a terminal."""
    lines, caption = rows(history, episodes)
    title = f"single-shot and episodes: {history.existing_run(episodes.run).student}"
    shown = Table(title=title, caption=caption or None, caption_justify="left", box=box.SIMPLE_HEAD)
    for name in COLUMNS:
        shown.add_column(name, justify="right" if name else "left")
    for line in lines:
        shown.add_row(*line)
    return shown


def _side(history: History, record: EvaluationRecord) -> tuple[Counts, float, float]:
    """Samples and passes by problem, and the mean tokens and turns of an answer."""
    (cost,) = history.query(COST_SQL, {"evaluation": record.key}).to_pylist()
    return counts_of(history, record), cost["tokens"], cost["turns"]


def _rates(counts: Counts) -> list[float]:
    return [passed / n for n, passed in counts.values()]


def _is_counterpart(single: EvaluationRecord, episodes: EvaluationRecord) -> bool:
    alike = all(getattr(single, name) == getattr(episodes, name) for name in _PLACE)
    return alike and single.turns is None and single.status == "done"
