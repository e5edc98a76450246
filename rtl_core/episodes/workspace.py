"""The workspace of an episode: the files that a model reads and writes.

It is a mapping of paths to texts in this process. Each program runs on a copy of it, in a sandbox that ends
with the program (tools.py). So links, processes and files of a program are gone in the next call, nothing
is left when the episode ends or dies, and an episode is restored by repeating its recorded calls.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import PurePosixPath

from rtl_core.config.episode import Bounds
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem

DIRECTORIES = ("docs", "rtl", "verif", "rundir")
"""Directories that may contain files. `src`, which has the harness during grading, is not one of them."""
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]{1,200}")


class CallError(Exception):
    """A call cannot be carried out. The model gets the message as the result, and the episode continues."""


@dataclass
class Workspace:
    """Files by path, relative to the workspace."""

    files: dict[str, str]
    targets: tuple[str, ...]
    """The only files that are submitted."""
    bounds: Bounds
    written: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, problem: Problem, bounds: Bounds) -> Workspace:
        """A workspace with the problem's context. Neither the harness nor the golden answer is ever part of it."""
        return cls(dict(problem.context), problem.targets, bounds)

    def answer(self) -> Answer:
        """The files that are asked for and that the model wrote."""
        files = {path: self.files[path] for path in self.targets if path in self.written}
        return Answer(
            files=files, error=None if files else "no file that is asked for was written"
        )

    def listing(self, under: str = "") -> str:
        """A line for each file: path, size, and whether it is asked for."""
        whole = under.strip("/") in ("", ".", "code")
        inside = "" if whole else f"{self.path(under)}/"
        lines = []
        for path in sorted({*self.files, *self.targets}):
            if not path.startswith(inside):
                continue
            note = "not there yet"
            if path in self.files:
                note = f"{_size(self.files[path]):,} bytes"
            if path in self.targets:
                note += ", asked for"
            lines.append(f"{path}  ({note})")
        if not lines:
            raise CallError(self._missing(inside.rstrip("/")))
        return "\n".join(lines)

    def read(self, path: str, first: int = 1, last: int | None = None) -> str:
        """Lines `first` to `last` of a file, from 1."""
        path = self.existing(path)
        lines = self.files[path].splitlines(keepends=True)
        last = len(lines) if last is None else min(last, len(lines))
        if not 1 <= first <= max(last, 1):
            raise CallError(f"{path} has {len(lines)} lines: no lines {first} to {last}")
        selected, total = lines[first - 1 : last], len(lines)
        text = "".join(selected)
        head = f"{path}, lines {first} to {last} of {total}:\n"
        room = self.bounds.result_bytes - _size(head)
        if _size(text) <= room:
            return head + text
        # Whole lines, so that the next call can continue at the next line.
        n_fitting = sum(used <= room - 80 for used in accumulate(map(_size, selected)))
        if not n_fitting:
            return shortened(head + text, self.bounds.result_bytes)
        end = first + n_fitting - 1
        head = f"{path}, lines {first} to {end} of {total} (a result holds no more):\n"
        return head + "".join(selected[:n_fitting])

    def write(self, path: str, text: str) -> str:
        """Create a file or replace it whole."""
        path = self.path(path)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise CallError(
                f"the text is no UTF-8: character {error.start} is half of a surrogate pair"
            ) from error
        if "\0" in text:
            raise CallError("the text holds a NUL character, which no tool reads")
        if self._is_directory(path):
            raise CallError(f"{path} is a directory; name a file in it")
        for parent in map(str, PurePosixPath(path).parents):
            if parent in self.files:
                raise CallError(f"{parent} is a file, so nothing can lie in it")
        files = {**self.files, path: text}
        if sum(map(_size, files.values())) > self.bounds.workspace_bytes:
            raise CallError(
                f"the workspace would hold more than {self.bounds.workspace_bytes:,} bytes"
            )
        if len(files) > max(self.bounds.files, len(self.files)):
            raise CallError(f"the workspace would hold more than {self.bounds.files} files")
        self.files[path] = text
        self.written.add(path)
        n_lines = text.count("\n") + bool(text and not text.endswith("\n"))
        return f"{path}: {n_lines} lines written"

    def replace(self, path: str, old: str, new: str) -> str:
        """Replace the only occurrence of `old` in a file."""
        path = self.existing(path)
        text = self.files[path]
        if not old:
            raise CallError(f"{path} was left as it is: `old` is empty")
        count = text.count(old)
        if count != 1:
            why = "does not stand in it as written"
            if count:
                why = f"stands {count} times in it; add lines around it"
            raise CallError(f"{path} was left as it is: `old` {why}")
        line = text[: text.index(old)].count("\n") + 1
        self.write(path, text.replace(old, new))
        return f"{path}: replaced at line {line}"

    def existing(self, path: str) -> str:
        """The normalized path of an existing file."""
        path = self.path(path)
        if path not in self.files:
            raise CallError(self._missing(path))
        return path

    def path(self, path: str) -> str:
        """The normalized path in the workspace; `/code/rtl/a.sv` is `rtl/a.sv`. CallError for a path outside."""
        plain = posixpath.normpath(path.removeprefix("/code/")) if path else ""
        top = plain.split("/")[0]
        if top not in DIRECTORIES or not _PLAIN.fullmatch(plain):
            starts = ", ".join(DIRECTORIES)
            raise CallError(
                f"{path[:80]!a} is no path of the workspace; paths begin with {starts}"
            )
        return plain

    def _missing(self, path: str) -> str:
        if self._is_directory(path):
            return f"{path} is a directory; `list` shows its files"
        return f"there is no {path}; `list` shows all files"

    def _is_directory(self, path: str) -> bool:
        return path in DIRECTORIES or any(other.startswith(f"{path}/") for other in self.files)


def _size(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode())


def shortened(text: str, most_bytes: int) -> str:
    """The text, or its beginning and end around a line that says how much is missing."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most_bytes:
        return data.decode()
    half = max((most_bytes - 60) // 2, 1)
    head = data[:half].decode("utf-8", "ignore")
    tail = data[-half:].decode("utf-8", "ignore")
    return f"{head}\n[... {len(data) - 2 * half:,} bytes left out ...]\n{tail}"
