"""Write docs/messages.md, errors and findings with their remedies, from the source: `python -m scripts.messages`."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import rtl_core  # noqa: F401  (its names of the commands)
from rtl_grader.words import command

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/messages.md"
FOLDERS = ("cli", "flows", "operations", "tasks", "rtl_core", "packages/rtl-grader/rtl_grader")
SHORT = 12
"""Words of a remedy that is left out, because it says no more than the error that prints it."""
INTERNAL = {"FolderError", "CallError"}
"""Errors whose second argument is no remedy."""
HEAD = """\
# What does this message mean?

Errors and findings whose remedy takes more than a few words, in the order of their text; `…` stands for a name or a
number. Not here? Its own line after `->` says all there is to do. Made from the source by `python -m
scripts.messages`. Words: [glossary](glossary.md).

"""


def main() -> None:
    """Write the page, or with `--check` fail if it is not current."""
    page = HEAD + "".join(f"- **{message}**: {remedy}\n" for message, remedy in rows())
    if sys.argv[1:] == ["--check"]:
        sys.exit(PAGE.read_text() != page and f"{PAGE}: run `python -m scripts.messages`")
    PAGE.write_text(page)


def rows() -> list[tuple[str, str]]:
    """(message, remedy) of every error that is raised with both, in order and without repetitions."""
    pairs: set[tuple[str, str]] = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            pairs.update(_errors(ast.parse(path.read_text(encoding="utf-8"))))
    return sorted(pairs, key=lambda row: (re.sub(r"\W", "", row[0]).casefold(), row))


def _errors(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.Raise(exc=ast.Call(func=ast.Name(id=name), args=[message, remedy, *_]))
                | ast.Call(
                    func=ast.Name(id="Finding" as name), args=[_, _, message, remedy, *_]
                )
            ) if name not in INTERNAL:
                texts = _text(message), _text(remedy)
                if re.search("[a-z]{3}", texts[0]) and len(texts[1].split()) >= SHORT:
                    yield texts


def _text(node: ast.AST) -> str:
    """The text of a literal; each computed part is `…`, and empty if nothing is literal."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"\s+", " ", text.replace("*", "\\*"))
        case ast.JoinedStr(values=parts):
            return "".join(_part(part) for part in parts)
        case ast.FormattedValue(value=ast.Call(func=ast.Name(id="command"), args=[name])):
            return command(_text(name))
    return ""


def _part(node: ast.AST) -> str:
    return _text(node) or "…"


if __name__ == "__main__":
    main()
