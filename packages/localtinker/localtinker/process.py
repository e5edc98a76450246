"""The service as a child process of a run, optionally restarted at the same address whenever it ends by itself."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from localtinker.errors import StartError
from localtinker.settings import Settings

LONGEST_PAUSE_S = 30.0


class LocalTinker:
    """Starts `python -m localtinker` on a loopback port (0: a free one) and waits until it is ready.

    A `tinker.ServiceClient` needs `base_url` and `api_key`. `options` are further fields of `Settings`;
    None means the default. The child ends with `stop`, at the end of the `with` block, or when this process
    dies. Restarted with the same `state`, it serves the same tinker:// paths and samplers; with the same
    `port` and `api_key` too, existing clients continue. It logs to `state`/service.log.

    Raises StartError with the end of that log when the service is not ready within `timeout_s` seconds.
    """

    def __init__(
        self,
        models: Mapping[str, Path],
        state: Path,
        *,
        port: int = 0,
        api_key: str | None = None,
        timeout_s: float = 300.0,
        **options: Any,
    ) -> None:
        options = {name: value for name, value in options.items() if value is not None}
        self._settings = Settings(models=dict(models), state=state, port=port, **options)
        self._timeout_s = timeout_s
        self.api_key = api_key or f"tml-local-{secrets.token_hex(16)}"
        self.state = self._settings.state
        self.state.mkdir(parents=True, exist_ok=True)
        self.log_path = self.state / "service.log"
        self._start()

    def _start(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "localtinker", self._settings.model_dump_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "TINKER_API_KEY": self.api_key},
            )
        try:
            self.base_url = self._wait_until_ready()
        except BaseException:
            self._process.kill()
            self._reap()
            raise
        self._settings = self._settings.model_copy(update={"port": self.port})

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.base_url.rsplit(":", 1)[1])

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self, timeout_s: float = 10.0) -> None:
        """Terminate the service, and kill it after `timeout_s`. Safe to call twice."""
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """Kill the service, like a crash."""
        self._process.kill()
        self._reap()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _wait_until_ready(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            readable, _, _ = select.select([stdout], [], [], 0.2)
            if readable and (line := stdout.readline()):
                return json.loads(line)["base_url"]
            if not self.alive:
                log = self.log_path.read_text(errors="replace").splitlines()
                lines = ["the local Tinker service failed to start:", *log[-15:]]
                raise StartError("\n".join(lines))
        raise StartError(
            f"the local Tinker service was not ready after {self._timeout_s:.0f} s",
            f"its log is {self.log_path}",
        )

    def _reap(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class KeptTinker(LocalTinker):
    """A `LocalTinker` that is restarted after a crash.

    The SDK retries failed requests, so clients of the old process continue with the new one: same address,
    key and state folder. Saved weights and samplers survive. A training client's unsaved weights are lost;
    the next train step notices and starts from the last saved state.

    `on_restart` is called from a thread with a message for the user. If the service cannot start (such as
    with a full disk), the reason is reported and the start retried, as long as the run lives.
    """

    def __init__(
        self,
        models: Mapping[str, Path],
        state: Path,
        *,
        on_restart: Callable[[str], None],
        **options: Any,
    ) -> None:
        super().__init__(models, state, **options)
        self._on_restart = on_restart
        self.restarts = 0
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="tinker-watch", daemon=True)
        self._watcher.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """Stop the service without a restart. The timeout is short because a cancelled run must end soon,
        and saved data survives a kill."""
        self._stopping.set()
        self._watcher.join(timeout_s)
        while self._watcher.is_alive():  # a start is in progress, which may take minutes
            self._process.kill()
            self._watcher.join(0.1)
        super().stop(timeout_s)

    def kill(self) -> None:
        """Kill the service from any thread. `stop` must still be called."""
        self._stopping.set()
        self._process.kill()

    def _watch(self) -> None:
        pause = 1.0
        while not self._stopping.wait(0.5):
            if self.alive:
                continue
            try:
                self._reap()
                self._start()
            except (StartError, OSError) as error:
                if self._stopping.is_set():
                    return
                reason = error.message if isinstance(error, StartError) else error
                attempt = f"next attempt in {pause:.0f} s"
                self._on_restart(
                    f"the embedded Tinker service cannot restart, {attempt}: {reason}"
                )
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                pause = 1.0
                self.restarts += 1
                self._on_restart("the embedded Tinker service had ended and was restarted")
