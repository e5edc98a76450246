"""A pass earns what its netlist is worth once it was looked at, and the history holds both."""

import asyncio

import pytest

from rtl_core.backend.base import Readiness
from rtl_core.config import load_config
from rtl_core.rollouts import batch
from rtl_core.rollouts.auditing import audit_group
from rtl_core.rollouts.datums import golden_response
from rtl_core.run.check.preflight import small_pays
from rtl_core.run.check.prompts import Known
from rtl_core.run.session import open_session
from tests.nouns import a_rollout, demo

SIZE = ("reward.weights={tests = 1.0, area = 0.5, depth = 0.25}",)


def test_a_golden_answer_earns_half_of_each_term_and_a_failed_one_nothing(tmp_path):
    async def run():
        async with open_session(demo(tmp_path, *SIZE, train=1), with_policy=False) as session:
            (problem,) = session.loaded.train
            step = batch.open_batch(session, batch.Batch("train", 0, 0, 0, (problem.id,), 2))
            rollouts = [
                a_rollout(run=session.run, problem_id=problem.id, sample=i, text=text)
                for i, text in enumerate((golden_response(problem), "none"))
            ]
            session.recorder.put("record_rollouts", rollouts)
            step.add(batch.StoredRollout(rollout) for rollout in rollouts)
            await batch.grade(session, step, problem.id)
            await audit_group(session, step, problem.id)
            right, wrong = step.group(problem.id)
            assert right.audit == "equal"
            assert right.reward is not None
            assert right.reward.total == pytest.approx(1.0 + 0.5 / 2 + 0.25 / 2)
            assert wrong.reward is not None
            assert wrong.reward.total == 0.0
            await session.recorder.settle()
            found = session.history.query("SELECT total, cells > 0 AS some FROM rewards JOIN audits USING (rollout)")
            assert found.to_pylist() == [{"total": pytest.approx(1.375), "some": True}]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("more", "warned"), [((), 0), (("problems.require_golden=false",), 1), (("problems.weak_ceiling=0.5",), 1)]
)
def test_paying_for_size_where_harnesses_are_weak_is_warned_of(more, warned):
    assert len(list(small_pays(Known(load_config("demo", [*SIZE, *more], environment={}), Readiness(), {})))) == warned
    assert not list(small_pays(Known(load_config("demo", more, environment={}), Readiness(), {})))
