"""Work side by side: several things at once, and steps as a pipeline, of which the next are prepared while one is trained."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

Found = TypeVar("Found")
Item = TypeVar("Item")
Prepared = TypeVar("Prepared")
Reason = TypeVar("Reason")


async def all_of(work: Iterable[Coroutine[Any, Any, Found]]) -> list[Found]:
    """What all return, awaited at once; the first failure cancels the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        # The user's message is in the error, not in the group around it.
        raise first from None
    return [task.result() for task in tasks]


async def in_order(
    items: Iterable[Item],
    *,
    prepare: Callable[[Item], Awaitable[Prepared]],
    finish: Callable[[Prepared], Awaitable[object]],
    after: Callable[[Prepared], Awaitable[object]],
    stop: Callable[[int], Reason | None],
    ahead: int,
) -> Reason | None:
    """Prepare and finish all items, and do what comes after each; or stop when `stop` says why.

    Item i is prepared from when item i − n − 1 is finished (n is `ahead`), and items are finished strictly in order, one at a time.
    So whatever item i is prepared from, at most n finishes come between. With n = 0 nothing overlaps.

    Args:
        prepare: may run for `ahead` + 1 items at once; what it returns goes to `finish` and `after`.
        finish: runs for one item after the other.
        after: follows each `finish`. With `ahead` 0 it ends before the next item is begun.
        stop: asked before each item is begun, with the number of those that are under way: why no more should begin, or None.

    Returns:
        The reason of `stop`: what was being prepared is prepared to its end (it is paid for), and not finished. None at the end.

    Raises:
        The first error in the order of the items; what was being prepared of later ones is cancelled.
    """
    waiting = deque(items)
    under_way: deque[asyncio.Future[Prepared]] = deque()
    reason: Reason | None = None

    def begin() -> None:
        nonlocal reason
        while waiting and reason is None and len(under_way) <= ahead:
            reason = stop(len(under_way))
            if reason is None:
                under_way.append(asyncio.ensure_future(prepare(waiting.popleft())))

    try:
        begin()
        while under_way and reason is None:
            prepared = await under_way[0]
            await finish(prepared)
            under_way.popleft()
            if ahead:
                begin()
            await after(prepared)
            begin()
        await asyncio.gather(*under_way)
    except BaseException:
        for preparing in under_way:
            preparing.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        raise
    return reason
