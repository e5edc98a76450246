"""The service, and the bridge, as child processes of a run, optionally restarted at the same address whenever they
end by themselves."""

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
from typing import Any, ClassVar, Self

from pydantic import BaseModel

from localtinker.errors import StartError
from localtinker.settings import UPSTREAM_KEY, BridgeSettings, Settings

LONGEST_PAUSE_S = 30.0


class Child:
    """A server as a child process, `python -m MODULE SETTINGS`, and waits until it is ready.

    A `tinker.ServiceClient` needs `base_url` and `api_key`. The child ends with `stop`, at the end of the
    `with` block, or when this process dies. It logs to `log_path`.

    Raises StartError with the end of that log when the server is not ready within `timeout_s` seconds.
    """

    MODULE: ClassVar[str]
    TITLE: ClassVar[str]
    """The server's name in messages."""

    def __init__(
        self,
        settings: BaseModel,
        log_path: Path,
        *,
        api_key: str | None,
        timeout_s: float,
        upstream_key: str | None = None,
    ) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._upstream_key = upstream_key or ""
        self.api_key = api_key or f"tml-local-{secrets.token_hex(16)}"
        self.log_path = log_path
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._start()

    def _start(self) -> None:
        keys = {"TINKER_API_KEY": self.api_key, UPSTREAM_KEY: self._upstream_key}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.MODULE, self._settings.model_dump_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **keys},
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
        """Terminate the child, and kill it after `timeout_s`. Safe to call twice."""
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """Kill the child, like a crash."""
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
                lines = [f"{self.TITLE} failed to start:", *log[-15:]]
                raise StartError("\n".join(lines))
        raise StartError(
            f"{self.TITLE} was not ready after {self._timeout_s:.0f} s",
            f"its log is {self.log_path}",
        )

    def _reap(self) -> None:
        with self._process:  # closes its pipes and waits for its end
            pass


class LocalTinker(Child):
    """The service of this package as a child process, on a loopback port (0: a free one).

    `options` are further fields of `Settings`; None means the default. Restarted with the same `state`, it
    serves the same tinker:// paths and samplers; with the same `port` and `api_key` too, existing clients
    continue. It logs to `state`/service.log.
    """

    MODULE = "localtinker"
    TITLE = "the embedded Tinker service"

    def __init__(
        self,
        models: Mapping[str, Path],
        state: Path,
        *,
        api_key: str | None = None,
        timeout_s: float = 300.0,
        **options: Any,
    ) -> None:
        options = {name: value for name, value in options.items() if value is not None}
        settings = Settings(models=dict(models), state=state, **options)
        self.state = settings.state
        log_path = self.state / "service.log"
        super().__init__(settings, log_path, api_key=api_key, timeout_s=timeout_s)


class Bridge(Child):
    """The bridge to an engine at `upstream`, on a loopback port, with a random key.

    `upstream_key` is the engine's own key, if it has one; `options` are further fields of `BridgeSettings`. Restarted
    with the same `port` and `api_key`, existing clients continue. An engine that starts or trains may take 300 s
    to tell what it is.
    """

    MODULE = "localtinker.bridge"
    TITLE = "the bridge to the engine"

    def __init__(
        self,
        upstream: str,
        log_path: Path,
        *,
        api_key: str | None = None,
        upstream_key: str | None = None,
        timeout_s: float = 330.0,
        **options: Any,
    ) -> None:
        settings = BridgeSettings(upstream=upstream, **options)
        super().__init__(
            settings, log_path, api_key=api_key, timeout_s=timeout_s, upstream_key=upstream_key
        )


class _Kept(Child):
    """A child that is restarted after a crash, at the same address and with the same key.

    Takes the arguments of the child, and `on_restart`, which is called from a thread with a message for the user. If
    the child cannot start (such as with a full disk), the reason is reported and the start retried, as long as the run
    lives.
    """

    def __init__(
        self, *arguments: Any, on_restart: Callable[[str], None], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._on_restart = on_restart
        self.restarts = 0
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="child-watch", daemon=True)
        self._watcher.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """Stop the child without a restart. The timeout is short because a cancelled run must end soon,
        and saved data survives a kill."""
        self._stopping.set()
        self._watcher.join(timeout_s)
        while self._watcher.is_alive():  # a start is in progress, which may take minutes
            self._process.kill()
            self._watcher.join(0.1)
        super().stop(timeout_s)

    def kill(self) -> None:
        """Kill the child from any thread. `stop` must still be called."""
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
                self._on_restart(f"{self.TITLE} cannot restart, {attempt}: {reason}")
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                pause = 1.0
                self.restarts += 1
                self._on_restart(f"{self.TITLE} had ended and was restarted")


class KeptTinker(_Kept, LocalTinker):
    """A `LocalTinker` that is restarted after a crash.

    The SDK retries failed requests, so clients of the old process continue with the new one: same address,
    key and state folder. Saved weights and samplers survive. A training client's unsaved weights are lost;
    the next train step notices and starts from the last saved state.
    """


class KeptBridge(_Kept, Bridge):
    """A `Bridge` that is restarted after a crash. What it knew of open clients it asks the engine again."""
