"""Which saved weights are kept."""

import asyncio
from types import SimpleNamespace

import pytest

from rtl_core.config import load_config
from rtl_core.config.models import CheckpointsSection
from rtl_core.errors import BackendUnavailableError, PolicyError, WeightsGoneError
from rtl_core.history.records import (
    EvaluationRecord,
    RunRecord,
    StepPlan,
    StepRecord,
    StepState,
)
from rtl_core.history.store import History
from rtl_core.reporting.evaluations import own_evaluations
from rtl_core.run.retention import best_steps, keep_final_weights, kept_steps
from rtl_grader.progress import progress


def trained(count: int) -> list[StepState]:
    return [
        StepState(
            run="r",
            epoch=0,
            step=step,
            status="trained",
            problem_ids=("p",),
            state_path=f"tinker://t/{step}",
        )
        for step in range(count)
    ]


def evaluated(scores: dict[int, float], policy: str = "student") -> list[EvaluationRecord]:
    return [
        EvaluationRecord(
            key=f"r/{policy}/{after}",
            run="r",
            policy=policy,
            step=after,
            split="heldout",
            status="done",
            pass_at_1=score,
        )
        for after, score in scores.items()
    ]


def test_the_newest_and_the_best_by_held_out_pass_rate_are_kept():
    # The evaluation after 4 steps is of the weights of step 3; the one after 0 steps is of no saved weights.
    scores = evaluated({0: 0.9, 2: 0.1, 4: 0.6, 6: 0.5}) + evaluated({8: 1.0}, policy="teacher")
    assert kept_steps(trained(10), scores, CheckpointsSection(keep_last=2, keep_best=1)) == {
        3,
        8,
        9,
    }
    assert kept_steps(trained(10), scores, CheckpointsSection(keep_last=2, keep_best=2)) == {
        3,
        5,
        8,
        9,
    }
    found = best_steps(trained(10), scores, 2)
    assert {step: evaluation.pass_at_1 for step, evaluation in found.items()} == {
        3: 0.6,
        5: 0.5,
    }
    assert best_steps(trained(10), scores, 0) == {}


def test_evaluations_under_other_conditions_do_not_decide_which_weights_are_best(tmp_path):
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r", config={"problems": {"sources": [{"kind": "cvdp"}]}}))
    own, second = evaluated({2: 0.4, 4: 0.3})
    other = (
        {"template": "full"},
        {"temperature": 0.2},
        {"top_p": 0.7},
        {"max_tokens": 9},
        {"split": "test"},
    )
    records = [own, second]
    records += [
        second.model_copy(update={"key": str(i), "pass_at_1": 0.9, **change})
        for i, change in enumerate(other)
    ]
    for record in records:
        history.record_evaluation(record)
    assert {r.key: r.conditions for r in history.evaluations("r")} == {
        r.key: r.conditions for r in records
    }
    assert own_evaluations(history, "r") == [own, second]
    assert kept_steps(
        trained(6), own_evaluations(history, "r"), CheckpointsSection(keep_last=1, keep_best=1)
    ) == {1, 5}


def test_the_newest_step_milestones_and_the_earlier_of_equally_good_weights_are_kept():
    assert kept_steps(trained(7), [], CheckpointsSection(keep_last=1, keep_best=0)) == {6}
    assert kept_steps(
        trained(7), [], CheckpointsSection(keep_last=1, keep_best=0, keep_every=3)
    ) == {
        2,
        5,
        6,
    }
    assert kept_steps([], [], CheckpointsSection()) == set()
    assert kept_steps(
        trained(6), evaluated({2: 0.5, 4: 0.5}), CheckpointsSection(keep_last=1, keep_best=1)
    ) == {1, 5}


@pytest.mark.parametrize(
    "error",
    [
        WeightsGoneError("tinker://t/weights/0 is not there (404)"),
        PolicyError("the Tinker service refused (APIStatusError: 405 Method Not Allowed)"),
        BackendUnavailableError("the Tinker service did not complete a request (501)"),
    ],
    ids=["gone", "a service without expiries", "not implemented"],
)
def test_the_final_weights_are_kept_even_if_the_expiry_of_others_cannot_be_removed(
    tmp_path, error
):
    history = History(tmp_path / "h.duckdb")
    history.start_run(
        RunRecord(name="r", config={"problems": {"sources": [{"kind": "starter"}]}})
    )
    history.plan_epoch("r", 0, [StepPlan(step=step, problem_ids=("p",)) for step in range(3)])
    for step in range(3):
        paths = {
            "state_path": f"tinker://t/weights/{step}",
            "sampler_path": f"tinker://t/sampler_weights/{step}",
        }
        history.finish_step(
            StepRecord(run="r", epoch=0, step=step, examples=0, train_tokens=0, **paths)
        )
    for record in evaluated({1: 0.9, 3: 0.4}):
        history.record_evaluation(record)
    found = set()

    class Service:
        async def keep(self, paths):
            if "tinker://t/weights/0" in paths:
                raise error
            found.update(paths)

        async def delete(self, paths):
            return len(paths)

    session = SimpleNamespace(
        run="r",
        history=history,
        config=load_config("demo", [f"run.directory={tmp_path}"], environment={}),
        weights=SimpleNamespace(deleted=set()),
        loaded=SimpleNamespace(heldout=[]),
        policy=SimpleNamespace(backend=Service()),
    )
    lines = []
    before = progress.set(SimpleNamespace(line=lines.append))
    asyncio.run(keep_final_weights(session))
    progress.reset(before)
    assert found == {"tinker://t/weights/2", "tinker://t/sampler_weights/2"}
    assert any("the weights after 1 step " in line and error.message in line for line in lines)
