"""The verdicts of a grading service: sealed records, one a line, each key once, in a file that outlives the process."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from rtl_core.errors import ConfigError, InfrastructureError, ProblemError


class VerdictStore:
    """Records by key. Memory holds a key and a place for each, about 200 bytes; the records stay in the file.

    A line is handed to the operating system before anybody is told of it, so a killed process loses at most the line that it was
    writing, which the next one drops. For one thread.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it. Raises ConfigError where another process has it, ProblemError for a file of something else."""
        self.path = path
        self.passing: dict[str, float] = {}
        """Fingerprint of a problem -> most CPU seconds of an answer that passed, as `KnownGood` takes it."""
        self._places: dict[bytes, tuple[int, int]] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"another process has {path} open", "name another file with --output") from error
        except OSError as error:
            raise ProblemError(f"cannot open the verdicts file {path}: {error.strerror}", "check the path") from error
        self._end = 0
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break  # cut off by a kill
                self._note(number, line)
        self._file.truncate(self._end)

    def get(self, key: str) -> dict[str, Any] | None:
        """The record of that key."""
        place = self._places.get(bytes.fromhex(key))
        return None if place is None else json.loads(os.pread(self._file.fileno(), place[1], place[0]))

    def add(self, record: dict[str, Any]) -> None:
        """Writes a record whose key is new. Raises InfrastructureError where the disk does not take it."""
        line = json.dumps(record).encode() + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError("No space left on device")
        except OSError as error:
            self._file.truncate(self._end)
            raise InfrastructureError(f"{self.path} cannot be written: {error}", "is the disk full?") from error
        self._place(record, len(line))

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._places)

    def _note(self, number: int, line: bytes) -> None:
        try:
            self._place(json.loads(line), len(line))
        except (ValueError, KeyError, TypeError) as error:
            raise ProblemError(
                f"{self.path}:{number}: is no verdict, so nothing is added to this file", "name another file"
            ) from error

    def _place(self, record: dict[str, Any], length: int) -> None:
        self._places[bytes.fromhex(record["key"])] = self._end, length
        self._end += length
        if record["passed"]:
            problem = record["graded"]["problem"]
            self.passing[problem] = max(record["cpu_s"], self.passing.get(problem, 0.0))
