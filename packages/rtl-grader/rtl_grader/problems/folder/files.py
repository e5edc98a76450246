"""The files of a folder, which are read safely, and the variables of Makefiles."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rtl_grader.hdl.interface import HDL_SUFFIXES
from rtl_grader.problems.folder.description import FolderError
from rtl_grader.problems.rtl.filelist import text_of

SOURCES = (".v", ".sv")
VHDL = (".vhd", ".vhdl")
UNKNOWN = "\0"
"""Stands in a Makefile's value for what only running `make` could tell."""
_ASSIGNMENT = re.compile(r"^[ \t]*(?:export +)?(\w+)[ \t]*([?+:]*)=[ \t]*([^#\n]*)", re.M)
_REFERENCE = re.compile(r"\$[({]([^$(){}]*)[)}]")
_HERE = re.compile(
    r"PWD|CURDIR|shell pwd|dir\b.*|(?:abspath|realpath)\s*\.?|lastword\s*|MAKEFILE_LIST"
)


@dataclass(frozen=True)
class Folder:
    """A folder; paths are texts relative to it."""

    root: Path

    @cached_property
    def paths(self) -> list[str]:
        """All files, sorted, without hidden ones."""
        files = (path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file())
        return sorted(str(path) for path in files if not re.search(r"(?:^|/)\.", str(path)))

    @cached_property
    def hdl(self) -> dict[str, str]:
        """The Verilog files: path -> text."""
        return {path: self.text(path) for path in self.paths if path.endswith(HDL_SUFFIXES)}

    def text(self, path: str) -> str:
        """A file's text. Raises FolderError for one that is outside, missing, too large, binary or VHDL."""
        full = self.root / path
        if not full.resolve().is_relative_to(self.root.resolve()):
            raise FolderError(path, "leads out of the folder: copy the file into it")
        if path.endswith(VHDL):
            raise FolderError(path, "is VHDL, which cannot be graded: give Verilog")
        try:
            text = text_of(full)
        except ValueError as error:
            raise FolderError(path, f"{error}: mend it, or name other files") from None
        if "\0" in text:
            raise FolderError(path, "is binary: leave it out")
        return text

    def glob(self, patterns: Iterable[str], key: str) -> list[str]:
        """Files that match globs, in the order of the globs. Raises FolderError for one without a match."""
        paths: list[str] = []
        for pattern in patterns:
            if ".." in pattern or pattern.startswith("/"):
                raise FolderError(
                    key, f"{pattern} leads out of the folder: copy it into the folder"
                )
            matches = sorted(self.root.glob(pattern))
            if not matches:
                raise FolderError(key, f"no file is called {pattern}")
            paths += [str(match.relative_to(self.root)) for match in matches]
        return paths


def make_variables(text: str) -> dict[str, str]:
    """Variables of a Makefile, which is not run: name -> value, with references and `UNKNOWN` for functions.

    Conditions are ignored: the assignments of all branches count, as far as each adds or is the first.
    """
    raw = {"SIM": "icarus"}
    for name, kind, value in _ASSIGNMENT.findall(re.sub(r"\\\n\s*", " ", text)):
        if kind == "+":
            raw[name] = f"{raw.get(name, '')} {value}"
        else:
            raw.setdefault(name, value)
    return {name: _expanded(value, raw) for name, value in raw.items()}


def _expanded(value: str, variables: dict[str, str]) -> str:
    def replaced(reference: re.Match[str]) -> str:
        name = reference[1].strip()
        if _HERE.fullmatch(name):
            return "."
        return variables.get(name, "" if name.isidentifier() else UNKNOWN)

    for _ in range(20):  # references to references; one to itself ends here
        value = _REFERENCE.sub(replaced, value)
    return UNKNOWN if "$" in value else value.strip()
