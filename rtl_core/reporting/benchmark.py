"""An evaluation as a benchmark tabulates it: pass@k by category and difficulty, and which problems the figures leave out."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from rtl_core.history.records import EvaluationRecord
from rtl_core.history.store import History
from rtl_core.learning.intervals import mean_interval
from rtl_core.learning.passk import pass_at_k_P
from rtl_core.reporting.blocks import Source, Table
from rtl_core.reporting.evaluations import run_result
from rtl_core.reporting.text import rate_in_words
from rtl_core.types.problem import CATEGORIES

DIFFICULTIES = ("easy", "medium", "hard")
ALL = "all"

PROBLEMS_SQL = (
    "SELECT p.problem_id, p.samples, p.passed, r.category, r.difficulty"
    " FROM evaluation_problems p JOIN evaluations e USING (evaluation)"
    " JOIN run_problems r ON r.run = p.run AND r.problem_id = p.problem_id"
    " WHERE p.run = $run AND p.evaluation = $evaluation AND p.samples = e.samples"
)
UNANSWERED_SQL = "SELECT count(DISTINCT problem_id) AS n FROM rollouts WHERE run = $run AND evaluation = $evaluation AND n_tokens = 0"


def tables_of(history: History, run: str) -> list[Table]:
    """The tables of a run that only evaluates; none for any other, and before its evaluation has ended."""
    result = run_result(history, run)
    if history.existing_run(run).config.get("run", {}).get("purpose") != "evaluation" or result.after is None:
        return []
    source = Source(history, run)
    found = tables(source, result.after.record)
    asked = source.asked()
    return [replace(table, sql=asked) for table in found]


def tables(source: Source, record: EvaluationRecord) -> list[Table]:
    """A table for each k of a finished evaluation: a row for each category, a column for each difficulty, and totals.

    A cell has the mean of the unbiased pass@k over its problems, the 95 % interval over them, and their number.
    """
    rows = source.ask(PROBLEMS_SQL, evaluation=record.key)
    (unanswered,) = source.ask(UNANSWERED_SQL, evaluation=record.key)
    cells: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        for category in (row["category"], ALL):
            for difficulty in (row["difficulty"], ALL):
                cells[category, difficulty].append((row["samples"], row["passed"]))
    shown = [d for d in DIFFICULTIES if (ALL, d) in cells]
    made = []
    for k in sorted({1, *record.pass_at_k}):

        def cell(category: str, difficulty: str, k: int = k) -> str:
            found = cells.get((category, difficulty))
            if not found:
                return "–"
            rate = mean_interval(pass_at_k_P([n for n, _ in found], [c for _, c in found], k))
            return f"{rate_in_words(rate).replace(' [', f'{chr(10)}[')}\nn = {rate.n}"

        named = {name: f"{name} {CATEGORIES.get(name, '')}".strip() for name in sorted({r["category"] for r in rows})}
        body = [[named.get(c, c), *(cell(c, d) for d in (*shown, ALL))] for c in (*named, ALL)]
        made.append(
            Table(
                f"benchmark-pass-at-{k}",
                f"pass@{k} by category and difficulty",
                f"{len(rows)} problems, {record.samples} answers each; [95 % interval over problems].{_notes(record, unanswered['n'])}",
                [("category", "left"), *((name, "right") for name in (*shown, ALL))],
                body if rows else [],
            )
        )
    return made


def _notes(record: EvaluationRecord, unanswered: int) -> str:
    """What a reader must know before comparing: what counts without an answer, and what does not count."""
    notes = ""
    if unanswered:
        notes += f" {unanswered} problems have prompts that leave no room in the model's context: not answered, counted as failed."
    if record.left_out:
        reasons = "; ".join(
            f"{count}: {why}" for why, count in sorted(record.left_out.items(), key=lambda r: (-r[1], r[0]))
        )
        notes += f" Left out of the figures: {reasons}."
    return notes
