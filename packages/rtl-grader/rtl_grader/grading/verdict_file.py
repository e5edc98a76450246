"""A file of verdict records, one JSON object per line: the output of `rtl-grader grade`, and the memory of
`rtl-grader serve-grader`.

A line is written to the operating system before its record is used, so a killed process loses at most the
line that it was writing, which the next process drops.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from rtl_grader.errors import InfrastructureError, ProblemError
from rtl_grader.files import replacing
from rtl_grader.grading.answer_file import AnswerLine
from rtl_grader.grading.verdict_record import Record, sealed
from rtl_grader.types.verdict import Outcome

_BEGINNING = b'{"id":'


class VerdictFile:
    """Records by key. Memory holds only keys and file offsets, about 200 bytes for each record. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Failed gradings and records of earlier versions, which lack fields, have
        no key here.

        Raises ProblemError if another process has it open, it holds anything but verdicts, or it cannot be opened.
        """
        self.path = path
        self._regular = path.is_file() or not path.exists()
        self._open()

    def _open(self) -> None:
        self.unusable = 0
        """Number of records without a key."""
        self.passing: dict[str, float] = {}
        """Problem fingerprint -> most CPU seconds of a passing answer, for `KnownGood`."""
        self._places: dict[bytes, tuple[int, int]] = {}
        self._end = 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b" if self._regular else "ab", buffering=0)
            if self._regular:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._read()
                self._file.truncate(self._end)
        except BlockingIOError as error:
            raise ProblemError(
                f"another process has {self.path} open", "name another file with --output"
            ) from error
        except OSError as error:
            raise ProblemError(
                f"cannot open the verdicts file {self.path}: {error.strerror}", "check the path"
            ) from error

    def get(self, key: str) -> Record | None:
        """Return the record with this key, or None."""
        place = self._places.get(bytes.fromhex(key))
        if place is None:
            return None
        offset, length = place
        return json.loads(os.pread(self._file.fileno(), length, offset))

    def add(self, record: Record) -> None:
        """Append a record. Raises InfrastructureError if it cannot be written."""
        line = json.dumps(record).encode() + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError("No space left on device")
        except OSError as error:
            if self._regular:
                self._file.truncate(self._end)
            words = f"{self.path} cannot be written: {error.strerror or error}"
            raise InfrastructureError(words, "is the disk full?") from error
        self._index(record, len(line))

    def replace(self, records: Iterable[Record]) -> None:
        """Replace the contents atomically by the given records. A pipe stays as it is. ProblemError if it
        cannot be written."""
        if not self._regular:
            return
        target = self.path.resolve()
        try:
            with replacing(target) as fresh:
                with fresh.open("w", encoding="utf-8") as file:
                    file.writelines(json.dumps(record) + "\n" for record in records)
                shutil.copymode(target, fresh)
        except OSError as error:
            raise ProblemError(
                f"cannot write the verdicts file {target}: {error.strerror}", "check its disk"
            ) from error
        self._file.close()
        self._open()

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._places)

    def _read(self) -> None:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                is_whole = line.endswith(b"\n")
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    record = None
                    if not is_whole and line[: len(_BEGINNING)] == _BEGINNING[: len(line)]:
                        break  # by a kill
                try:
                    if not (isinstance(record, dict) and {"id", "outcome"} <= record.keys()):
                        raise ValueError
                    if is_whole:
                        self._index(record, len(line))
                except (ValueError, KeyError, TypeError) as error:  # such as an edited key
                    raise ProblemError(
                        f"{self.path}:{number}: not a verdict, so this file is not overwritten",
                        "name another file",
                    ) from error

    def _index(self, record: Record, length: int) -> None:
        if record["outcome"] == Outcome.INFRASTRUCTURE_ERROR or "graded" not in record:
            self.unusable += 1
        else:
            if self._regular:  # nothing can be read back from a pipe
                self._places[bytes.fromhex(record["key"])] = self._end, length
            if record["passed"]:
                problem = record["graded"]["problem"]
                self.passing[problem] = max(record["cpu_s"], self.passing.get(problem, 0.0))
        self._end += length


def named(record: Record, line: AnswerLine) -> Record:
    """The record with the id and sample of an answer, since equal answers share one record."""
    place = {"id": line.problem.id, "sample": line.sample}
    if place.items() <= record.items():
        return record
    return sealed({**record, **place})
