"""Finds the design in a folder: its modules, what they use and include, and its specification."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from posixpath import basename

from rtl_grader.hdl.text import code_of, modules, words_of
from rtl_grader.problems.folder.description import FolderError
from rtl_grader.problems.folder.files import SOURCES, Folder
from rtl_grader.types.files import Files

_UNIT = re.compile(
    r"\b(?:macromodule|module|interface|package|program)\s+(?:automatic\s+)?(\w+)"
)
_INCLUDE = re.compile(r'`include\s*"(?:\.\.?/)*([^"\n]*)"')
STRING = re.compile(r'"([^"\\\n]+)"')
_COMMENT = re.compile(r"(?:\s*(?://[^\n]*|/\*.*?\*/))+\s*\Z", re.S)
_SPEC = re.compile(
    r"spec\.md|readme\.md|(?!requirements|license|copying|cmake)[^/]*\.txt", re.I
)


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

    def visit(path: str) -> None:
        for name in sorted(words_of(texts[path]) & names.keys()):
            if names[name] not in known:
                known.add(names[name])
                visit(names[name])
                order.append(names[name])

    for root in roots:
        visit(root)
    return order


def included(texts: Files, roots: Iterable[str], folders: Iterable[str]) -> dict[str, str]:
    """Name by which `roots` include a file, directly or not -> its path, found by its end, in `folders` first."""
    files: dict[str, str] = {}
    waiting = list(roots)
    while waiting:
        for name in _INCLUDE.findall(texts[waiting.pop()]):
            paths = [path for path in texts if f"/{path}".endswith(f"/{name}")]
            first = [path for path in paths if path.removesuffix(name).rstrip("/") in folders]
            if paths and name not in files:
                files[name] = (first or paths)[0]
                waiting.append(files[name])
    return files


def only_top(stated: str, duts: Iterable[str], texts: Files) -> str:
    """The module that an answer defines: the stated one, the bench's, or the only one that none instantiates.

    Raises FolderError for none and for several.
    """
    units = [unit for text in texts.values() for unit in modules(code_of(text))]
    own = {unit.name for unit in units if unit.name}
    candidates = own & {stated} if stated else own.intersection(duts) or own
    if len(candidates) > 1:
        candidates = candidates.difference(*(words_of(unit.body) for unit in units))
    if len(candidates) != 1:
        choice = ", ".join(sorted(candidates or own)) or "no Verilog file defines one"
        raise FolderError("top", f"name the module that an answer defines ({choice[:400]})")
    return candidates.pop()


def specification(folder: Folder, stated: str, text: str, top: str) -> tuple[str, str]:
    """(where it is, its text) of the specification; `text` is that of the file with the module `top`."""
    if re.search(r"\s", stated):
        return "problem.toml", stated
    names = {path.lower(): path for path in folder.paths if _SPEC.fullmatch(path)}
    if len(names) > 1:  # of several texts none is certain
        names = {name: names[name] for name in names if name.endswith(".md")}
    if stated or names:
        place = stated or names[max(names)]  # spec.md before readme.md
        return place, folder.text(place)
    unit = next(unit for unit in modules(code_of(text)) if unit.name == top)
    comment = _COMMENT.search(text[: unit.start])
    if not comment:
        raise FolderError("spec", "there is none: write in spec.md what the design does")
    return "the comment above the module", comment[0]


def places_of(path: str, texts: Iterable[str]) -> list[str]:
    """Where the working folder must hold a data file: its name, and the paths by which texts name it."""
    name = basename(path)
    strings = {os.path.normpath(string) for text in texts for string in STRING.findall(text)}
    named = {string for string in strings if basename(string) == name}
    for place in named:
        if place.startswith(("/", "../..")):
            raise FolderError("data", f"a text opens {place}: write {name} there")
    return sorted({name, *named})
