"""Writes the report of a running run at intervals, in a child process of the lowest priority, so that no
step waits for it.

Nothing depends on it: at its end the run writes the report itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rtl_core.history.connection import own_readers
from rtl_core.types.tell import Tell

EVERY_S = 300.0
"""Seconds between two reports."""
REST = 50
"""The pause after a report is at least this many times as long as writing it took."""
PROGRAM = """\
import os, sys
from pathlib import Path

os.nice(19)
from rtl_core.history.store import History
from rtl_core.reporting.report import write_report

history, run, path = sys.argv[1:]
write_report(History(Path(history), read_only=True), [run], Path(path))
"""


class LiveReport:
    """Writes the report of `run` to `path`, after a step and at most every `every_s` seconds; `tell`
    receives failures."""

    def __init__(
        self,
        history: Path,
        run: str,
        path: Path,
        tell: Tell,
        every_s: float = EVERY_S,
    ) -> None:
        self._command = [
            sys.executable,
            "-c",
            PROGRAM,
            str(history.resolve()),
            run,
            str(path.resolve()),
        ]
        self._path = path
        self._tell = tell
        self._every_s = every_s
        self._due = time.monotonic() + every_s
        self._began = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as this object)

    def after_step(self) -> None:
        """Start a report if one is due; does not wait for it."""
        if self.running() or time.monotonic() < self._due:
            return
        self._stderr.seek(0)
        self._stderr.truncate()
        self._began = time.monotonic()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
            )
            own_readers.add(self._process.pid)
        except OSError as error:  # out of memory, or too many processes
            self._due = self._began + self._every_s
            self._tell(f"the live report could not be written: {error}")

    def running(self) -> bool:
        """Return whether a report is being written; once it has ended, set when the next one is due."""
        if self._process is None:
            return False
        code = self._process.poll()
        if code is None:
            return True
        self._forget()
        now = time.monotonic()
        self._due = now + max(self._every_s, REST * (now - self._began))
        if code:
            self._stderr.seek(0)
            lines = self._stderr.read().decode(errors="replace").strip().splitlines()
            self._tell(
                f"the live report could not be written: {lines[-1] if lines else f'exit code {code}'}"
            )
        return False

    def close(self) -> None:
        """Stop a report that is being written; the previous one stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()
        self._stderr.close()

    def _forget(self) -> None:
        """Remove what the ended process left if it was killed, such as by the kernel for its memory."""
        assert self._process is not None
        own_readers.discard(self._process.pid)
        self._path.with_name(f".{self._path.name}.{self._process.pid}.part").unlink(
            missing_ok=True
        )
        self._process = None
