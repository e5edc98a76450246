"""The files of a folder, which are read safely."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from glob import glob
from os.path import normpath, relpath
from pathlib import Path

from rtl_grader.hdl.interface import HDL_SUFFIXES
from rtl_grader.problems.faults import FieldError
from rtl_grader.problems.rtl.filelist import text_of

SOURCES = (".v", ".sv")
_VHDL = (".vhd", ".vhdl")
_HIDDEN = re.compile(r"(?:^|/)\.")


@dataclass(frozen=True)
class Folder:
    """A folder; paths are texts relative to it."""

    root: Path

    @cached_property
    def paths(self) -> list[str]:
        """All files, sorted, without hidden ones."""
        files = (path for path in self.root.rglob("*") if path.is_file())
        paths = (str(path.relative_to(self.root)) for path in files)
        return sorted(path for path in paths if not _HIDDEN.search(path))

    @cached_property
    def hdl(self) -> dict[str, str]:
        """The Verilog files: path -> text. Raises FieldError if there are VHDL files instead."""
        paths = [path for path in self.paths if path.endswith(HDL_SUFFIXES)]
        paths = paths or [path for path in self.paths if path.endswith(_VHDL)]
        return {path: self.text(path) for path in paths}

    def text(self, path: str) -> str:
        """A file's text. Raises FieldError for one that is outside, missing, too large, binary or VHDL."""
        full = self.root / path
        if not full.resolve().is_relative_to(self.root.resolve()):
            raise FieldError(path, "leads out of the folder: copy the file into it")
        if path.endswith(_VHDL):
            raise FieldError(path, "is VHDL, which cannot be graded: give Verilog")
        try:
            text = text_of(full)
        except ValueError as error:
            raise FieldError(path, f"{error}: mend it, or name other files") from None
        if "\0" in text:
            raise FieldError(path, "is binary: leave it out")
        return text

    def glob(self, patterns: Iterable[str], key: str) -> list[str]:
        """Files that match globs, in the order of the globs. Raises FieldError for one without a match."""
        paths: list[str] = []
        for pattern in patterns:
            matches = glob(pattern, root_dir=self.root, recursive=True)
            if not matches:
                raise FieldError(key, f"no file is called {pattern}")
            paths += map(normpath, sorted(matches))
        return paths

    def relative(self, paths: Iterable[Path]) -> list[str]:
        """The paths relative to the folder."""
        return [relpath(path, self.root) for path in paths]

    def sources(self, paths: list[str]) -> list[str]:
        """The paths. Raises FieldError for a file that is no Verilog of this folder."""
        for path in paths:
            if self.text(path) != self.hdl.get(path):
                raise FieldError(path, "is no Verilog file of this folder")
        return paths
