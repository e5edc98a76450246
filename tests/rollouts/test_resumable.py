"""Work that may be stopped and repeated: how many items at one time, what is written, and that nothing holds up the end."""

import asyncio
import threading
from typing import cast

import pytest

from rtl_core.grading.executors import Executor
from rtl_core.rollouts import resumable
from rtl_core.rollouts.resumable import PeriodicWriter, Tally, daemon_threads, process_all


def test_items_are_taken_in_order_as_places_become_free():
    begun: list[int] = []
    at_work = most = 0

    async def work(item):
        nonlocal at_work, most
        begun.append(item)
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1

    tally = Tally("items", 12, 2)
    asyncio.run(process_all(iter(range(5)), work, tally, concurrency=3, size=lambda _: 2))
    assert begun == [0, 1, 2, 3, 4]
    assert most == 3
    assert tally.done == 12


def test_the_first_error_ends_what_is_under_way_and_is_raised_as_it_is():
    ended: list[str] = []

    async def work(item):
        if item == "bad":
            raise ValueError("as it is")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(item)

    with pytest.raises(ValueError, match="as it is"):
        asyncio.run(process_all(["good", "bad", "never"], work, Tally("items", 3), concurrency=2))
    assert ended == ["good"]


def test_rows_are_written_now_and_then_and_the_rest_at_the_end(monkeypatch):
    written: list[list[int]] = []

    async def write(rows):
        written.append(rows)

    async def go():
        found = PeriodicWriter[int](write)
        await found.add(1, 2)
        assert written == []
        monkeypatch.setattr(resumable, "WRITE_EVERY_S", -1.0)
        await found.add(3)
        await found.flush()
        assert written == [[1, 2, 3]]

    asyncio.run(go())


def test_what_hangs_ends_with_its_executor():
    closed = threading.Event()

    class Hangs:
        def close(self):
            closed.set()

    async def go():
        with daemon_threads(cast(Executor, Hangs())) as call:
            assert await call(lambda word: word * 2, "two") == "twotwo"
            async with asyncio.timeout(0.05):
                await call(closed.wait)

    with pytest.raises(TimeoutError):
        asyncio.run(go())
    assert closed.is_set()
