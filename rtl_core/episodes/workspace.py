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
        return Answer(files=files, error=None if files else "no file that is asked for was written")

    def listing(self, under: str = "") -> str:
        """A line for each file: path, size, and whether it is asked for."""
        inside = "" if under.strip("/") in ("", ".", "code") else f"{self.path(under)}/"
        lines = []
        for path in sorted({*self.files, *self.targets}):
            if path.startswith(inside):
                size = (
                    f"{len(self.files[path].encode()):,} bytes"
                    if path in self.files
                    else "not there yet"
                )
                lines.append(f"{path}  ({size}{', asked for' if path in self.targets else ''})")
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
        text = "".join(lines[first - 1 : last])
        head = f"{path}, lines {first} to {last} of {len(lines)}:\n"
        room = self.bounds.result_bytes - len(head.encode())
        if len(text.encode()) <= room:
            return head + text
        # Whole lines, so that the next call can continue at the next line.
        kept = sum(
            used <= room - 80
            for used in accumulate(len(line.encode()) for line in lines[first - 1 : last])
        )
        if not kept:
            return shortened(head + text, self.bounds.result_bytes)
        shown = "".join(lines[first - 1 : first - 1 + kept])
        return f"{path}, lines {first} to {first + kept - 1} of {len(lines)} (a result holds no more):\n{shown}"

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
        if path in DIRECTORIES or any(other.startswith(f"{path}/") for other in self.files):
            raise CallError(f"{path} is a directory; name a file in it")
        if blocking := next(
            (parent for parent in map(str, PurePosixPath(path).parents) if parent in self.files),
            None,
        ):
            raise CallError(f"{blocking} is a file, so nothing can lie in it")
        rest = sum(len(held.encode()) for name, held in self.files.items() if name != path)
        if rest + len(text.encode()) > self.bounds.workspace_bytes:
            raise CallError(
                f"the workspace would hold more than {self.bounds.workspace_bytes:,} bytes"
            )
        if path not in self.files and len(self.files) >= self.bounds.files:
            raise CallError(f"the workspace would hold more than {self.bounds.files} files")
        self.files[path] = text
        self.written.add(path)
        return f"{path}: {text.count(chr(10)) + (not text.endswith(chr(10)) and bool(text))} lines written"

    def replace(self, path: str, old: str, new: str) -> str:
        """Replace the only occurrence of `old` in a file."""
        path = self.existing(path)
        text = self.files[path]
        found = text.count(old) if old else 0
        if found != 1:
            why = (
                f"stands {found} times in it; add lines around it"
                if found
                else "does not stand in it as written"
            )
            raise CallError(f"{path} was left as it is: `old` {why if old else 'is empty'}")
        line = text[: text.index(old)].count("\n") + 1
        self.write(path, text.replace(old, new))
        return f"{path}: replaced at line {line}"

    def existing(self, path: str) -> str:
        """The normalized path of an existing file."""
        path = self.path(path)
        if path not in self.files:
            raise CallError(self._missing(path))
        return path

    def path(self, given: str) -> str:
        """The normalized path in the workspace; `/code/rtl/a.sv` is `rtl/a.sv`. CallError for a path outside."""
        plain = posixpath.normpath(given.removeprefix("/code/")) if given else ""
        top = plain.split("/")[0]
        if top not in DIRECTORIES or not _PLAIN.fullmatch(plain):
            raise CallError(
                f"{given[:80]!a} is no path of the workspace; paths begin with {', '.join(DIRECTORIES)}"
            )
        return plain

    def _missing(self, path: str) -> str:
        if path in DIRECTORIES or any(other.startswith(f"{path}/") for other in self.files):
            return f"{path} is a directory; `list` shows its files"
        return f"there is no {path}; `list` shows all files"


def shortened(text: str, most_bytes: int) -> str:
    """The text, or its beginning and end around a line that says how much is missing."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most_bytes:
        return data.decode()
    half = max((most_bytes - 60) // 2, 1)
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return f"{head}\n[... {len(data) - 2 * half:,} bytes left out ...]\n{tail}"
