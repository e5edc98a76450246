"""How good is the model on a benchmark? For a run that only evaluates: pass@k by category and difficulty,
and excluded problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rtl_core.history.records import EvaluationRecord, RunRecord
from rtl_core.history.store import History
from rtl_core.learning.passk import pass_at_k_interval
from rtl_core.reporting.blocks import Block, Source, Table, draw
from rtl_core.reporting.evaluations import COST_SQL, kind_in_words
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.figures.result import by_difficulty, by_family, forest, pass_at_k
from rtl_core.reporting.text import figure_kind, rate_in_words
from rtl_grader.types.problem import CATEGORIES
from rtl_grader.words import counted

DIFFICULTIES = ("easy", "medium", "hard")
ALL = "all"
FAULTLESS = "without known faults"

PROBLEMS_SQL = """
WITH answered AS (
    SELECT [p.samples, p.passed] AS counts, r.category, r.difficulty, json_keys(e.errata) AS faulty, p.problem_id
    FROM evaluation_problems p JOIN evaluations e USING (evaluation)
    JOIN run_problems r ON r.run = p.run AND r.problem_id = p.problem_id
    WHERE p.run = $run AND p.evaluation = $evaluation AND p.samples = e.samples)
SELECT coalesce(category, 'all') AS category, coalesce(difficulty, 'all') AS difficulty, list(counts) AS counts
FROM answered GROUP BY CUBE (category, difficulty)
UNION ALL SELECT 'without known faults', coalesce(difficulty, 'all'), list(counts)
FROM answered WHERE len(faulty) > 0 AND NOT list_contains(faulty, problem_id) GROUP BY CUBE (difficulty)
"""
UNANSWERED_SQL = """
SELECT count(DISTINCT problem_id) AS n FROM rollouts
WHERE run = $run AND evaluation = $evaluation AND n_tokens = 0 AND n_prompt > 0
"""


@SECTIONS.register("benchmark")
@section(
    "How good is the model?",
    "The model's answers to all problems; this run did not train on them.",
    place=5,
)
def blocks(source: Source) -> list[Block]:
    tables = tables_of(source.history, source.run)
    if not tables:
        return []
    first = [forest] if source.result.mixed else []
    return [*tables, *draw(source, *first, pass_at_k, by_difficulty, by_family)]


def tables_of(history: History, run: str) -> list[Table]:
    """The tables of a run that only evaluates; empty for any other run, and before its evaluation has ended."""
    source = Source(history, run)
    purpose = history.existing_run(run).setting("run", "purpose")
    if purpose != "evaluation" or source.result.after is None:
        return []
    drawn = tables(source, source.result.after.record)
    statements = source.take_statements()
    return [replace(table, sql=statements) for table in drawn]


def tables(source: Source, record: EvaluationRecord) -> list[Table]:
    """A table for each k of a finished evaluation: rows are categories, columns are difficulties, with totals.

    A cell contains the mean of the unbiased pass@k over its problems, the 95 % interval over them, and their number.
    """
    rows = source.ask(PROBLEMS_SQL, evaluation=record.key)
    (cost,) = source.ask(COST_SQL, evaluation=record.key)
    (unanswered,) = source.ask(UNANSWERED_SQL, evaluation=record.key)
    cells = {(row["category"], row["difficulty"]): row["counts"] or [] for row in rows}
    problems = counted(len(cells.get((ALL, ALL), [])), "problem")
    difficulties = [d for d in (*DIFFICULTIES, ALL) if cells.get((ALL, d))]
    categories = {
        name: f"{name} {CATEGORIES.get(name, '')}".strip() for name, _ in sorted(cells)
    }
    for last in (ALL, FAULTLESS):
        if categories.pop(last, None):
            categories[last] = last
    caption = (
        f"{problems}, {counted(record.samples, 'answer')} each; "
        f"[95 % interval over problems]; {kind_in_words(record, cost)}."
    )
    ks = sorted({1, *record.pass_at_k})
    notes = _notes(source.history.existing_run(record.run), record, unanswered["n"])
    return [
        Table(
            f"benchmark-pass-at-{k}",
            f"pass@{k} by category and difficulty: {figure_kind(record.kind, k)}",
            f"{caption} {notes}" if k == ks[-1] else caption,
            " | ".join(["category", *map("{}:".format, difficulties)]),
            [
                [words, *(_cell(cells.get((category, d)), k) for d in difficulties)]
                for category, words in categories.items()
                if cells.get((category, ALL))
            ],
        )
        for k in ks
    ]


def _cell(counts: Sequence[tuple[int, int]] | None, k: int) -> str:
    """pass@k over problems with these (samples, passed), or a dash."""
    if not counts:
        return "–"
    rate = pass_at_k_interval(counts, k)
    return f"{rate_in_words(rate)}\nn = {rate.n}".replace(" [", "\n[")


def _notes(run: RunRecord, record: EvaluationRecord, unanswered: int) -> str:
    """How answers were sampled, and which problems count as failed without an answer or are excluded."""
    section, sampling = run.config.get("evaluation", {}), run.config.get("sampling", {})
    prompting = run.config.get("prompting", {})
    names = ("template", "temperature", "top_p", "max_tokens")
    settings = {name: getattr(record, name) for name in names}
    for own in (prompting, section, sampling):
        settings |= {n: own.get(n) for n in names if settings[n] is None}
    sampled = ", ".join(f"{name} {value}" for name, value in settings.items())
    notes = f"{section.get('weights') or run.student}; {sampled}."
    if unanswered:
        problems = counted(unanswered, "problem")
        notes += f" Counted as failed without an answer: {problems} whose prompt fills the model's context."
    if record.left_out:
        left_out = record.left_out.items()
        reasons = [(ids if isinstance(ids, int) else len(ids), why) for why, ids in left_out]
        reasons.sort(key=lambda reason: (-reason[0], reason[1]))
        excluded = "; ".join(f"{count} ({why})" for count, why in reasons)
        notes += f" Excluded problems: {excluded}."
    if record.errata:
        faults = "; ".join(f"{problem}: {fault}" for problem, fault in record.errata.items())
        notes += f" Known faults of {counted(len(record.errata), 'problem')}: {faults}."
    return notes
