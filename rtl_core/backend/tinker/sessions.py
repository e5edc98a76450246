"""The session of the SDK that a backend works through, and a new one when the service has ended it.

Clients that were made on an ended session fail for ever, and the SDK makes no new one. So whoever meets such an error marks the session
as over (`using`), and whoever comes next gets a new one (`present`). What still runs on the old one ends there by itself: its
requests may have been accepted, and closing the SDK's client under them would leave them waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from typing import Any, Self

import tinker

from rtl_core.backend.base import Weights
from rtl_core.backend.tinker.connect import Endpoint, tinker_session
from rtl_core.backend.tinker.faults import SessionLostError, translated
from rtl_core.backend.tinker.pauses import Pauses


class OpenSession:
    """A service client and the sampling clients that were made on it."""

    def __init__(self, service: tinker.ServiceClient, closing: AsyncExitStack) -> None:
        self.service = service
        self.samplers: dict[Weights, tinker.SamplingClient] = {}
        self.opening = asyncio.Lock()
        """Held by whoever opens a sampling client."""
        self.closing = closing
        self.users = 0
        self.over = False

    @contextmanager
    def using(self, border: Callable[[], AbstractContextManager[None]] = translated) -> Iterator[None]:
        """For requests through this session; `border` translates SDK errors into ours. A session that is over refuses at once: what
        was made on it, such as a trainer, is to be made anew."""
        if self.over:
            raise SessionLostError("the Tinker service had ended the session")
        self.users += 1
        try:
            with border():
                yield
        except SessionLostError:
            self.over = True
            raise
        finally:
            self.users -= 1


class Sessions:
    """A service, and the sessions that a backend opens on it one after the other; `tell` hears of each but the first."""

    def __init__(self, endpoint: Endpoint, pauses: Pauses, tell: Callable[[str], None]) -> None:
        self.endpoint = endpoint
        self.pauses = pauses
        self.tell = tell
        self.rest = tinker.RestClient(base_url=endpoint.base_url, api_key=endpoint.api_key)
        self._opened: list[OpenSession] = []
        self._lock = asyncio.Lock()

    async def present(self) -> OpenSession:
        """The session to make requests through; to be used (`using`) before anything else is awaited."""
        with translated():
            return await self.pauses.when_paid(self._present)

    async def _present(self) -> OpenSession:
        async with self._lock:
            if not self._opened or self._opened[-1].over:
                await self._open()
            for old in [old for old in self._opened[:-1] if not old.users]:
                self._opened.remove(old)
                await old.closing.aclose()
            return self._opened[-1]

    async def _open(self) -> None:
        async with AsyncExitStack() as stack:
            service = await stack.enter_async_context(tinker_session(self.endpoint))
            # The SDK makes the session when it is first needed, and blocks whoever needs it.
            await asyncio.to_thread(lambda: service.holder)
            session = OpenSession(service, stack.pop_all())
        if self._opened:
            self.tell("Tinker had ended the session; the run goes on in a new one")
        self._opened.append(session)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        for session in self._opened:
            await session.closing.__aexit__(*error)
