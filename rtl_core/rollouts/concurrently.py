"""The same work on many things side by side, ending with the first error itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")


async def for_each(work: Callable[[Item], Awaitable[object]], items: Iterable[Item]) -> None:
    """Await `work(item)` for all items at once; the first failure cancels the others and is raised as it is."""

    async def one(item: Item) -> None:
        await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(one(item))
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        # The user's message is in the error, not in the group around it.
        raise first from None


async def beside(main: Coroutine[Any, Any, Found], other: Coroutine[Any, Any, object]) -> Found:
    """What `main` returns, once both have ended; the first failure cancels the other and is raised as it is."""
    found: list[Found] = []

    async def first() -> None:
        found.append(await main)

    await for_each(lambda work: work, [first(), other])
    return found[0]
