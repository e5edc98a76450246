"""Steps as a pipeline: the next ones are prepared (sampled, graded, scored) while one is trained, a bounded number ahead.

With `ahead` n, item i is prepared from when item i − n − 1 is finished, and items are finished strictly in order, one at a time. So
whatever item i is prepared from, at most n finishes come between. With n = 0 nothing overlaps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Reason = TypeVar("Reason")


async def in_order(
    items: Iterable[Item],
    *,
    prepare: Callable[[Item], Awaitable[object]],
    finish: Callable[[Item], Awaitable[object]],
    after: Callable[[Item], Awaitable[object]],
    stop: Callable[[int], Reason | None],
    ahead: int,
) -> Reason | None:
    """Prepare and finish all items, and do what comes after each; or stop when `stop` says why.

    Args:
        prepare: may run for `ahead` + 1 items at once.
        finish: runs for one item after the other.
        after: follows each `finish`. With `ahead` 0 it ends before the next item is begun.
        stop: asked before each item is begun, with the number of those that are under way: why no more should begin, or None.

    Returns:
        The reason of `stop`: what was being prepared is prepared to its end (it is paid for), and not finished. None at the end.

    Raises:
        The first error in the order of the items; what was being prepared of later ones is cancelled.
    """
    waiting = deque(items)
    under_way: deque[tuple[Item, asyncio.Future[object]]] = deque()
    reason: Reason | None = None

    def begin() -> None:
        nonlocal reason
        while waiting and reason is None and len(under_way) <= ahead:
            reason = stop(len(under_way))
            if reason is None:
                item = waiting.popleft()
                under_way.append((item, asyncio.ensure_future(prepare(item))))

    try:
        begin()
        while under_way and reason is None:
            item, prepared = under_way[0]
            await prepared
            await finish(item)
            under_way.popleft()
            if ahead:
                begin()
            await after(item)
            begin()
        await asyncio.gather(*(prepared for _, prepared in under_way))
    except BaseException:
        for _, prepared in under_way:
            prepared.cancel()
        await asyncio.gather(*(prepared for _, prepared in under_way), return_exceptions=True)
        raise
    return reason
