"""A step with a second turn, and an evaluation with another template, by the functions that the flows call: real service, simulators
and database."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rtl_core.config import load_config
from rtl_core.history.records import Conditions
from rtl_core.history.store import History
from rtl_core.reporting.breakdown import in_words
from rtl_core.rollouts import batch, evaluation, planning, scoring, training, turns
from rtl_core.rollouts.datums import credit_group
from rtl_core.run.session import open_session

pytestmark = pytest.mark.slow


def settings(tmp_path: Path):
    return load_config(
        "demo",
        [
            "run.name=turns",
            f"run.directory={tmp_path}",
            f"run.history={tmp_path / 'history.duckdb'}",
            "run.epochs=1",
            "learning.warm_start_steps=0",
            "problems.sources.0.train=2",
            "problems.sources.0.heldout=2",
            "curriculum.problems_per_step=2",
            "sampling.group_size=4",
            "evaluation.teacher=false",
            "refinement.turns=2",
            "prompting.max_prompt_tokens=900",
        ],
    )


async def one_step(tmp_path: Path) -> None:
    async with open_session(settings(tmp_path)) as session:
        await planning.plan_run(session)
        (state,) = session.weights.steps
        step = batch.open_batch(session, await planning.batch_of(session, state))
        for problem_id in step.planned:
            await batch.sample(session, step, problem_id)
            await batch.grade(session, step, problem_id)
            await scoring.score(session, step, problem_id)
            await turns.refine(session, step, 2, problem_id)
            again = await turns.sample_turn(session, step, 2, problem_id)
            assert again == 0
            credit_group(session, step, problem_id)
        await training.train(session, step)


async def evaluated(tmp_path: Path) -> str:
    history = tmp_path / "history.duckdb"
    other = Conditions(template="table", temperature=0.2, top_p=0.9, max_tokens=100)
    async with open_session(evaluation.config_for(history, "turns", "heldout", other), as_visitor=True) as session:
        plan = evaluation.plan_at(session, "student", 0, 2, other)
        held = batch.open_batch(session, evaluation.evaluation_batch(session, plan))
        assert batch.sampling_of(session.config, held) == (100, 0.2, 0.9)
        for problem_id in held.problem_ids:
            await batch.sample(session, held, problem_id)
            await batch.grade(session, held, problem_id)
            await turns.refine(session, held, 2, problem_id)
        await evaluation.record(session, held, plan)
        assert len(evaluation.turns_in_words(held)) == len(held.later)
        evaluation.show(session, plan)
        return plan.key("turns")


def test_what_failed_is_followed_up_and_trained_and_a_template_can_be_compared(tmp_path: Path) -> None:
    asyncio.run(one_step(tmp_path))
    history = History(tmp_path / "history.duckdb")
    followed = history.query(
        "SELECT p.outcome, a.advantage, k.k1_mean FROM rollout_turns t JOIN verdicts p ON p.rollout = t.parent"
        " JOIN verdicts c ON c.rollout = t.rollout LEFT JOIN advantages a ON a.rollout = t.rollout"
        " LEFT JOIN teacher_scores k ON k.rollout = t.rollout WHERE t.turn = 2"
    ).to_pylist()
    failed = "SELECT count(*) AS n FROM verdicts WHERE purpose = 'train' AND outcome <> 'passed'"
    assert len(followed) == history.query(failed).to_pylist()[0]["n"] > 0
    assert all(row["outcome"] != "passed" for row in followed)
    assert all(row["advantage"] is not None and row["k1_mean"] is not None for row in followed)
    paid = history.query(
        "SELECT a.reward, c.total AS child, p.total AS parent FROM rollout_turns t JOIN advantages a USING (rollout)"
        " JOIN rewards c USING (rollout) JOIN rewards p ON p.rollout = t.parent WHERE t.turn = 2"
    ).to_pylist()
    assert [r["reward"] for r in paid] == pytest.approx([r["child"] + 0.5 * (r["child"] - r["parent"]) for r in paid])
    metrics = "SELECT value FROM step_metrics WHERE name = 'turn-2/answers'"
    assert history.query(metrics).to_pylist() == [{"value": float(len(followed))}]

    key = asyncio.run(evaluated(tmp_path))
    record = history.evaluation(key)
    assert record is not None
    assert (record.status, record.split, record.n_problems) == ("done", "heldout", 2)
    assert (record.template, record.temperature) == ("table", 0.2)
    assert in_words(record) == "student after 0 steps (× 2, template table, temperature 0.2, top_p 0.9, max_tokens 100)"
