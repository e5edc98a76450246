"""The noun *mutation*: one wrong edit of a file, and the kinds of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from rtl_core.problems.tree import Edit, Node, SourceTree, name_of

Kind = Literal[
    "operator",
    "constant",
    "bit order",
    "polarity",
    "off by one",
    "dropped branch",
    "swap",
    "truncation",
    "saturation",
    "ignored input",
    "ignored parameter",
    "late reset",
    "missing reset",
    "priority",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_PRINTING = re.compile(
    r"\$(f?(display|write|monitor|strobe)[bho]?|error|fatal|info|warning|dump\w*|finish|stop|sformat\w*)$"
)
SHOWN = 60
"""Longest piece of source text in a description, in characters."""


@dataclass(frozen=True)
class Mutation:
    """One thing to do to a file: all `edits` together. The description says it without file and line."""

    kind: Kind
    description: str
    edits: tuple[Edit, ...]


def short(text: str) -> str:
    """A piece of source text on one line, cut for a description."""
    flat = " ".join(text.split())
    return flat if len(flat) <= SHOWN else flat[: SHOWN - 3] + "..."


def replaced(tree: SourceTree, kind: Kind, node: Node, text: str) -> Iterator[Mutation]:
    """The mutation that puts `text` in the place of a node or token."""
    span = tree.span(node)
    if span:
        yield Mutation(kind, f"`{short(tree.text(node))}` becomes `{short(text)}`", (Edit(*span, text),))


def said(tree: SourceTree, kind: Kind, whole: Node, edits: tuple[Edit, ...]) -> Iterator[Mutation]:
    """A mutation described by the expression around it, before and after."""
    span = tree.span(whole)
    if not span:
        return
    before = tree.text(whole)
    parts, at = [], span[0]
    for edit in sorted(edits, key=lambda e: e.start):
        parts += [tree.data[at : edit.start], edit.text.encode()]
        at = edit.end
    after = b"".join([*parts, tree.data[at : span[1]]]).decode()
    yield Mutation(kind, f"`{short(before)}` becomes `{short(after)}`", edits)


def swapped(tree: SourceTree, kind: Kind, whole: Node, left: Node, right: Node) -> Iterator[Mutation]:
    """The mutation in which two parts of `whole` change places; none where they are alike."""
    first, second = tree.span(left), tree.span(right)
    if first and second and tree.text(left) != tree.text(right):
        yield from said(tree, kind, whole, (Edit(*first, tree.text(right)), Edit(*second, tree.text(left))))


def prints(node: Node) -> bool:
    """Whether a node is a call that only prints, dumps or ends the simulation."""
    if name_of(node) != "InvocationExpression":
        return False
    return bool(_PRINTING.match(node.getFirstToken().rawText))
