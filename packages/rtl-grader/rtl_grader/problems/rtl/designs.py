"""Designs of a set of RTL files: each module with the files that it needs, in the order of their compilation.

A name is looked for in the module's own file first, then in the other files; among several files that define it, in
those of the same folder. A file whose macros are used without an include is compiled before.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from posixpath import dirname, normpath

from rtl_grader.problems.rtl.scan import Scan, Unit, scan

_PLAIN_PATH = re.compile(r"[\w./+-]+", re.A)
MAX_INCLUDE_DEPTH = 16
_LICENCE = re.compile(r"SPDX-License-Identifier:[ \t]*([^\n*]+)")


@dataclass(eq=False)
class SourceFile:
    """An RTL file, with its path in the workspace (`rtl/x.sv`)."""

    path: str
    text: str
    origin: str
    """Where it comes from, for the user."""

    @cached_property
    def scan(self) -> Scan:
        return scan(self.text)

    def defines(self, name: str) -> bool:
        """Whether it defines a unit of this name."""
        return any(unit.name == name for unit in self.scan.units)


@dataclass(frozen=True, eq=False)
class RtlDesign:
    """A module, and what it needs."""

    file: SourceFile
    unit: Unit
    cluster: str
    """The same for all modules that are connected by instances."""
    compiled: tuple[SourceFile, ...]
    headers: tuple[SourceFile, ...]
    include: tuple[str, ...]
    """Folders of the workspace that are searched for the headers."""
    define: Mapping[str, str]
    user: SourceFile | None
    """The shortest other file with a module that instantiates it."""
    licence: str

    @property
    def context(self) -> dict[str, str]:
        """Path -> text of the files that it needs."""
        return {file.path: file.text for file in (*self.headers, *self.compiled)}


@dataclass(eq=False)
class _Need:
    """Files that a design needs so far."""

    compiled: list[SourceFile] = field(default_factory=list)
    headers: dict[str, SourceFile] = field(default_factory=dict)
    include: dict[str, None] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)


class Library:
    """All files of a project.

    Args:
        files: in the order of their source.
        include: folders of the workspace that are searched for included files.
        define: macros that are defined from outside.
        project: its name, if there are several. Its modules are held out together.
        tops: modules to ask about; None: all.
    """

    def __init__(
        self,
        files: Sequence[SourceFile],
        include: Sequence[str] = (),
        define: Mapping[str, str] | None = None,
        licence: str = "",
        project: str = "",
        tops: frozenset[str] | None = None,
    ) -> None:
        self.files = files
        self._by_path = {file.path: file for file in files}
        self._include = include
        self._define = define or {}
        self._licence = licence
        self._project = project
        self._tops = tops
        self._units: dict[str, list[tuple[SourceFile, Unit]]] = defaultdict(list)
        self._macros: dict[str, list[SourceFile]] = defaultdict(list)
        for file in files:
            for unit in file.scan.units:
                self._units[unit.name].append((file, unit))
            for macro in file.scan.defines:
                self._macros[macro].append(file)

    def modules(self) -> Iterator[tuple[SourceFile, Unit]]:
        """Yield the modules to ask about."""
        for file, unit in self._modules():
            if self._tops is None or unit.name in self._tops:
                yield file, unit

    def _modules(self) -> Iterator[tuple[SourceFile, Unit]]:
        for file in self.files:
            for unit in file.scan.units:
                if unit.kind == "module":
                    yield file, unit

    def design(self, file: SourceFile, unit: Unit) -> RtlDesign:
        """Return the design of a module. Raises ValueError when there is nothing to ask about it, or when
        something that it needs is missing or ambiguous."""
        if unit.no_design:
            raise ValueError(unit.no_design)
        if not _PLAIN_PATH.fullmatch(file.path):
            raise ValueError(
                "the path of its file has other characters than letters and digits"
            )
        need = _Need(seen={file.path})
        self._need_of_unit(file, unit, need)
        compiled = [other for other in need.compiled if other.path not in need.headers]
        _check_single([*compiled, file])
        licence = _LICENCE.search(file.text, 0, 4000)
        return RtlDesign(
            file=file,
            unit=unit,
            cluster=self._project or self._clusters.get(unit.name, unit.name),
            compiled=tuple(compiled),
            headers=tuple(need.headers.values()),
            include=tuple(need.include),
            define=self._define,
            user=self._users.get(unit.name),
            licence=licence[1].strip() if licence else self._licence,
        )

    def _need_of_unit(self, file: SourceFile, unit: Unit, need: _Need) -> None:
        """Add what a unit instantiates, the deepest first."""
        waiting = [(file, unit, False)]
        while waiting:
            holder, current, is_ready = waiting.pop()
            if is_ready:
                self._need_of_file(holder, need)
                if holder is not file and holder not in need.compiled:
                    need.compiled.append(holder)
                continue
            mark = f"{holder.path} {current.name}"
            if mark in need.seen:
                continue
            need.seen.add(mark)
            waiting.append((holder, current, True))
            for name in sorted(current.uses, reverse=True):
                waiting.append((*self._definition(name, holder), False))

    def _need_of_file(self, file: SourceFile, need: _Need) -> None:
        """Add the headers and packages of a file, and other files whose macros it uses."""
        texts = {file.path: file}
        self._include_all(file, texts, need, (file.path,))
        scans = [text.scan for text in texts.values()]
        for package in sorted(name for each in scans for name in each.packages):
            self._add_before(self._definition(package, file)[0], need)
        defined = {name for each in scans for name in each.defines} | self._define.keys()
        for each in scans:
            for name, is_needed in each.macros.items():
                holders = self._macros.get(name, [])
                if name not in defined and (is_needed or len(holders) == 1):
                    self._add_before(_only(holders, f"the macro `{name}"), need)

    def _add_before(self, file: SourceFile, need: _Need) -> None:
        if file.path not in need.seen:
            need.seen.add(file.path)
            self._need_of_file(file, need)
            if file not in need.compiled:
                need.compiled.append(file)

    def _include_all(
        self,
        file: SourceFile,
        texts: dict[str, SourceFile],
        need: _Need,
        within: tuple[str, ...],
    ) -> None:
        """Add the files that a file includes, directly or not, to `texts`, and note where they are searched."""
        for name, is_needed in file.scan.includes.items():
            try:
                header, folder = self._header(name, file)
            except ValueError:
                if is_needed:
                    raise
                continue
            if header.path in within or len(within) > MAX_INCLUDE_DEPTH:
                raise ValueError(f"its includes form a loop at {header.path}")
            need.headers[header.path] = header
            need.include[folder] = None
            if header.path not in texts:
                texts[header.path] = header
                self._include_all(header, texts, need, (*within, header.path))

    def _header(self, name: str, file: SourceFile) -> tuple[SourceFile, str]:
        """Return an included file, and the folder from which it has this name."""
        for folder in (dirname(file.path), *self._include):
            header = self._by_path.get(normpath(f"{folder}/{name}"))
            if header is not None:
                return header, folder
        suffix = f"/{normpath(name)}"
        headers = [other for other in self.files if other.path.endswith(suffix)]
        header = _only(headers, f"the included file {name}")
        return header, header.path.removesuffix(suffix)

    def _definition(self, name: str, file: SourceFile) -> tuple[SourceFile, Unit]:
        holders = self._units.get(name, [])
        for is_near in (
            lambda other: other is file,
            lambda other: dirname(other.path) == dirname(file.path),
        ):
            near = [holder for holder in holders if is_near(holder[0])]
            if len(near) == 1:
                return near[0]
        holder = _only([holder for holder, _ in holders], name)
        return next(pair for pair in holders if pair[0] is holder)

    @cached_property
    def _clusters(self) -> dict[str, str]:
        """Module -> the first name, by the alphabet, of the modules that instances connect it with."""
        neighbours: dict[str, set[str]] = defaultdict(set)
        for _, unit in self._modules():
            for used in unit.uses & self._units.keys():
                neighbours[unit.name].add(used)
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

    @cached_property
    def _users(self) -> dict[str, SourceFile]:
        users: dict[str, SourceFile] = {}
        for file, unit in sorted(self._modules(), key=lambda pair: len(pair[0].text)):
            for name in unit.uses if not unit.no_design else ():
                if not file.defines(name):
                    users.setdefault(name, file)
        return users


def _only(files: Sequence[SourceFile], what: str) -> SourceFile:
    """The single file with something. Raises ValueError when none or several have it."""
    if not files:
        raise ValueError(f"no file defines {what}")
    distinct = {file.path: file for file in files}
    if len(distinct) > 1:
        names = " and ".join(sorted(distinct)[:2])
        raise ValueError(f"{what} is ambiguous: {names} define it")
    return files[0]


def _check_single(files: Iterable[SourceFile]) -> None:
    """Raise ValueError when two of the files define a unit of the same name."""
    holder: dict[str, str] = {}
    for file in files:
        for unit in file.scan.units:
            other = holder.setdefault(unit.name, file.path)
            if other != file.path:
                raise ValueError(f"{other} and {file.path} define {unit.name}")
