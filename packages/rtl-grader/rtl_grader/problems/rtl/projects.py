"""From a path to projects: each is a library of files that may use one another.

A folder that holds folders only is a set of projects; so is JSONL, with a project a line.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rtl_grader.hdl.interface import HDL_SUFFIXES, hdl_files
from rtl_grader.hdl.text import code_of
from rtl_grader.problems.cvdp import FieldError, files_of, text_lines
from rtl_grader.problems.problem_set import BrokenLine, LeftOut, ProblemSet
from rtl_grader.problems.rtl.designs import Library, SourceFile
from rtl_grader.problems.rtl.filelist import Listing, listing_of, normal, text_of

MAX_ROW_BYTES = 16 << 20
_SOURCE = "rtl"
_MODULE = re.compile(r"^\s*module\s+\w", re.M)


def projects_of(
    path: Path, define: Mapping[str, str], contents: ProblemSet
) -> Iterator[Library]:
    """Yield the projects of a path. What cannot be read is added to `contents`."""
    listing = listing_of(path)
    if listing.files:
        yield from _projects(path, listing, define, contents)
    for rows in listing.rows:
        yield from _rows(rows, contents)
    for name, reason in listing.left_out:
        contents.left_out.append(LeftOut(name, reason, _SOURCE))


def _projects(
    path: Path, listing: Listing, define: Mapping[str, str], contents: ProblemSet
) -> Iterator[Library]:
    root = Path(os.path.abspath(path)) if path.is_dir() else listing.root
    has_several = path.is_dir() and not any(entry.is_file() for entry in path.iterdir())
    groups: dict[str, list[Path]] = defaultdict(list)
    for file in listing.files:
        name = file.relative_to(root).parts[0] if has_several else ""
        groups[name].append(file)
    for name, files in groups.items():
        folder = root / name
        sources = []
        quoted: set[str] = set()
        for source in _read(files, root, folder, contents):
            sources.append(source)
            quoted |= source.quoted
            if not source.scan.units and _MODULE.search(code_of(source.text)):
                contents.left_out.append(
                    LeftOut(source.origin, "no module of it can be read", _SOURCE)
                )
        own = [file for file in listing.others if file.is_relative_to(folder)]
        named = [file for file in own if file.name in quoted]
        yield Library(
            sources,
            {**listing.define, **define},
            _licence(folder),
            project=name,
            data=list(_read(named, root, folder, contents)),
        )


def _read(
    files: list[Path], root: Path, folder: Path, contents: ProblemSet
) -> Iterator[SourceFile]:
    for file in files:
        origin = str(file.relative_to(root))
        try:
            yield SourceFile(_place(file, folder), text_of(file), origin)
        except ValueError as error:
            contents.left_out.append(LeftOut(origin, str(error), _SOURCE))


def _place(file: Path, folder: Path) -> str:
    """The path in the workspace of a file of a folder; tools tell Verilog by its suffix in small letters."""
    suffix = file.suffix.lower()
    plain = file.with_suffix(suffix) if suffix in HDL_SUFFIXES else file
    return _in_workspace(str(plain.relative_to(folder)))


def _in_workspace(path: str) -> str:
    return path if path.startswith("rtl/") else f"rtl/{path}"


def _licence(folder: Path) -> str:
    """First line of the licence in a folder; empty without one."""
    for file in sorted(folder.glob("LICEN[CS]E*")):
        with suppress(ValueError):
            return text_of(file).split("\n", 1)[0].strip()[:200]
    return ""


def _rows(path: Path, contents: ProblemSet) -> Iterator[Library]:
    licence = _licence(path.parent)
    with path.open("rb") as file:
        for line, row in text_lines(file, MAX_ROW_BYTES):
            try:
                yield _row(f"{path.name}:{line}", row, licence)
            except FieldError as error:
                name = None if isinstance(row, str) else row.get("task_id")
                identity = str(name) if name else None
                contents.broken.append(
                    BrokenLine(path.name, line, identity, error.field, error.reason, _SOURCE)
                )


def _row(origin: str, row: dict[str, Any] | str, licence: str) -> Library:
    """A line of JSONL as a project. Raises FieldError."""
    if isinstance(row, str):
        raise FieldError("line", row)
    sources: list[SourceFile] = []
    names: set[str] = set()
    files = files_of(row.get("files"), "files")
    for name, text in hdl_files(files).items():
        source = SourceFile(_in_workspace(name), normal(text), origin)
        own = {unit.name for unit in source.scan.units}
        # RTL-BenchLS repeats all modules of a design in one more file.
        if not own or own - names:
            sources.append(source)
            names |= own
    top = row.get("top_module")
    if top is not None and top not in names:
        raise FieldError("top_module", f"no file defines {top!s:.80}")
    stated = str(row.get("license") or licence)
    project = str(row.get("task_id") or origin)
    return Library(sources, licence=stated[:200], project=project, top=top)
