"""Finds the design in a folder: its modules, what they use and include, its data and its specification."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from os.path import commonpath, dirname, normpath, relpath
from posixpath import basename

from rtl_grader.hdl.text import code_of, module_names, modules, words_of
from rtl_grader.problems.faults import FieldError
from rtl_grader.problems.folder.bench import BenchFiles
from rtl_grader.problems.folder.description import Description
from rtl_grader.problems.folder.files import SOURCES, Folder
from rtl_grader.problems.judged import tops_of
from rtl_grader.problems.testbench import Build
from rtl_grader.types.files import Files

_UNIT = re.compile(
    r"\b(?:macromodule|module|interface|package|program)\s+(?:automatic\s+)?(\w+)"
)
_INCLUDE = re.compile(r'`include\s*"(?:\.\.?/)*([^"\n]*)"')
_STRING = re.compile(r'"([^"\\\n]+)"')
_COMMENT = re.compile(r"(?:\s*(?://[^\n]*|/\*.*?\*/))+\s*\Z", re.S)
_SPECS = (
    r"(?i)spec\.md",
    r"(?i)readme\.md",
    r"(?i)(?!requirements|license|copying|cmake)[^/]*\.txt",
)
"""Names of a specification, the first that one file alone has."""


@dataclass(frozen=True)
class DesignFiles:
    """A design. Paths are the folder's."""

    folder: Folder
    keys: Description
    """With what file list and Makefile say."""
    top: str
    answer: list[str]
    """The answer's files; the first one defines the top module."""
    given: list[str]
    """Files that are compiled before the answer, in order."""
    headers: dict[str, str]
    """Name by which a file is included -> its text."""
    data: dict[str, list[str]]
    """Data file -> its places in the working folder."""

    @cached_property
    def shown(self) -> list[str]:
        """Data that the answer or a given file names; the rest is the bench's own."""
        sources = [*self.answer, *self.given]
        texts = map(self.folder.text, sources)
        text = "\n".join([*texts, *self.headers.values()])
        return [path for path in self.data if f'{basename(path)}"' in text]

    @property
    def hidden(self) -> dict[str, str]:
        """Place in the working folder -> text of the bench's own data."""
        own = self.data.keys() - self.shown
        return {
            place: self.folder.text(path) for path in sorted(own) for place in self.data[path]
        }

    @property
    def context(self) -> dict[str, str]:
        """What the model sees: path in the workspace -> text."""
        return {**self.build.context, **self.moved(self.shown)}

    @cached_property
    def build(self) -> Build:
        """What the design is compiled with."""
        places = {place: self._inside(path) for path in self.shown for place in self.data[path]}
        return Build(
            further=self.moved(self.answer[1:]),
            given=self.moved(self.given),
            headers={f"rtl/{name}": text for name, text in self.headers.items()},
            define=self.keys.define,
            plusargs=self.keys.bench.plusargs,
            places=places,
        )

    def moved(self, paths: Iterable[str]) -> dict[str, str]:
        """Path in the workspace -> text."""
        return {self._inside(path): self.folder.text(path) for path in paths}

    def _inside(self, path: str) -> str:
        return f"rtl/{relpath(path, self._root)}"

    @cached_property
    def _root(self) -> str:
        files = [*self.answer, *self.given, *self.shown]
        return commonpath(list(map(dirname, files))) or "."


def find_design(folder: Folder, keys: Description, bench: BenchFiles) -> DesignFiles:
    """The design that is stated, or that the bench is about. Raises FieldError for what must be stated."""
    texts = folder.hdl
    stated = folder.sources(folder.glob(keys.answer, "answer"))
    own = {path: texts[path] for path in stated or texts if path not in bench.paths}
    top = only_top(keys.top, bench.duts, own)
    home = definitions(own)[top]
    answer = list(dict.fromkeys([home, *stated]))
    apart = {*answer, *bench.paths}
    given = needed(texts, answer, apart)
    if keys.given:
        sources = folder.sources([*keys.given])
        given = [path for path in sources if path not in apart and path.endswith(SOURCES)]
    headers = included(texts, [*answer, *given], keys.include)
    data = _data(folder, keys.data)
    return DesignFiles(folder, keys, top, answer, given, headers, data)


def definitions(texts: Files) -> dict[str, str]:
    """Name of each module, package and interface -> the path of its file, the first if there are several."""
    names: dict[str, str] = {}
    for path, text in texts.items():
        if path.endswith(SOURCES):
            for name in _UNIT.findall(code_of(text)):
                names.setdefault(name, path)
    return names


def needed(texts: Files, roots: Iterable[str], without: Collection[str]) -> list[str]:
    """Files that define what `roots` use, each after what it uses itself; not those of `without`."""
    names = definitions(texts)
    order: list[str] = []
    known = set(without)

    def visit(root: str) -> None:
        for name in sorted(words_of(texts[root]) & names.keys()):
            path = names[name]
            if path not in known:
                known.add(path)
                visit(path)
                order.append(path)

    for root in roots:
        visit(root)
    return order


def included(texts: Files, roots: Iterable[str], folders: Iterable[str]) -> dict[str, str]:
    """Name by which `roots` include a file, directly or not -> its text, found by its end, in `folders` first."""
    headers: dict[str, str] = {}
    waiting = list(roots)
    while waiting:
        for name in _INCLUDE.findall(texts[waiting.pop()]):
            first = (normpath(f"{folder}/{name}") for folder in folders)
            ending = f"/{name}"
            others = (path for path in texts if f"/{path}".endswith(ending))
            path = next(filter(texts.__contains__, chain(first, others)), None)
            if path and name not in headers:
                headers[name] = texts[path]
                waiting.append(path)
    return headers


def only_top(stated: str, duts: Iterable[str], texts: Files) -> str:
    """The module that an answer defines: the stated one, the bench's, or the only one that none instantiates.

    Raises FieldError for none and for several.
    """
    text = "\n".join(texts.values())
    own = module_names(text)
    for names in ([stated],) if stated else (duts, own, tops_of(text)):
        candidates = set(own).intersection(names)
        if len(candidates) == 1:
            return candidates.pop()
    if not own:
        raise FieldError("top", "no Verilog file defines a module: add the golden design")
    choice = ", ".join(sorted(own))
    raise FieldError("top", f"name the module that an answer defines ({choice[:400]})")


def specification(folder: Folder, stated: str, text: str, top: str) -> tuple[str, str]:
    """(where it is, its text) of the specification; `text` is that of the file with the module `top`."""
    if re.search(r"\s", stated):
        return "problem.toml", stated
    if stated:
        return stated, folder.text(stated)
    for pattern in _SPECS:
        paths = [path for path in folder.paths if re.fullmatch(pattern, path)]
        if len(paths) == 1:
            return paths[0], folder.text(paths[0])
    units = modules(code_of(text))
    start = next(unit.start for unit in units if unit.name == top)
    comment = _COMMENT.search(text[:start])
    if not comment:
        raise FieldError("spec", "there is none: write in spec.md what the design does")
    return "the comment above the module", comment[0]


def _data(folder: Folder, patterns: Iterable[str]) -> dict[str, list[str]]:
    """Data file -> where the working folder must hold it: its name, and the paths by which texts name it."""
    text = "\n".join(folder.hdl.values())
    strings = set(map(normpath, _STRING.findall(text)))
    names = set(map(basename, strings))
    others = (path for path in folder.paths if path not in folder.hdl)
    named = [path for path in others if basename(path) in names]
    data = {}
    for path in folder.glob(patterns, "data") or named:
        name = basename(path)
        places = (string for string in strings if basename(string) == name)
        data[path] = sorted({name, *places})
        for place in data[path]:
            if place.startswith(("/", "../..")):
                raise FieldError("data", f"a text opens {place}: write {name} there")
    distinct = set(map(basename, data))
    if len(distinct) < len(data):
        raise FieldError("data", f"two files have one name: {' '.join(data)}")
    return data
