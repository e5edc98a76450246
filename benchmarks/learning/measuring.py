"""What the history of a finished run says for its line of the ledger."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from benchmarks.learning.ledger import Counts, Step
from rtl_core.config import RunConfig, load_config
from rtl_core.cost.tokens import Tokens, load_prices, total_dollars, unpriced
from rtl_core.history.named_queries import named_query
from rtl_core.history.store import History
from rtl_core.reporting.evaluations import view_of
from rtl_core.run.check.machine import problems_of as problems_of_run
from rtl_grader.extraction.answer_to import masked_piece
from rtl_grader.hdl.text import code_of
from rtl_grader.problems.rtl.scan import count_tokens

_PROBLEMS_SQL = "SELECT problem_id FROM run_problems WHERE run = $run AND split = 'heldout' ORDER BY problem_id"
_STEPS_SQL = "SELECT step, name, value FROM step_metrics WHERE run = $run"
_ANSWERS_SQL = (
    "SELECT r.step, count(*) AS answers, count(*) FILTER (WHERE v.outcome = 'passed') AS passed FROM rollouts r"
    " JOIN verdicts v USING (rollout) WHERE r.run = $run AND r.purpose = 'train' AND r.policy = "
    "'student' GROUP BY r.step"
)
_TOTALS_SQL = (
    "SELECT (SELECT count(*) FROM rollouts WHERE run = $run AND evaluation IS NULL) AS answers,"
    " (SELECT CAST(coalesce(sum(value), 0) AS BIGINT) FROM step_metrics WHERE run = $run AND name "
    "= 'tokens/student/train') AS train_tokens"
)


def problems_of(history: History, run: str) -> list[str]:
    """The test problems in order."""
    return [row["problem_id"] for row in history.query(_PROBLEMS_SQL, {"run": run}).to_pylist()]


def fit_of(history: History, run: str) -> list[str]:
    """The held-out problems on which the untrained student was evaluated, in order: those that are fit. LookupError
    without this evaluation."""
    for evaluation in history.evaluations(run):
        if (evaluation.status, evaluation.policy, evaluation.step) == ("done", "student", 0):
            return sorted(view_of(history, evaluation).counts)
    raise LookupError(f"run {run} holds no finished evaluation of the untrained student")


def masks_of(config: RunConfig, problems: Sequence[str]) -> list[int] | None:
    """Tokens of the masked part of each problem; None if one has none."""
    loaded = {problem.id: problem for problem in problems_of_run(config).every}
    pieces = [masked_piece(loaded[name]) for name in problems]
    return None if None in pieces else [count_tokens(code_of(piece or "")) for piece in pieces]


def counts_of(
    history: History, run: str, policy: str, problems: Sequence[str], *, step: int | None = None
) -> Counts:
    """Counts of the newest finished evaluation of a policy (at `step`). LookupError if there is none, or it
    lacks a problem."""
    done = [
        e
        for e in history.evaluations(run)
        if e.status == "done" and e.policy == policy and step in (None, e.step)
    ]
    if not done:
        raise LookupError(f"run {run} holds no finished evaluation of the {policy}")
    view = view_of(history, done[-1])
    if missing := sorted(set(problems) - set(view.counts)):
        raise LookupError(
            f"run {run}: {len(missing)} test problems were not graded whole, {missing[0]} first"
        )
    samples_P, passed_P = zip(*(view.counts[p] for p in problems), strict=True)
    shares_P = [view.interfaces.get(p, 0.0) for p in problems]
    return Counts(
        [*passed_P], [round(share * n) for share, n in zip(shares_P, samples_P, strict=True)]
    )


def steps_of(history: History, run: str) -> list[Step]:
    """The train steps in order. LookupError if the price list lacks a price."""
    metrics: dict[int, dict[str, float]] = {}
    for row in history.query(_STEPS_SQL, {"run": run}).to_pylist():
        metrics.setdefault(row["step"], {})[row["name"]] = row["value"]
    answers = {
        r["step"]: (r["answers"], r["passed"])
        for r in history.query(_ANSWERS_SQL, {"run": run}).to_pylist()
    }
    return [
        Step(*answers.get(step, (0, 0)), round(_dollars(metrics[step]), 6))
        for step in sorted(metrics)
    ]


def evaluations_of(
    history: History, run: str, problems: Sequence[str]
) -> list[tuple[int, int]]:
    """(train steps, passed answers) of each evaluation of the student between the first and the last."""
    done = [e for e in history.evaluations(run) if e.status == "done" and e.policy == "student"]
    steps = sorted({e.step for e in done})[1:-1]
    return [
        (step, sum(counts_of(history, run, "student", problems, step=step).passed_P))
        for step in steps
    ]


def figures_of(history: History, run: str, problems: Sequence[str]) -> dict[str, Any]:
    """The fields of a `Cell` that a run's history gives."""
    (totals,) = history.query(_TOTALS_SQL, {"run": run}).to_pylist()
    evaluations = evaluations_of(history, run, problems)
    after = counts_of(history, run, "student", problems)
    return {
        "after": after,
        "steps": steps_of(history, run),
        "evaluations": evaluations,
        "gain": gain_of(history, run),
        **totals,
    }


def gain_of(history: History, run: str) -> dict[str, float]:
    """The parts of the gain in pass@1, in points, by name; empty without RL steps."""
    query = named_query("what-rl-taught")
    found = history.query(query.sql, query.bind({}, run)).to_pylist()
    return {row["part"]: round(row["points"], 3) for row in found if row["kind"] == "cause"}


def _dollars(metrics: dict[str, float]) -> float:
    usage = {}
    for role, model in _priced_models().items():
        kinds = {
            kind: metrics.get(f"tokens/{role}/{kind}", 0.0)
            for kind in ("prefill", "cached", "sample", "train")
        }
        if any(kinds.values()):
            usage[model] = Tokens(**kinds)
    total = total_dollars(usage, _prices())
    if total is None:
        raise LookupError(f"the price list lacks {', '.join(unpriced(usage, _prices()))}")
    return total


@cache
def _priced_models() -> dict[str, str]:
    """Role -> the model whose prices apply to it."""
    models = load_config("cvdp", environment={}, check_files=False).tinker
    assert models.teacher is not None, "the shipped configuration names a teacher"
    return {"student": models.student, "teacher": models.teacher}


_prices = cache(load_prices)
