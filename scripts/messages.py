"""Write docs/messages.md, errors and findings with their remedies, from the source: `python -m scripts.messages`."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import rtl_core  # noqa: F401  (its names of the commands)
from rtl_core.backend.tinker.lacking import table
from rtl_grader.words import command

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/messages.md"
FOLDERS = (
    *("cli", "flows", "operations", "tasks", "rtl_core"),
    "packages/rtl-grader/rtl_grader",
    "packages/localtinker/localtinker",
)
SHORT = 16
"""Words of a remedy that is left out, because it says no more than the error that prints it."""
INTERNAL = {"FieldError", "CallError"}
"""Errors whose second argument is no remedy."""
HEAD = """\
# What does this message mean?

Errors and findings whose remedy takes more than a few words, in the order of their text; `…` stands for a name or a
number, and messages with one remedy stand together. Not here? Its line after `->`, if any, says what to do. Made
from the source by `python -m scripts.messages`. Words: [glossary](glossary.md).

"""


def main() -> None:
    """Write the page, or with `--check` fail if it is not current."""
    by_remedy: dict[str, list[str]] = {}
    for message, remedy in rows():
        by_remedy.setdefault(remedy, []).append(f"**{message}**")
    page = HEAD
    for remedy, messages in by_remedy.items():
        page += f"- {', '.join(messages)}: {remedy}\n"
    if sys.argv[1:] == ["--check"]:
        sys.exit(PAGE.read_text() != page and f"{PAGE}: run `python -m scripts.messages`")
    PAGE.write_text(page)


def rows() -> list[tuple[str, str]]:
    """(message, remedy) of every error and finding that is made with both, in order and without repetitions."""
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    ]
    constants: dict[str, str] = {}
    for tree in trees:
        _assign(tree.body, constants)
    pairs = {(f"{row['what']}, but …", row["remedy"]) for row in table()}
    for tree in trees:
        pairs.update(_pairs(tree, constants))
    told = {(_plain(message), _plain(remedy)) for message, remedy in pairs}
    kept = [
        row for row in told if re.search("[a-z]{3}", row[0]) and len(row[1].split()) >= SHORT
    ]
    return sorted(kept, key=lambda row: (re.sub(r"\W", "", row[0]).casefold(), row))


def _plain(text: str) -> str:
    """`text` with `…` for each field of `str.format`, for the page."""
    return re.sub(r"\{\w+\}", "…", re.sub(r"\s+", " ", text)).replace("*", "\\*")


def _assign(nodes: Iterable[ast.AST], names: dict[str, str]) -> None:
    """Note the text that each assignment among `nodes` gives a name."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = _text(value, names)


def _pairs(tree: ast.AST, constants: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Both texts of each error and finding, whether it is raised, returned, yielded or kept in a list or a table.

    A name stands for what was last assigned to it above.
    """
    names = dict(constants)
    kinds = (ast.Assign, ast.Call)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        _assign([node], names)
        match node:
            case (
                ast.Call(func=ast.Name(id="Finding"), args=[_, _, message, remedy, *_])
                | ast.Call(func=ast.Name(id="Kind"), args=[ast.Name(), message, remedy, *_])
                | ast.Call(
                    func=ast.Attribute(attr="append"), args=[ast.Tuple(elts=[message, remedy])]
                )
            ):
                yield _text(message, names), _text(remedy, names)
            case ast.Call(func=ast.Name(id=name), args=[message, remedy, *_]) if (
                re.search("(Error|kind)$", name) and name not in INTERNAL
            ):
                yield _text(message, names), _text(remedy, names)


def _text(node: ast.AST, names: Mapping[str, str]) -> str:
    """The text of a literal, or of a name for one; each computed part is `…`, and empty if nothing is literal."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return names.get(name, "")
        case ast.JoinedStr(values=parts):
            return "".join(_part(part, names) for part in parts)
        case ast.IfExp(body=first, orelse=second):
            return _text(second, names) or _text(first, names)
        case ast.Call(func=ast.Attribute(value=ast.JoinedStr() as joined, attr="rstrip")):
            return _text(joined, names)
        case ast.FormattedValue(value=ast.Call(func=ast.Name(id="command"), args=[name])):
            return command(_text(name, names))
        case ast.FormattedValue(
            value=ast.Call(func=ast.Name(id="command_for"), args=[_, name])
        ):
            return f"`rtl-distill {_text(name, names)} RUN`"
    return ""


def _part(node: ast.AST, names: Mapping[str, str]) -> str:
    """A part of an f-string; names of constants stand for their texts."""
    match node:
        case ast.FormattedValue(value=ast.Name(id=name)) if name.isupper():
            return names.get(name) or "…"
    return _text(node, names) or "…"


if __name__ == "__main__":
    main()
