"""Early training may grade to a stage only; what it skips earns nothing, and evaluations run the tests all the same."""

import asyncio

import pytest

from rtl_core.config import load_config
from rtl_core.grading.grader import grade_all
from rtl_core.prompting.answer_to import answer_to
from rtl_core.rollouts import batch
from rtl_core.rollouts.datums import golden_response
from rtl_core.run.session import open_session
from rtl_core.types.verdict import Outcome, Stage
from tests.nouns import a_rollout, demo

SYNTAX = ("curriculum.order=shuffled", "grading.until=syntax", "grading.until_steps=3")


def test_training_grades_to_the_stage_and_no_cached_verdict_stands_for_another_stage(tmp_path):
    async def run():
        async with open_session(demo(tmp_path, *SYNTAX, train=1), with_policy=False) as session:
            problem = session.loaded.train[0]
            right = golden_response(problem)
            texts = (right, right.replace(";", "", 1))
            graded = {}
            for step in (2, 3):
                under_way = batch.open_batch(session, batch.Batch("train", 0, step, step, (problem.id,), 2))
                rollouts = [
                    a_rollout(run=session.run, step=step, problem_id=problem.id, sample=sample, text=text)
                    for sample, text in enumerate(texts)
                ]
                session.recorder.put("record_rollouts", rollouts)
                under_way.add(batch.StoredRollout(rollout) for rollout in rollouts)
                await batch.grade(session, under_way, problem.id)
                graded[step] = under_way.group(problem.id)
            right_early, wrong_early = graded[2]
            assert right_early.verdict.stage(Stage.SYNTAX).status == "passed"
            assert right_early.verdict.stage(Stage.TESTS).status == "skipped"
            assert right_early.reward.total == pytest.approx(0.1 + 0.2 + 0.3)
            assert wrong_early.verdict.outcome is Outcome.COMPILE_FAILED
            assert wrong_early.reward.total < right_early.reward.total
            assert graded[3][0].verdict.passed
            assert graded[3][0].reward.total == pytest.approx(1.6)
            answers = [answer_to(problem, text) for text in (*texts, texts[0])]
            right, wrong, again = await grade_all(session.graders.grader, session.graders.pool, problem, answers)
            assert [right.outcome, wrong.outcome] == [Outcome.PASSED, Outcome.COMPILE_FAILED]
            assert again == right.model_copy(update={"cached": True, "wall_s": 0.0})

    asyncio.run(run())


def test_only_training_is_graded_to_a_stage():
    config = load_config("demo", ["curriculum.order=shuffled", "grading.until=interface"], environment={})
    for purpose, stage in (("train", Stage.INTERFACE), ("evaluation", Stage.TESTS), ("warm_start", Stage.TESTS)):
        assert config.grading.last_stage(purpose, 900) == stage
