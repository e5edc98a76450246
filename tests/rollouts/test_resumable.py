"""Commands that may be stopped and repeated: concurrency, writes, and an end that nothing delays."""

import asyncio
import threading
from contextlib import closing
from types import SimpleNamespace
from typing import cast

import pytest

from rtl_core.run.conversations import ConversationPool
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.pool import GraderPool
from rtl_grader.work import Tally, process_all


def test_items_are_taken_in_order_as_workers_become_free():
    started: list[int] = []
    running = most = 0

    async def work(item):
        nonlocal running, most
        started.append(item)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    tally = Tally("items", 12, 2)
    asyncio.run(process_all(iter(range(5)), work, tally, concurrency=3, size=lambda _: 2))
    assert started == [0, 1, 2, 3, 4]
    assert most == 3
    assert tally.done == 12


def test_the_first_error_cancels_the_others_and_is_raised_unchanged():
    ended: list[str] = []

    async def work(item):
        if item == "bad":
            raise ValueError("as it is")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(item)

    with pytest.raises(ValueError, match="as it is"):
        asyncio.run(
            process_all(["good", "bad", "never"], work, Tally("items", 3), concurrency=2)
        )
    assert ended == ["good"]


def test_a_hanging_call_ends_with_its_executor():
    closed = threading.Event()

    grader = SimpleNamespace(close=lambda: None, executor=SimpleNamespace(close=closed.set))

    async def go():
        assert await pool.call(lambda word: word * 2, "two") == "twotwo"
        async with asyncio.timeout(0.05):
            await pool.call(closed.wait)

    with closing(GraderPool(cast(Grader, grader), 2)) as pool, pytest.raises(TimeoutError):
        asyncio.run(go())
    assert closed.is_set()


def test_a_conversation_that_waits_delays_no_interrupt():
    pool = ConversationPool(asyncio.Semaphore(1), None)

    async def go():
        assert await pool.run(lambda: "said") == "said"
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 // 0)
        async with asyncio.timeout(0.05):
            await pool.run(threading.Event().wait)

    with pytest.raises(TimeoutError):
        asyncio.run(go())
