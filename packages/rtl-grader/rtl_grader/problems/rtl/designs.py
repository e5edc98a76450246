"""Designs of a set of RTL files: each module with the files that it needs, in the order of their compilation.

A name is looked for in the module's own file first, then in the other files; among several files that define it, in
those of the nearest folder. A file whose macros are used without an include is compiled before. Headers are in the
workspace where the includes find them from `rtl`, or from the including file's folder where that leads out. Data files
are those whose names stand in quotes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from posixpath import basename, commonpath, dirname, normpath

from rtl_grader.hdl.interface import is_named
from rtl_grader.problems.rtl.scan import Scan, Unit, scan

MAX_DEPTH = 200
"""Most levels of instances, packages and includes."""
_PLAIN_PATH = re.compile(r"[\w./+-]+", re.A)
_ODD = re.compile(r"[^\w./+-]", re.A)
_INCLUDED = re.compile(r'`include\b[ \t]*(?:"([^"\n]*)")?')
_STRING = re.compile(r'"([^"\\\n]+)"')
_LICENCE = re.compile(r"SPDX-License-Identifier:[ \t]*([^\n*]+)")


@dataclass(eq=False)
class SourceFile:
    """An RTL file."""

    path: str
    """Its path in the workspace (`rtl/x.sv`)."""
    text: str
    origin: str
    """Where it comes from, for the user."""
    project: list[SourceFile] = field(default_factory=list, repr=False)
    """All files that it may include. It must be complete before the file is scanned."""
    define: Mapping[str, str] = field(default_factory=dict)
    """Macros that are defined from outside."""

    @cached_property
    def scan(self) -> Scan:
        """What the file defines and needs."""
        return scan(self.text, self.path, _headers(self), self.define)

    def unit(self, name: str) -> Unit:
        """Its unit of a name; for a macro, one that uses nothing."""
        units = {unit.name: unit for unit in self.scan.units}
        return units.get(name, Unit(name, is_module=False))

    @cached_property
    def quoted(self) -> frozenset[str]:
        """What could be names of data files: the ends of the paths in quotes."""
        return frozenset(map(basename, _STRING.findall(self.text)))

    @property
    def licence(self) -> str:
        """The licence that its head names; empty without one."""
        match = _LICENCE.search(self.text, 0, 4000)
        return match[1].strip() if match else ""


@dataclass(eq=False)
class Need:
    """Files that a design needs: path in the workspace -> text."""

    compiled: dict[str, str] = field(default_factory=dict)
    """In the order of their compilation."""
    headers: dict[str, str] = field(default_factory=dict)
    """Also data files."""
    missing: set[str] = field(default_factory=set)
    """Modules that no file defines and that may not be needed: instances of them stand under conditions."""
    include: set[str] = field(default_factory=set)
    """Folders that are searched for included files, beside `rtl`."""

    @property
    def lines(self) -> int:
        """Number of lines."""
        texts = (*self.headers.values(), *self.compiled.values())
        return sum(text.count("\n") for text in texts)


@dataclass(eq=False)
class Library:
    """All files of a project."""

    files: list[SourceFile]
    define: Mapping[str, str] = field(default_factory=dict)
    """Macros that are defined from outside."""
    licence: str = ""
    project: str = ""
    """Its name, if there are several. Its modules are held out together."""
    top: str | None = None
    """The module to ask about; None: all."""
    data: list[SourceFile] = field(default_factory=list)
    """Files that are no HDL and may be read by a design."""

    def modules(self) -> list[tuple[SourceFile, Unit]]:
        """The modules to ask about."""
        return [
            (file, unit)
            for file in self.files
            for unit in file.scan.units
            if unit.is_module and self.top in (None, unit.name)
        ]

    def need(self, file: SourceFile, unit: Unit) -> Need:
        """Return what a module needs. Raises ValueError when there is nothing to ask about it, or when something that
        it needs is missing or ambiguous."""
        if unit.no_design:
            raise ValueError(unit.no_design)
        if file.scan.syntax_error and not unit.masks:
            raise ValueError("no part of it can be read")
        if not _PLAIN_PATH.fullmatch(file.path):
            raise ValueError("the path of its file has characters beside letters and digits")
        need = Need()
        self._add(file, unit, need, set(), 0)
        del need.compiled[file.path]
        for path in need.headers.keys() & need.compiled.keys():
            del need.compiled[path]
        return need

    def cluster(self, unit: Unit) -> str:
        """A name that is the same for all modules that are held out together: of the project, or of the first by the
        alphabet that instances connect it with."""
        return self.project or self._clusters.get(unit.name, unit.name)

    @cached_property
    def instances(self) -> dict[str, list[tuple[SourceFile, str]]]:
        """Module -> (file, text) of each instantiation of it, without those of test benches."""
        places: dict[str, list[tuple[SourceFile, str]]] = defaultdict(list)
        for file, unit in self.modules():
            for name, text in () if unit.no_design else unit.instances:
                places[name].append((file, text))
        return dict(places)

    def _add(
        self, file: SourceFile, unit: Unit, need: Need, seen: set[str], depth: int
    ) -> None:
        """Add a file, after what it needs itself."""
        if depth > MAX_DEPTH:
            raise ValueError(f"it needs more than {MAX_DEPTH} files one below the other")
        included: list[SourceFile] = []
        self._include(file, included, need, (file.path,))
        scans = [file.scan, *(header.scan for header in included)]
        defined = {f"`{name}" for name in self.define}.union(*(one.defines for one in scans))
        absent = unit.optional - self._holders.keys()
        need.missing |= absent
        names = sorted(unit.uses - absent)
        for one in scans:
            needed = one.packages | one.macros - defined
            names += sorted(needed & self._holders.keys() if one.has_conditions else needed)
        for name in names:
            shown = f"the macro {name}" if name.startswith("`") else name
            holder = _nearest(file, shown, self._holders.get(name, []))
            mark = f"{holder.path} {name}"
            if holder not in included and mark not in seen:
                seen.add(mark)
                self._add(holder, holder.unit(name), need, seen, depth + 1)
        for source in (file, *included):
            for name in sorted(source.quoted):
                if holders := [data for data in self.data if basename(data.path) == name]:
                    data = _nearest(file, f"the data file {name}", holders)
                    need.headers[data.path] = data.text
        need.compiled.setdefault(file.path, file.text)

    def _include(
        self, file: SourceFile, included: list[SourceFile], need: Need, within: tuple[str, ...]
    ) -> None:
        """Add the files that a file includes, directly or not."""
        for name in sorted(file.scan.includes):
            own, holders = _named(file, name, self.files)
            if file.scan.has_conditions and not holders:
                continue
            header = _nearest(file, f"the included file {name}", holders)
            if header.path in within or len(within) > MAX_DEPTH:
                raise ValueError(f"its includes form a loop at {header.path}")
            place = normpath(f"rtl/{name}")
            if place.startswith(".."):
                place = own
                need.include.add(dirname(file.path))
            if place.startswith(".."):
                raise ValueError(f"the included file {name} leads out of the project")
            need.headers[place] = header.text
            if header not in included:
                included.append(header)
                self._include(header, included, need, (*within, header.path))

    @cached_property
    def _holders(self) -> dict[str, list[SourceFile]]:
        """Unit, or "`" and macro -> the files that define it."""
        holders: dict[str, list[SourceFile]] = defaultdict(list)
        for file in self.files:
            units = [unit.name for unit in file.scan.units]
            for name in (*units, *file.scan.defines):
                holders[name].append(file)
        return dict(holders)

    @cached_property
    def _clusters(self) -> dict[str, str]:
        neighbours: dict[str, set[str]] = defaultdict(set)
        for file in self.files:
            for unit in file.scan.units:
                known = unit.uses & self._holders.keys()
                neighbours[unit.name] |= known
                for used in known:
                    neighbours[used].add(unit.name)
        clusters: dict[str, str] = {}
        for name in sorted(neighbours):
            waiting = [name]
            while waiting:
                current = waiting.pop()
                if current not in clusters:
                    clusters[current] = name
                    waiting += neighbours[current]
        return clusters


def _named(
    file: SourceFile, name: str, files: list[SourceFile]
) -> tuple[str, list[SourceFile]]:
    """Where an include leads from the folder of a file, and the files that it may mean."""
    path = plain(name)
    own = normpath(f"{dirname(file.path)}/{path}")
    exact = [other for other in files if other.path == own]
    near = [other for other in files if is_named(other.path, path)]
    return own, exact or near


def _headers(file: SourceFile) -> dict[str, str]:
    """Path -> text of each file that a file includes, directly or not; one that is missing or ambiguous is empty.

    Empty if a macro names one, or if a name is absolute or leads out of the project: the parser would look for it on
    this machine. Comments count too, because the parser decides what is one.
    """
    headers: dict[str, str] = {}
    waiting = [(file, file.path)]
    while waiting:
        source, place = waiting.pop()
        for name in _INCLUDED.findall(source.text):
            folder = dirname(place)
            target = normpath(f"{folder}/{name}")
            leads_out = target.startswith("..")
            if not name or name.startswith("/") or leads_out:
                return {}
            if target in headers or target == file.path:
                continue
            headers[target] = ""
            _, holders = _named(source, name, file.project)
            with suppress(ValueError):
                header = _nearest(source, name, holders)
                headers[target] = header.text
                waiting.append((header, target))
    return headers


def plain(path: str) -> str:
    """A path that all tools read: with `_` for each character beside letters, digits and `./+-`."""
    return _ODD.sub("_", path)


def _nearest(file: SourceFile, name: str, holders: list[SourceFile]) -> SourceFile:
    """The nearest file that defines a name for another file. Raises ValueError for none and for several, unless their
    texts are equal."""
    if file in holders:
        return file
    if not holders:
        raise ValueError(f"no file of its project defines {name}")
    here = dirname(file.path)

    def nearness(other: SourceFile) -> int:
        place = dirname(other.path)
        return len(commonpath([here, place])) + (place == here)

    best = max(map(nearness, holders))
    nearest = [other for other in holders if nearness(other) == best]
    if len({other.text for other in nearest}) > 1:
        names = " and ".join(other.path for other in nearest[:2])
        raise ValueError(f"{name} is ambiguous: {names} define it")
    return nearest[0]
