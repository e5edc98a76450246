"""Grading a train step: up to a stage, with an audit of its passes, and with answers that cannot be graded."""

import asyncio
from pathlib import Path

import pytest

from rtl_core.backend.base import Readiness
from rtl_core.config import load_config
from rtl_core.errors import InfrastructureError, RunHealthError
from rtl_core.history.named_queries import named_query
from rtl_core.history.store import History
from rtl_core.rollouts import batch
from rtl_core.rollouts.auditing import audit_group
from rtl_core.rollouts.datums import golden_response
from rtl_core.run.check.preflight import small_pays
from rtl_core.run.check.prompts import PreflightInput
from rtl_core.run.opening import open_session
from rtl_core.run.session import Session
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.types.verdict import Outcome, Stage
from tests.nouns import NoExecutor, a_rollout, demo

SYNTAX = ("curriculum.order=shuffled", "grading.until=syntax", "grading.until_steps=3")
SIZE = ("reward.weights={tests = 1.0, area = 0.5, depth = 0.25}",)


def sampled(session: Session, texts: dict[str, tuple[str, ...]], step: int = 0) -> batch.Batch:
    """A train step with these recorded answers by problem id."""
    made = batch.open_batch(
        session.history,
        session.run,
        batch.Batch("train", 0, step, step, tuple(texts), max(map(len, texts.values()))),
    )
    rollouts = [
        a_rollout(run=session.run, step=step, problem_id=problem_id, sample=sample, text=text)
        for problem_id, answers in texts.items()
        for sample, text in enumerate(answers)
    ]
    session.recorder.put("record_rollouts", rollouts)
    made.add(map(batch.StoredRollout, rollouts))
    return made


def test_training_grades_up_to_the_stage_and_cached_verdicts_are_not_used_for_another_stage(
    tmp_path,
):
    async def run():
        async with open_session(demo(tmp_path, *SYNTAX, train=1), with_policy=False) as session:
            problem = session.loaded.train[0]
            right = golden_response(problem)
            texts = (right, right.replace(";", "", 1))
            graded = {}
            for step in (2, 3):
                made = sampled(session, {problem.id: texts}, step)
                await batch.grade(session, made, problem.id)
                graded[step] = made.group(problem.id)
            right_early, wrong_early = graded[2]
            assert right_early.verdict.stage(Stage.SYNTAX).status == "passed"
            assert right_early.verdict.stage(Stage.TESTS).status == "skipped"
            assert right_early.reward.total == pytest.approx(0.1 + 0.2 + 0.3)
            assert wrong_early.verdict.outcome is Outcome.COMPILE_FAILED
            assert wrong_early.reward.total < right_early.reward.total
            assert graded[3][0].verdict.passed
            assert graded[3][0].reward.total == pytest.approx(1.6)
            answers = [answer_to(problem, text) for text in (*texts, texts[0])]
            right, wrong, again = await session.graders.grade(problem, answers)
            assert [right.outcome, wrong.outcome] == [Outcome.PASSED, Outcome.COMPILE_FAILED]
            assert again == right.model_copy(update={"cached": True, "wall_s": 0.0})

    asyncio.run(run())


def test_only_training_is_graded_up_to_a_stage():
    config = load_config(
        "demo", ["curriculum.order=shuffled", "grading.until=interface"], environment={}
    )
    for purpose, stage in (
        ("train", Stage.INTERFACE),
        ("evaluation", Stage.TESTS),
        ("warm_start", Stage.TESTS),
    ):
        assert config.grading.last_stage(purpose, 900) == stage


def test_a_golden_answer_earns_half_of_each_size_term_and_a_failed_one_nothing(tmp_path):
    async def run():
        async with open_session(demo(tmp_path, *SIZE, train=1), with_policy=False) as session:
            (problem,) = session.loaded.train
            step = sampled(session, {problem.id: (golden_response(problem), "none")})
            await batch.grade(session, step, problem.id)
            await audit_group(session.config, session.graders, session.recorder, step, problem)
            right, wrong = step.group(problem.id)
            assert right.audit == "equal"
            assert right.reward is not None
            assert right.reward.total == pytest.approx(1.0 + 0.5 / 2 + 0.25 / 2)
            assert wrong.reward is not None
            assert wrong.reward.total == 0.0
            await session.recorder.settle()
            found = session.history.query(
                "SELECT total, cells > 0 AS some FROM rewards JOIN audits USING (rollout)"
            )
            assert found.to_pylist() == [{"total": pytest.approx(1.375), "some": True}]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("more", "warned"),
    [((), 0), (("problems.require_golden=false",), 1), (("problems.weak_ceiling=0.5",), 1)],
)
def test_rewards_for_size_with_weak_harnesses_give_a_warning(more, warned):
    assert (
        len(
            list(
                small_pays(
                    PreflightInput(
                        load_config("demo", [*SIZE, *more], environment={}), Readiness()
                    )
                )
            )
        )
        == warned
    )
    assert not list(
        small_pays(PreflightInput(load_config("demo", more, environment={}), Readiness()))
    )


def fail_to_grade(tmp_path: Path, problems_graded: int, *overrides: str) -> batch.Batch:
    """Grade a known-good answer to some of a step's two problems, with as many retries as a task makes."""
    config = demo(tmp_path, "grading.retries=1", *overrides)

    async def run() -> batch.Batch:
        async with open_session(config, with_policy=False, cluster=NoExecutor()) as session:
            step = sampled(
                session,
                {problem.id: (golden_response(problem),) for problem in session.loaded.train},
            )
            for problem_id in step.problem_ids[:problems_graded]:
                with pytest.raises(InfrastructureError, match="disk is full"):
                    await batch.grade(session, step, problem_id)
                await batch.grade(session, step, problem_id)
            return step

    return asyncio.run(run())


def test_a_problem_that_cannot_be_graded_stops_the_run_after_the_retries(tmp_path):
    with pytest.raises(RunHealthError, match=r"the disk is full \(tried 2 times\)"):
        fail_to_grade(tmp_path, 1)


def test_with_quarantine_it_is_left_out_of_its_step_and_the_run_goes_on(tmp_path):
    step = fail_to_grade(tmp_path, 1, "curriculum.quarantine=true")
    assert step.quarantined == {step.problem_ids[0]}
    # The answer is stored without a verdict, and a query names it.
    query = named_query("infrastructure")
    rows = History(tmp_path / "history.duckdb").query(query.sql, {"run": "demo"}).to_pylist()
    assert step.problem_ids[0] in [row["problem_id"] for row in rows]


def test_quarantine_of_more_than_half_of_a_step_stops_the_run(tmp_path):
    with pytest.raises(RunHealthError, match="the disk is full"):
        fail_to_grade(tmp_path, 2, "curriculum.quarantine=true")
