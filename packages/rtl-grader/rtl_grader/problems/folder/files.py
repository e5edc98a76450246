"""The files of a folder: reading them safely, and lists of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rtl_grader.hdl.interface import HDL_SUFFIXES
from rtl_grader.problems.folder.description import FolderError

MAX_BYTES = 1 << 20
MAX_FILES = 5000
SOURCES = (".v", ".sv")
_VHDL = (".vhd", ".vhdl")
_OPTION = re.compile(r"\+(incdir|define)\+(.*)")


@dataclass(frozen=True)
class Folder:
    """A folder; paths are texts relative to it."""

    root: Path

    @cached_property
    def paths(self) -> list[str]:
        """All files, sorted, without hidden ones. Raises FolderError for too many."""
        paths: list[str] = []
        for place, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            here = os.path.relpath(place, self.root)
            shown = [name for name in sorted(names) if not name.startswith(".")]
            paths += [os.path.normpath(os.path.join(here, name)) for name in shown]
            if len(paths) > MAX_FILES:
                raise FolderError(
                    "folder", f"holds more than {MAX_FILES} files: make it smaller"
                )
        return paths

    @cached_property
    def hdl(self) -> dict[str, str]:
        """The Verilog files: path -> text."""
        return {path: self.text(path) for path in self.paths if path.endswith(HDL_SUFFIXES)}

    def text(self, path: str, key: str = "") -> str:
        """A file's text. Raises FolderError for one that is outside, missing, too large, binary or VHDL."""
        key = key or path
        full = self.root / path
        if not full.resolve().is_relative_to(self.root.resolve()):
            raise FolderError(key, f"{path} leads out of the folder: copy the file into it")
        if path.endswith(_VHDL):
            raise FolderError(key, f"{path} is VHDL, which cannot be graded: give Verilog")
        try:
            if full.stat().st_size > MAX_BYTES:
                raise FolderError(key, f"{path} is larger than {MAX_BYTES >> 20} MiB")
            data = full.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            raise FolderError(key, f"{path}: {reason}: mend the name") from None
        if b"\0" in data:
            raise FolderError(key, f"{path} is binary, not text")
        return data.decode("utf-8", errors="replace")

    def glob(self, patterns: Iterable[str], key: str) -> list[str]:
        """Files that match globs, in the order of the globs. Raises FolderError for one without a match."""
        paths: dict[str, None] = {}
        for pattern in patterns:
            if os.path.isabs(pattern) or ".." in Path(pattern).parts:
                reason = f"{pattern} leads out of the folder: name a path inside it"
                raise FolderError(key, reason)
            matches = sorted(
                str(path.relative_to(self.root)) for path in self.root.glob(pattern)
            )
            if not matches:
                raise FolderError(key, f"no file is called {pattern}")
            paths.update(dict.fromkeys(matches))
        return list(paths)


@dataclass
class FileList:
    """The contents of a file list."""

    sources: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    define: dict[str, str] = field(default_factory=dict)


def read_filelist(folder: Folder, path: str) -> FileList:
    """Read a `.f` file: sources, `+incdir+`, `+define+`, `-f`, `-I`, `-D`, comments. Names are relative to
    its folder, else to the problem's. Raises FolderError for a missing file, a loop, or an unknown option."""
    result = FileList()
    _read_list(folder, path, result, ())
    return result


def _read_list(folder: Folder, path: str, result: FileList, within: tuple[str, ...]) -> None:
    if path in within:
        raise FolderError(path, "the file list includes itself: remove that line")
    words = iter(_words(folder.text(path, "filelist")))
    for word in words:
        if option := _OPTION.fullmatch(word):
            values = option[2].split("+")
            if option[1] == "define":
                result.define.update(_macro(value) for value in values)
            else:
                result.include += [_found(folder, path, value) for value in values]
        elif word in ("-f", "-F"):
            nested = _found(folder, path, next(words, ""))
            _read_list(folder, nested, result, (*within, path))
        elif word.startswith("-D"):
            result.define.update([_macro(word[2:])])
        elif word.startswith("-I"):
            result.include.append(_found(folder, path, word[2:] or next(words, "")))
        elif word.startswith(("-", "+")):
            raise FolderError(path, f"the option {word} is not known: remove it")
        else:
            result.sources.append(_found(folder, path, word))


def _words(text: str) -> Iterator[str]:
    for line in text.splitlines():
        code, *_ = re.split(r"//|#", line, maxsplit=1)
        yield from code.split()


def _macro(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value or "1"


def _found(folder: Folder, listed_in: str, name: str) -> str:
    for base in (os.path.dirname(listed_in), ""):
        path = os.path.normpath(os.path.join(base, name))
        if (folder.root / path).exists():
            return path
    raise FolderError(listed_in, f"there is no {name}: mend the line, or add the file")
