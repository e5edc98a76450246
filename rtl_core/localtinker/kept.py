"""The embedded service, kept running: started again at the same address whenever it ends by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self, Unpack
from urllib.parse import urlsplit

from rtl_core.errors import InfrastructureError
from rtl_core.localtinker.process import LocalTinker, ServiceOptions

LONGEST_PAUSE_S = 30.0


class KeptTinker:
    """A `LocalTinker` whose crash is a pause.

    The SDK repeats what it cannot deliver, so that a client of the old process goes on with the new one: same address, same
    key, same state folder. Saved weights and samplers are there again; what only the process knew, a training client's present
    weights, is gone, and the next train step finds that out and starts from the last saved state.

    `on_restart` is called, from a thread, with a line for the user. What keeps the service from starting (a full disk) is
    told, and tried again after a pause, for as long as the run lives.
    """

    def __init__(
        self,
        models: Mapping[str, Path],
        state: Path,
        *,
        on_restart: Callable[[str], None],
        poll_s: float = 0.5,
        **options: Unpack[ServiceOptions],
    ) -> None:
        self._start = lambda port, key: LocalTinker(models, state, port=port, api_key=key, **options)
        self._on_restart = on_restart
        self._poll_s = poll_s
        self._service: LocalTinker = self._start(0, None)
        self.base_url, self.api_key = self._service.base_url, self._service.api_key
        self.restarts = 0
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="tinker-watch", daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """Process id of the present service."""
        return self._service.pid

    def stop(self) -> None:
        """End the service for good."""
        self._stopping.set()
        self._watcher.join()
        # Nothing is lost by force: what is saved survives any end, and a cancelled run has seconds to be gone.
        self._service.stop(timeout_s=3.0)

    def kill(self) -> None:
        """End the service at once, from any thread; `stop` is still to be called."""
        self._stopping.set()
        self._service.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _watch(self) -> None:
        port = urlsplit(self.base_url).port or 0
        pause = 1.0
        while not self._stopping.wait(self._poll_s):
            if self._service.alive:
                continue
            try:
                self._service.stop()
                self._service = self._start(port, self.api_key)
            except InfrastructureError as error:
                self._on_restart(
                    f"the embedded Tinker service does not come up again, next try in {pause:.0f} s: {error.message}"
                )
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            pause = 1.0
            self.restarts += 1
            self._on_restart("the embedded Tinker service had ended; it was started again")
