"""The pipeline of steps: bounded, in order, and with nothing lost when it stops or fails."""

import asyncio
from collections.abc import Callable

import pytest

from rtl_core.rollouts.side_by_side import in_order
from tests.rollouts.test_run_ahead_times import run_in_virtual_time


class Log:
    """What was begun and ended, in order."""

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


def run(log: Log, items: int, ahead: int, stop: Callable[[int], str | None] = lambda _: None) -> str | None:
    return run_in_virtual_time(
        in_order(range(items), prepare=log.prepare, finish=log.finish, after=log.after, stop=stop, ahead=ahead)
    )


def test_without_staleness_one_step_comes_after_the_other():
    log = Log()
    assert run(log, 3, 0) is None
    one = ["prepare", "prepared", "finish", "after"]
    assert log.events == [(event, item) for item in range(3) for event in one]


@pytest.mark.parametrize("ahead", [0, 1, 2, 3])
def test_every_item_is_finished_once_in_order_and_none_is_prepared_further_ahead(ahead):
    log = Log(prepare_s=0.002, finish_s=0.001)
    run(log, 12, ahead)
    assert log.trained == list(range(12))
    assert {item: min(item, ahead) for item in range(12)} == log.behind


def test_the_next_is_prepared_while_one_is_finished_and_while_what_follows_it_runs():
    log = Log(prepare_s=0.002, finish_s=0.002)
    run(log, 4, 1)
    order = log.events.index
    for item in range(3):
        assert order(("prepare", item + 1)) < order(("finish", item))
    for item in range(2):
        assert order(("finish", item)) < order(("prepare", item + 2)) < order(("finish", item + 1))


def test_a_reason_to_stop_lets_what_is_being_prepared_end_and_trains_no_more():
    log = Log(prepare_s=0.002)
    assert run(log, 10, 2, lambda _: "paused" if log.trained == [0, 1] else None) == "paused"
    assert log.trained == [0, 1]
    begun = [item for event, item in log.events if event == "prepare"]
    ended = [item for event, item in log.events if event == "prepared"]
    assert begun == ended == [0, 1, 2, 3]


def test_the_reason_is_asked_with_the_number_of_items_under_way():
    log, asked = Log(), []
    run(log, 4, 2, lambda under_way: asked.append(under_way))
    assert asked[:3] == [0, 1, 2]
    assert run(Log(), 4, 2, lambda _: "never") == "never"


def test_an_error_comes_out_in_its_turn_and_the_later_ones_are_cancelled():
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
            in_order(range(5), prepare=prepare, finish=log.finish, after=log.after, stop=lambda _: None, ahead=2)
        )
    assert log.trained == [0]
    assert cancelled == [2, 3]
