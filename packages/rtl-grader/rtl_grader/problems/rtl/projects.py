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
from posixpath import dirname
from typing import Any

from rtl_grader.hdl.interface import HDL_SUFFIXES, hdl_files
from rtl_grader.hdl.text import code_of
from rtl_grader.problems.cvdp import files_of, text_lines
from rtl_grader.problems.faults import FieldError
from rtl_grader.problems.problem_set import BrokenLine, LeftOut, ProblemSet
from rtl_grader.problems.rtl.designs import Library, SourceFile, plain
from rtl_grader.problems.rtl.filelist import Listing, listing_of, normal, text_of

MAX_ROW_BYTES = 16 << 20
_SOURCE = "rtl"
_MODULE = re.compile(r"^\s*module\s+\w", re.M)
_DEFINITION = re.compile(r"`define(?:\\\n|[^\n])*+")


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
        sources: list[SourceFile] = []
        quoted: set[str] = set()
        macros = {**listing.define, **define}
        for source in _read(files, root, folder, contents):
            source.project, source.define = sources, macros
            sources.append(source)
            quoted |= source.quoted
        for source in sources:
            code = _DEFINITION.sub("", code_of(source.text))
            if not source.scan.units and _MODULE.search(code):
                reason = _unread(source)
                contents.left_out.append(LeftOut(source.origin, reason, _SOURCE))
        own = [file for file in listing.others if file.is_relative_to(folder)]
        named = [file for file in own if file.name in quoted]
        yield Library(
            sources,
            macros,
            _licence(folder),
            project=name,
            data=list(_read(named, root, folder, contents)),
        )


def _unread(source: SourceFile) -> str:
    """Why a file with modules has none that can be asked about."""
    error = source.scan.syntax_error
    if error:
        return f"no module of it can be read: {error}"
    if source.scan.has_conditions:
        return "its modules stand under conditions (`ifdef) that are not met; the key `define` sets macros"
    return "no module of it can be read"


def _read(
    files: list[Path], root: Path, folder: Path, contents: ProblemSet
) -> Iterator[SourceFile]:
    taken: set[str] = set()
    for file in files:
        origin = str(file.relative_to(root))
        try:
            place = _place(file, folder)
            if place in taken:
                raise ValueError(f"another file has its path, which tools read as {place}")
            yield SourceFile(place, text_of(file), origin)
            taken.add(place)
        except ValueError as error:
            contents.left_out.append(LeftOut(origin, str(error), _SOURCE))


def _place(file: Path, folder: Path) -> str:
    """The path in the workspace of a file of a folder; tools tell Verilog by its suffix in small letters."""
    suffix = file.suffix.lower()
    inside = file.relative_to(folder)
    if suffix in HDL_SUFFIXES:
        inside = inside.with_suffix(suffix)
        return plain(_in_workspace(str(inside)))
    path = _in_workspace(str(inside))
    place = plain(dirname(path))
    return f"{place}/{file.name}"  # a design names its data


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
    files = hdl_files(files_of(row.get("files"), "files"))
    every: list[SourceFile] = []
    for name, text in files.items():
        path = plain(_in_workspace(name))
        every.append(SourceFile(path, normal(text), origin, every))
    for source in every:
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
