"""The service as a child process of a run."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self, TypedDict, Unpack

from rtl_core.errors import InfrastructureError


class ServiceOptions(TypedDict, total=False):
    """How the service runs, where that is not by default. See `settings.Settings`."""

    threads: int | None
    sampling_processes: int | None
    deterministic: bool
    dtype: str
    device: str
    max_context: int | None
    idle_s: float | None
    housekeeping_s: float | None


_FLAGS = {"idle_s": "idle-seconds", "housekeeping_s": "housekeeping-seconds"}
"""Options whose flag has another name."""


class LocalTinker:
    """Starts `python -m rtl_core.localtinker` on a loopback port (0: a free one) and waits until it answers.

    `base_url` and `api_key` are what a `tinker.ServiceClient` needs. The child ends with `stop`, at the end of the
    `with` block, or when this process dies in any way. Started again over the same `state`, it serves the old
    tinker:// paths and samplers; with the same `port` and `api_key` too, clients of before go on. Its log is
    `state`/service.log.

    Raises InfrastructureError with the end of that log when the service does not come up within `timeout_s` seconds.
    """

    def __init__(
        self,
        models: Mapping[str, Path],
        state: Path,
        *,
        port: int = 0,
        api_key: str | None = None,
        timeout_s: float = 300.0,
        **options: Unpack[ServiceOptions],
    ) -> None:
        self.api_key = api_key or f"tml-local-{secrets.token_hex(16)}"
        self.state = Path(state)
        self.state.mkdir(parents=True, exist_ok=True)
        self.log_path = self.state / "service.log"
        command = [sys.executable, "-m", "rtl_core.localtinker", "--state", str(self.state), "--die-with-parent"]
        for name, path in models.items():
            command += ["--model", f"{name}={path}"]
        command += ["--port", str(port)]
        for name, value in options.items():
            flag = "--" + _FLAGS.get(name, name).replace("_", "-")
            if value is True:
                command.append(flag)
            elif value is not None and value is not False:
                command += [flag, str(value)]
        environment = {
            **os.environ,
            "TINKER_API_KEY": self.api_key,
            "OMP_WAIT_POLICY": "passive",
            "GOMP_SPINCOUNT": "0",
        }
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        try:
            self.base_url = self._wait_until_ready(timeout_s)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.base_url.rsplit(":", 1)[1])

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def environment(self) -> dict[str, str]:
        """The variables that point an SDK client in another process at this service."""
        return {"TINKER_BASE_URL": self.base_url, "TINKER_API_KEY": self.api_key, "TINKER_TELEMETRY": "0"}

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the service: politely, then by force. Safe to call twice."""
        if self.alive:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._close_pipes()

    def kill(self) -> None:
        """End the service at once, as a crash would."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _wait_until_ready(self, timeout_s: float) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            readable, _, _ = select.select([stdout], [], [], 0.2)
            if readable:
                line = stdout.readline()
                if line:
                    return json.loads(line)["base_url"]
            if not self.alive:
                raise InfrastructureError(f"the local Tinker service ended at once:\n{self._log_tail()}")
        raise InfrastructureError(
            f"the local Tinker service was not ready after {timeout_s:.0f} s", f"its log is {self.log_path}"
        )

    def _log_tail(self, lines: int = 15) -> str:
        text = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(text[-lines:])

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
