"""A problem whose answers cannot be graded: it stops the run, or with quarantine only leaves its step."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rtl_core.errors import InfrastructureError, RunHealthError
from rtl_core.grading.executors import make_executor
from rtl_core.history.named_queries import named_query
from rtl_core.history.store import History
from rtl_core.rollouts import batch
from rtl_core.rollouts.datums import golden_response
from rtl_core.run.session import open_session
from tests.nouns import a_rollout, demo


class BrokenExecutor:
    """The real one until something is to be run."""

    slots = 1

    def __init__(self) -> None:
        self._executor = make_executor("bubblewrap")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def run(self, job: Any) -> Any:
        raise InfrastructureError("the disk is full")


def grade(tmp_path: Path, problems_graded: int, *overrides: str) -> batch.Batch:
    """Grade a known-good answer to some of a step's two problems, as often as a task is repeated."""
    config = demo(tmp_path, "grading.retries=1", *overrides)

    async def run() -> batch.Batch:
        async with open_session(config, with_policy=False, cluster=BrokenExecutor()) as session:
            problems = session.loaded.train
            step = batch.open_batch(session, batch.Batch("train", 0, 0, 0, tuple(p.id for p in problems), 1))
            rollouts = [a_rollout(run=session.run, problem_id=p.id, text=golden_response(p)) for p in problems]
            session.recorder.put("record_rollouts", rollouts)
            step.add(batch.StoredRollout(rollout) for rollout in rollouts)
            for problem in problems[:problems_graded]:
                with pytest.raises(InfrastructureError, match="disk is full"):
                    await batch.grade(session, step, problem.id)
                await batch.grade(session, step, problem.id)
            return step

    return asyncio.run(run())


def test_it_stops_the_run_after_its_repeats(tmp_path):
    with pytest.raises(RunHealthError, match=r"the disk is full \(tried 2 times\)"):
        grade(tmp_path, 1)


def test_with_quarantine_it_leaves_its_step_and_the_run_goes_on(tmp_path):
    step = grade(tmp_path, 1, "curriculum.quarantine=true")
    assert step.quarantined == {step.problem_ids[0]}
    # The answer is stored without a verdict, and a query names it.
    query = named_query("infrastructure")
    rows = History(tmp_path / "history.duckdb").query(query.sql, {"run": "demo"}).to_pylist()
    assert step.problem_ids[0] in [row["problem_id"] for row in rows]


def test_when_more_than_half_of_a_step_cannot_be_graded_it_is_not_the_problems_fault(tmp_path):
    with pytest.raises(RunHealthError, match="the disk is full"):
        grade(tmp_path, 2, "curriculum.quarantine=true")
