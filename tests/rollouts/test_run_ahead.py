"""The pipeline of steps: bounded, in order, without losses when it stops or fails, and as fast as its longest stage."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from rtl_core.rollouts.side_by_side import in_order

Result = TypeVar("Result")


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


class Log:
    """Records what starts and ends, in order."""

    def __init__(self, prepare_s: float = 0.0, finish_s: float = 0.0) -> None:
        self.events: list[tuple[str, int]] = []
        self.trained: list[int] = []
        self.behind: dict[int, int] = {}
        self.seconds = {"prepare": prepare_s, "finish": finish_s}

    async def prepare(self, item: int) -> int:
        self.behind[item] = item - len(self.trained)
        self.events.append(("prepare", item))
        await asyncio.sleep(self.seconds["prepare"])
        self.events.append(("prepared", item))
        return item

    async def finish(self, item: int) -> None:
        self.events.append(("finish", item))
        await asyncio.sleep(self.seconds["finish"])
        self.trained.append(item)

    async def after(self, item: int) -> None:
        self.events.append(("after", item))
        await asyncio.sleep(0)


def run(
    log: Log, items: int, ahead: int, stop: Callable[[int], str | None] = lambda _: None
) -> str | None:
    return run_in_virtual_time(
        in_order(
            range(items),
            prepare=log.prepare,
            finish=log.finish,
            after=log.after,
            stop=stop,
            ahead=ahead,
        )
    )


def test_without_staleness_steps_run_one_after_the_other():
    log = Log()
    assert run(log, 3, 0) is None
    one = ["prepare", "prepared", "finish", "after"]
    assert log.events == [(event, item) for item in range(3) for event in one]


@pytest.mark.parametrize("ahead", [0, 1, 2, 3])
def test_items_are_finished_once_in_order_and_prepared_no_further_ahead_than_allowed(ahead):
    log = Log(prepare_s=0.002, finish_s=0.001)
    run(log, 12, ahead)
    assert log.trained == list(range(12))
    assert {item: min(item, ahead) for item in range(12)} == log.behind


def test_the_next_item_is_prepared_during_finish_and_after():
    log = Log(prepare_s=0.002, finish_s=0.002)
    run(log, 4, 1)
    order = log.events.index
    for item in range(3):
        assert order(("prepare", item + 1)) < order(("finish", item))
    for item in range(2):
        assert (
            order(("finish", item)) < order(("prepare", item + 2)) < order(("finish", item + 1))
        )


def test_after_a_reason_to_stop_preparations_end_and_nothing_more_is_trained():
    log = Log(prepare_s=0.002)
    assert run(log, 10, 2, lambda _: "paused" if log.trained == [0, 1] else None) == "paused"
    assert log.trained == [0, 1]
    started = [item for event, item in log.events if event == "prepare"]
    ended = [item for event, item in log.events if event == "prepared"]
    assert started == ended == [0, 1, 2, 3]


def test_stop_receives_the_number_of_items_in_progress():
    log, asked = Log(), []
    run(log, 4, 2, lambda under_way: asked.append(under_way))
    assert asked[:3] == [0, 1, 2]
    assert run(Log(), 4, 2, lambda _: "never") == "never"


def test_an_error_is_raised_in_order_and_later_items_are_cancelled():
    log = Log(prepare_s=0.002)
    cancelled = []

    async def prepare(item):
        if item == 1:
            raise ValueError("item 1")
        try:
            await asyncio.sleep(0.002 if item == 0 else 60)
        except asyncio.CancelledError:
            cancelled.append(item)
            raise
        return item

    with pytest.raises(ValueError, match="item 1"):
        run_in_virtual_time(
            in_order(
                range(5),
                prepare=prepare,
                finish=log.finish,
                after=log.after,
                stop=lambda _: None,
                ahead=2,
            )
        )
    assert log.trained == [0]
    assert cancelled == [2, 3]


SAMPLE, GRADE, SCORE, TRAIN, GROUPS = 44.0, 30.0, 10.0, 31.0, 8


def seconds_a_step(ahead: int, *, spread: float, steps: int = 48) -> float:
    """Mean time from one finished step to the next. The answers of a step's groups arrive evenly over the last `spread` of its
    sampling; one group is graded at a time, and one scored; steps are sampled concurrently."""
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

        await in_order(
            range(steps),
            prepare=prepare,
            finish=finish,
            after=after,
            stop=lambda _: None,
            ahead=ahead,
        )

    run_in_virtual_time(run())
    return (ends[-1] - ends[steps // 2 - 1]) / (steps - steps // 2)


@pytest.mark.parametrize(
    ("ahead", "spread", "expected"),
    [
        # All answers arrive at the end: 44 sampling, 30 grading (in parallel with scoring), 31 training.
        (0, 0.0, SAMPLE + GRADE + TRAIN),
        # Grading starts halfway through sampling: 22 s until the first group, 30 s of grading, 31 s of training.
        (0, 0.5, SAMPLE / 2 + GRADE + TRAIN),
        # Two steps share 83 s, and no stage that serves one step at a time takes longer.
        (1, 0.5, (SAMPLE / 2 + GRADE + TRAIN) / 2),
        # Without overlap within a step, two share 105 s; with four, sequential training is the limit.
        (1, 0.0, (SAMPLE + GRADE + TRAIN) / 2),
        (2, 0.0, (SAMPLE + GRADE + TRAIN) / 3),
        (3, 0.0, TRAIN),
    ],
)
def test_a_step_takes_its_share_of_the_stages_until_training_is_the_bottleneck(
    ahead, spread, expected
):
    assert seconds_a_step(ahead, spread=spread) == pytest.approx(expected)
