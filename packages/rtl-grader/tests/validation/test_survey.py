"""Validation of a session's problems without Prefect: results are reused, and failures of the executor are not recorded."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rtl_core.errors import InfrastructureError, ProblemError
from rtl_core.prompting.budget import Prompt
from rtl_core.rollouts import survey
from rtl_core.run.check.prompts import Prompts
from rtl_core.run.opening import open_session
from rtl_core.run.session import Session
from rtl_grader.validation.level import full_level, quick_level
from tests.nouns import demo


def in_session(
    tmp_path: Path, work: Callable[[Session], Awaitable[None]], *overrides: str
) -> None:
    """Run `work` in a session with two starter problems."""
    settings = demo(tmp_path, "grading.workers=2", *overrides, train=1)

    async def run() -> None:
        async with open_session(settings, with_policy=False, accept_changes=True) as session:
            await work(session)

    asyncio.run(run())


async def validate_all(session: Session, level: object) -> survey.Survey:
    under_way = survey.begin(session, level)
    for problem_id in under_way.waiting:
        await under_way.validate(problem_id)
    await session.recorder.settle()
    return under_way


@pytest.mark.slow
def test_a_full_record_is_reused_at_the_quick_level_but_not_vice_versa(tmp_path):
    async def work(session):
        quick = quick_level(1, 1)
        assert (await validate_all(session, quick)).n_known == 0
        assert (await validate_all(session, quick)).n_known == 2
        assert (await validate_all(session, full_level())).n_known == 0
        assert (await validate_all(session, quick_level(2, 1))).n_known == 2

    in_session(tmp_path, work)


def test_another_golden_answer_is_validated_again(tmp_path):
    async def work(session):
        level = quick_level(0, 1)
        await validate_all(session, level)
        problem = session.loaded.train[0]
        changed = {
            path: text + "// the same, otherwise written\n"
            for path, text in problem.golden.items()
        }
        session.problems[problem.id] = problem.model_copy(update={"golden": changed})
        again = survey.begin(session, level)
        assert again.waiting == [problem.id]

    in_session(tmp_path, work)


def test_a_problem_on_which_only_the_executor_fails_is_retried_and_then_skipped_unrecorded(
    tmp_path, monkeypatch
):
    async def work(session):
        under_way = survey.begin(session, quick_level(1, 1))
        problem_id = under_way.waiting[0]
        executor = session.graders.grader.executor
        run = executor.run

        def failing(job):
            if job.harness:
                raise InfrastructureError("the sandbox ended in the middle of a job")
            return run(job)

        monkeypatch.setattr(executor, "run", failing)
        for _ in range(survey.ATTEMPTS - 1):
            with pytest.raises(InfrastructureError):
                await under_way.validate(problem_id)
        await under_way.validate(problem_id)
        assert under_way.records[problem_id].status == "unsupported"
        await session.recorder.settle()
        under_way.mark_unfit()
        assert "the executor failed 3 times" in session.unfit[problem_id]
        assert session.history.query("SELECT count(*) AS n FROM validations").to_pylist() == [
            {"n": 0}
        ]

    in_session(tmp_path, work)


def test_a_dead_executor_is_no_property_of_a_problem(tmp_path):
    async def work(session):
        under_way = survey.begin(session, quick_level(1, 1))
        session.graders.grader.executor.close()
        for problem_id in under_way.waiting:
            for _ in range(2 * survey.ATTEMPTS):
                with pytest.raises(InfrastructureError):
                    await under_way.validate(problem_id)
        under_way.mark_unfit()
        assert (under_way.records, session.unfit) == ({}, {})

    in_session(tmp_path, work)


@pytest.mark.parametrize(("required", "takes_part"), [("true", False), ("false", True)])
def test_require_golden_excludes_problems_without_a_golden_answer(
    tmp_path, required, takes_part
):
    async def work(session):
        problem = session.loaded.train[0]
        bare = problem.model_copy(update={"golden": None})
        session.problems[problem.id] = bare
        under_way = await validate_all(session, quick_level(1, 1))
        assert under_way.records[problem.id].status == "fit_without_golden"
        under_way.mark_unfit()
        assert (problem.id not in session.unfit) == takes_part

    in_session(tmp_path, work, f"problems.require_golden={required}")


def test_a_weak_training_problem_has_a_ceiling_and_a_held_out_one_is_excluded(tmp_path):
    async def work(session):
        under_way = await validate_all(session, quick_level(0, 1))
        weak = {
            name: record.model_copy(update={"status": "weak"})
            for name, record in under_way.records.items()
        }
        under_way.records = weak
        under_way.mark_unfit()
        (train,), (heldout,) = session.loaded.train, session.loaded.heldout
        assert session.graders.ceilings == {train.id: 0.6}
        assert session.unfit.keys() == {heldout.id}

    in_session(tmp_path, work, "problems.weak_ceiling=0.6")


def test_a_problem_whose_prompt_does_not_fit_is_left_out_when_it_is_met(tmp_path):
    """Neither it nor a problem that has a record is validated."""

    async def work(session):
        known = await validate_all(session, quick_level(0, 1))
        (long,), (short,) = session.loaded.train, session.loaded.heldout

        def build(problem_id):
            if problem_id == long.id:
                raise ProblemError("its text alone is too long")
            return Prompt(problem_id, [], [1])

        session.opened_policy, session.prompts = object(), Prompts(build)
        known.records.pop(long.id)
        ahead = survey.ValidationAhead(known, survey.Survey.validate, concurrency=1)
        await ahead.finished([short.id, long.id])
        assert session.prompts.keys() == {short.id}
        assert session.unfit == {long.id: "its text alone is too long"}
        assert known.records.keys() == {short.id}
        rows = session.history.problems_of(session.run)
        splits = {row.problem_id: row.split for row in rows}
        await session.recorder.settle()
        assert splits == {short.id: "heldout", long.id: "excluded"}

    in_session(tmp_path, work)
