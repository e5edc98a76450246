"""How long a step takes at a cloud's stage times, with and without overlap, in virtual seconds and against sums made by hand."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from rtl_core.rollouts.side_by_side import in_order

Result = TypeVar("Result")

SAMPLE, GRADE, SCORE, TRAIN, GROUPS = 44.0, 30.0, 10.0, 31.0, 8


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run_in_virtual_time(work: Coroutine[Any, Any, Result]) -> Result:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def seconds_a_step(ahead: int, *, spread: float, steps: int = 48) -> float:
    """Mean time from one finished step to the next. The answers of a step's groups come at even distances over the last `spread`
    of its sampling; one group is graded at a time, and one scored; steps are sampled side by side."""
    ends: list[float] = []

    async def run() -> None:
        clock = asyncio.get_running_loop().time
        grader, scorer = asyncio.Lock(), asyncio.Lock()

        async def use(resource: asyncio.Lock, seconds: float) -> None:
            async with resource:
                await asyncio.sleep(seconds)

        async def group(place: int) -> None:
            await asyncio.sleep(SAMPLE * (1 - spread * (1 - place / (GROUPS - 1))))
            await asyncio.gather(use(grader, GRADE / GROUPS), use(scorer, SCORE / GROUPS))

        async def prepare(step: int) -> int:
            await asyncio.gather(*(group(place) for place in range(GROUPS)))
            return step

        async def finish(step: int) -> None:
            await asyncio.sleep(TRAIN)
            ends.append(clock())

        async def after(step: int) -> None:
            pass

        await in_order(range(steps), prepare=prepare, finish=finish, after=after, stop=lambda _: None, ahead=ahead)

    run_in_virtual_time(run())
    return (ends[-1] - ends[steps // 2 - 1]) / (steps - steps // 2)


def test_without_overlap_a_step_is_what_its_stages_add_up_to():
    # All answers come at the end: 44 sampling, 30 grading (scoring goes beside it), 31 training.
    assert seconds_a_step(0, spread=0.0) == pytest.approx(SAMPLE + GRADE + TRAIN)
    # Half of the sampling time is graded in already: 22 s until the first group, 30 s of grading, 31 s of training.
    assert seconds_a_step(0, spread=0.5) == pytest.approx(SAMPLE / 2 + GRADE + TRAIN)


def test_with_a_staleness_of_one_a_step_takes_no_longer_than_its_longest_stage():
    # Two steps share 83 s, and no stage that only one step at a time may use is longer.
    assert seconds_a_step(1, spread=0.5) == pytest.approx((SAMPLE / 2 + GRADE + TRAIN) / 2)
    assert seconds_a_step(1, spread=0.5) <= 1.15 * SAMPLE


def test_staleness_gains_until_training_itself_is_the_bound():
    # Even if nothing overlapped within a step, two share 105 s; with three, training one after the other is what is left.
    assert seconds_a_step(1, spread=0.0) == pytest.approx((SAMPLE + GRADE + TRAIN) / 2)
    for ahead in (2, 3):
        assert seconds_a_step(ahead, spread=0.0) == pytest.approx((SAMPLE + GRADE + TRAIN) / 3 if ahead == 2 else TRAIN)
