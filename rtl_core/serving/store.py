"""Stores the verdicts of a grading service in a file: sealed records, one per line, each key once."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from rtl_core.errors import ConfigError, InfrastructureError, ProblemError


class VerdictStore:
    """Records by key. Memory holds only keys and file offsets, about 200 bytes for each record. Not thread-safe.

    A line is written to the operating system before its record is returned to a client, so a killed process loses at most the
    line that it was writing, which the next process drops.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises ConfigError if another process has it open, ProblemError if it holds anything else."""
        self.path = path
        self.passing: dict[str, float] = {}
        """Problem fingerprint -> most CPU seconds of a passing answer, for `KnownGood`."""
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
                try:
                    self._index(json.loads(line), len(line))
                except (ValueError, KeyError, TypeError) as error:
                    raise ProblemError(
                        f"{path}:{number}: not a verdict, so nothing is added to this file", "name another file"
                    ) from error
        self._file.truncate(self._end)

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the record with this key, or None."""
        place = self._places.get(bytes.fromhex(key))
        return None if place is None else json.loads(os.pread(self._file.fileno(), place[1], place[0]))

    def add(self, record: dict[str, Any]) -> None:
        """Append a record with a new key. Raises InfrastructureError if it cannot be written."""
        line = json.dumps(record).encode() + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError("No space left on device")
        except OSError as error:
            self._file.truncate(self._end)
            raise InfrastructureError(f"{self.path} cannot be written: {error}", "is the disk full?") from error
        self._index(record, len(line))

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._places)

    def _index(self, record: dict[str, Any], length: int) -> None:
        self._places[bytes.fromhex(record["key"])] = self._end, length
        self._end += length
        if record["passed"]:
            problem = record["graded"]["problem"]
            self.passing[problem] = max(record["cpu_s"], self.passing.get(problem, 0.0))
