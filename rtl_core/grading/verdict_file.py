"""The output of `rtl-distill grade`: one verdict per line, written as gradings finish and resumed by the next call.

During grading, lines are in order of completion; each has its problem's `id` and `sample`. After the last grading the file is
sorted into the answers' order. Every line is flushed immediately, so a killed process leaves at most one broken line, the
last, which the next call drops.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rtl_core.errors import ProblemError
from rtl_core.grading.verdict_record import sealed
from rtl_core.types.verdict import Outcome

_BEGINNING = b'{"id":'


class Place(NamedTuple):
    """Identifies the stored verdict of an answer."""

    id: str
    sample: int
    key: str
    """See `answer_key` (verdict_record.py)."""


class VerdictFile:
    """An open verdict file; only one process may write it."""

    def __init__(self, path: Path, places: Sequence[Place]) -> None:
        """Open the file, keep its verdicts on `places` and drop the other lines, `replaced` in number: infrastructure errors,
        and verdicts on other answers or under other settings.

        Raises ProblemError if the file holds anything but verdicts, another process writes it, or it cannot be read or written.
        """
        self.path = path
        self.records: dict[int, dict[str, Any]] = {}
        """Index in `places` -> verdict, in the order of the lines."""
        self.replaced = 0
        self._last = len(places)
        self._regular = path.is_file() or not path.exists()
        with _as_problem_error(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")
            if self._regular:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._resume(_read(path), places)
                if self.records:
                    self._write_in_order()
                else:
                    self._file.truncate(0)
        self.taken_up = len(self.records)

    def in_words(self) -> str:
        """Summary of what is reused and replaced of an earlier call; empty if nothing is."""
        parts = [f"{self.taken_up} verdicts reused from {self.path}"] if self.taken_up else []
        if self.replaced:
            parts.append(f"{self.replaced} lines replaced (failed gradings, other answers or other settings)")
        return "; ".join(parts)

    def add(self, index: int, record: dict[str, Any]) -> None:
        """Append the verdict on the answer `index`."""
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        self.records[index] = record

    def close(self) -> None:
        """Close the file; sort it into the answers' order if every answer has a verdict."""
        with _as_problem_error(self.path):
            if self._regular and len(self.records) == self._last and list(self.records) != sorted(self.records):
                self._write_in_order()
            self._file.close()

    def _resume(self, stored: list[dict[str, Any]], places: Sequence[Place]) -> None:
        usable: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        for record in stored:
            if record["outcome"] != Outcome.INFRASTRUCTURE_ERROR and "key" in record:
                usable.setdefault((record["id"], record["key"]), {}).setdefault(record.get("sample", 0), record)
        found: dict[int, dict[str, Any]] = {}
        for index, place in enumerate(places):
            by_sample = usable.get((place.id, place.key), {})
            if place.sample in by_sample:
                found[index] = by_sample.pop(place.sample)
        for index, place in enumerate(places):
            # The same answer with another sample number: lines before it were added or removed.
            others = usable.get((place.id, place.key))
            if index not in found and others:
                _, record = others.popitem()
                found[index] = sealed({**record, "sample": place.sample})
        self.records = dict(sorted(found.items()))
        self.replaced = len(stored) - len(found)

    def _write_in_order(self) -> None:
        """Replace the file atomically by a sorted one."""
        target = self.path.resolve()
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        fresh = os.fdopen(handle, "w", encoding="utf-8")
        try:
            fcntl.flock(fresh, fcntl.LOCK_EX)
            fresh.writelines(json.dumps(self.records[index]) + "\n" for index in sorted(self.records))
            fresh.flush()
            shutil.copymode(target, name)
            os.replace(name, target)
        except BaseException:
            fresh.close()
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        self._file.close()
        self._file = fresh


def _read(path: Path) -> list[dict[str, Any]]:
    records = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                if not file.read(1) and (line.startswith(_BEGINNING) or _BEGINNING.startswith(line)):
                    break  # cut off by a kill
                record = None
            if not (isinstance(record, dict) and {"id", "outcome"} <= record.keys()):
                raise ProblemError(
                    f"{path}:{number}: not a verdict, so this file is not overwritten", "choose another output file"
                )
            records.append(record)
    return records


@contextlib.contextmanager
def _as_problem_error(path: Path) -> Iterator[None]:
    try:
        yield
    except BlockingIOError as error:
        raise ProblemError(f"another process writes {path}", "choose another output file") from error
    except OSError as error:
        raise ProblemError(f"cannot write the verdicts file {path}: {error.strerror}", "check the path") from error
