"""The SDK session of a backend, replaced when the service has ended it.

Clients of an ended session fail permanently, and the SDK does not open a new one. Such an error therefore
marks the session as over (`using`), and the next request opens a new one (`current`). Requests that are
still running on the old session may have been accepted; its client is closed only after they end, because
closing it earlier would leave them waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from typing import Any, Self

import tinker

from rtl_core.backend.base import Weights
from rtl_core.backend.tinker.connect import tinker_session
from rtl_core.backend.tinker.faults import SessionLostError, sdk_errors
from rtl_core.backend.tinker.marks import has_console
from rtl_core.backend.tinker.pauses import Pauses
from rtl_core.backend.tinker.services import Endpoint
from rtl_core.backend.tinker.training import TinkerTrainer
from rtl_core.types.tell import Tell


class OpenSession:
    """A service client and its sampling clients."""

    def __init__(self, service: tinker.ServiceClient, closing: AsyncExitStack) -> None:
        self.service = service
        self.samplers: dict[Weights, tinker.SamplingClient] = {}
        self.newest: set[str] = set()
        """Paths of the sampler weights that are the newest of a trainer of this session."""
        self.spare: tuple[str | None, TinkerTrainer] | None = None
        """A trainer that was opened only to sample its weights, and the state it was opened from."""
        self.opening = asyncio.Lock()
        """Held while a sampling client is opened."""
        self.closing = closing
        self.users = 0
        self.over = False

    @contextmanager
    def using(
        self, errors: Callable[[], AbstractContextManager[None]] = sdk_errors
    ) -> Iterator[None]:
        """Context for requests through this session; `errors` translates SDK errors into ours. Raises
        SessionLostError if the session is over; its clients, such as a trainer, must then be opened
        again."""
        if self.over:
            raise SessionLostError("the Tinker service ended the session")
        self.users += 1
        try:
            with errors():
                yield
        except SessionLostError:
            self.over = True
            raise
        finally:
            self.users -= 1


class Sessions:
    """A service and the consecutive sessions that a backend opens on it. `tell` receives a line for each
    but the first."""

    def __init__(self, endpoint: Endpoint, pauses: Pauses, tell: Tell) -> None:
        self.endpoint = endpoint
        self.pauses = pauses
        self.tell = tell
        self.rest = endpoint.rest()
        self._opened: list[OpenSession] = []
        self._lock = asyncio.Lock()

    async def current(self) -> OpenSession:
        """Return the current session. Call `using` before awaiting anything else."""
        with sdk_errors():
            return await self.pauses.retry_unpaid(self._current)

    async def _current(self) -> OpenSession:
        async with self._lock:
            if not self._opened or self._opened[-1].over:
                async with AsyncExitStack() as stack:
                    service = await stack.enter_async_context(tinker_session(self.endpoint))
                    # The SDK opens the session on first use, which blocks.
                    await asyncio.to_thread(lambda: service.holder)
                    self._opened.append(OpenSession(service, stack.pop_all()))
                if has_console(self.endpoint.base_url):
                    self.tell(f"the session in Tinker's console: {service.get_console_url()}")
                if len(self._opened) > 1:
                    self.tell("Tinker ended the session; the run goes on in a new one")
            for old in [old for old in self._opened[:-1] if not old.users]:
                self._opened.remove(old)
                await old.closing.aclose()
            return self._opened[-1]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        for session in self._opened:
            await session.closing.__aexit__(*error)
