"""Planning of a run that is resumed or samples ahead: with a real session and history, without a service."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from rtl_core.errors import PolicyError, ProblemError
from rtl_core.history.records import StepRecord
from rtl_core.learning.curriculum import order_problems
from rtl_core.rollouts import evaluation, planning
from rtl_core.run.opening import open_session
from rtl_core.run.session import Session
from tests.nouns import NoExecutor, demo

Found = TypeVar("Found")


def in_session(
    tmp_path: Path,
    overrides: tuple[str, ...],
    work: Callable[[Session], Awaitable[Found]],
    *,
    accept: bool = False,
) -> Found:
    """Result of `work` in the planned session of a run with 16 problems, 4 per step."""
    steps = (
        "learning.warm_start_steps=0",
        "learning.warm_start_problems=4",
        "curriculum.problems_per_step=4",
    )
    config = demo(tmp_path, "run.name=r", "run.epochs=1", *steps, *overrides, train=16)

    async def run() -> Found:
        async with open_session(
            config, with_policy=False, accept_changes=accept, cluster=NoExecutor()
        ) as session:
            await planning.plan_run(session)
            return await work(session)

    return asyncio.run(run())


async def train_two(session: Session) -> None:
    """Record the first two steps as trained."""
    for step in (0, 1):
        record = StepRecord(
            run="r", epoch=0, step=step, state_path=f"tinker://x/weights/{step + 1}",
            sampler_path=f"tinker://x/sampler_weights/{step + 1}", examples=1, train_tokens=1, times={}, metrics={},
        )  # fmt: skip
        session.recorder.put("finish_step", [record])
    await session.recorder.settle()


def test_a_late_evaluation_samples_from_the_weights_of_its_step(tmp_path):
    in_session(tmp_path, (), train_two)

    async def planned(session):
        paths = [
            evaluation.plan_evaluation(session, "student", step).sampler_path
            for step in (0, 1, 2)
        ]
        with pytest.raises(PolicyError, match="the weights after 3 steps"):
            evaluation.plan_evaluation(session, "student", 3)
        return paths

    found = in_session(tmp_path, (), planned)
    assert found == [None, "tinker://x/sampler_weights/1", "tinker://x/sampler_weights/2"]


def test_a_resumed_run_keeps_the_order_of_its_problems(tmp_path):
    async def places(session):
        return {
            p.problem_id: p.position
            for p in session.history.problems_of("r")
            if p.split == "train"
        }

    first = in_session(tmp_path, (), places)
    assert sorted(place for place in first.values() if place is not None) == list(range(16))
    assert in_session(tmp_path, (), places) == first


def test_accepted_changes_hold_for_later_starts_of_the_run(tmp_path):
    async def rate(session):
        record = session.history.run("r")
        assert record is not None
        return record.config["learning"]["learning_rate"]

    in_session(tmp_path, (), rate)
    changed = ("learning.learning_rate=1e-4",)
    assert in_session(tmp_path, changed, rate, accept=True) == 1e-4
    assert in_session(tmp_path, changed, rate) == 1e-4


def test_steps_sampled_ahead_draw_other_problems_than_the_steps_in_progress(tmp_path):
    async def drawn(session):
        return [
            (await planning.batch_of(session, state)).problem_ids
            for state in list(session.weights.steps)[:2]
        ]

    # One pool: with several, a step may draw the only problem of another pool again.
    one_pool = (
        "curriculum.order=pools",
        "learning.staleness=1",
        "curriculum.pool_weights={normal = 1.0}",
    )
    first, second = in_session(tmp_path, one_pool, drawn)
    assert len({*first, *second}) == 8
    # A resumed run has the same plan.
    assert in_session(tmp_path, one_pool, drawn) == [first, second]


@pytest.mark.parametrize("order", ["easy_to_hard", "pools"])
def test_an_unfit_problem_is_never_drawn_and_its_place_is_filled(tmp_path, order):
    asked: list[str] = []

    async def drawn(session):
        places = [
            problem.id for problem in order_problems(session.loaded.train, "easy_to_hard", 0)
        ]
        bad = set(places[1:7])

        async def validated(problem_ids):
            asked.extend(problem_ids)
            session.unfit |= dict.fromkeys(bad & set(problem_ids), "weak: it pays")

        steps = [
            (await planning.batch_of(session, state, validated)).problem_ids
            for state in list(session.weights.steps)
        ]
        assert not bad & {problem_id for step in steps for problem_id in step}
        assert [len(set(step)) for step in steps] == [4] * 4
        assert {problem_id for step in steps for problem_id in step} <= set(asked)
        assert (
            [state.problem_ids for state in session.history.steps("r")]
            == steps
            == [s.problem_ids for s in session.weights.steps]
        )
        return steps

    settings = (f"curriculum.order={order}", "learning.staleness=3", "checkpoints.keep_last=4")
    found = in_session(tmp_path, settings, drawn)

    async def planned(session):
        return [state.problem_ids for state in session.weights.steps]

    assert in_session(tmp_path, settings, planned) == found


def test_a_run_whose_problems_are_all_unfit_says_why(tmp_path):
    async def drawn(session):
        async def validated(problem_ids):
            session.unfit |= dict.fromkeys(problem_ids, "broken: the golden answer fails")

        with pytest.raises(
            ProblemError, match="no problem is fit to train on: broken: the golden answer fails"
        ):
            await planning.batch_of(session, session.weights.steps[0], validated)
        error = planning.unfit_error(session, "train on")
        place = f"--run {session.run} --db {session.config.run.history}"
        assert error.hint == f"see `rtl-distill query validation {place}`"

    in_session(tmp_path, (), drawn)


def test_no_later_step_is_sampled_from_weights_of_the_warm_start(tmp_path):
    async def seen(session):
        parts = [
            [state.step for state in part]
            for part in planning.remaining_steps(session.config, session.weights.steps, 0)
        ]
        return parts, [
            planning.policy_step(session.config, session.weights.steps, state)
            for state in session.weights.steps
        ]

    ahead = (
        "learning.staleness=2",
        "learning.warm_start_steps=1",
        "learning.warm_start_source=golden",
    )
    parts, steps = in_session(tmp_path, ahead, seen)
    assert parts == [[0], [1, 2, 3]]
    assert steps == [0, 1, 1, 1]


def test_supervised_steps_take_problems_with_an_answer_to_imitate(tmp_path):
    async def planned(session):
        return [
            [session.problems[one].has_whole_golden for one in state.problem_ids]
            for state in session.weights.steps
        ]

    def source(known_good):
        sizes = f"train = 16, heldout = 1, known_good = {known_good}"
        return f'problems.sources=[{{kind = "benchmarks.learning.experiments:FewKnownGood", {sizes}}}]'

    supervised, golden = "learning.warm_start_steps=2", "learning.warm_start_source=golden"

    def of(known_good, *overrides):
        order = "curriculum.order=shuffled"
        return in_session(
            tmp_path / f"{known_good}{len(overrides)}",
            (source(known_good), order, supervised, *overrides),
            planned,
        )

    steps = of(4, golden)
    assert steps == [[True] * 4, [True] * 4, [False] * 4, [False] * 4]
    # A teacher can answer any problem.
    assert sorted(itertools.chain(*of(4))) == [False] * 12 + [True] * 4
    with pytest.raises(ProblemError, match="no problem that is fit to train on has one"):
        of(0, golden)
