"""The noun *mutation*: one wrong edit of a file, and the kinds of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from rtl_core.problems.tree import Edit, Node, SourceTree, edited, name_of

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


Change = tuple[Node, str]
"""A node or token, and the text in its place."""


def changed(tree: SourceTree, kind: Kind, description: str, *changes: Change) -> Iterator[Mutation]:
    """The mutation that makes these changes; none where one of the nodes does not stand in the file as written."""
    spans = [tree.span(node) for node, _ in changes]
    edits = tuple(Edit(*span, text) for span, (_, text) in zip(spans, changes, strict=True) if span)
    if len(edits) == len(changes):
        yield Mutation(kind, description, edits)


def replaced(tree: SourceTree, kind: Kind, node: Node, text: str) -> Iterator[Mutation]:
    """The mutation that puts `text` in the place of a node or token."""
    return changed(tree, kind, f"`{short(tree.text(node))}` becomes `{short(text)}`", (node, text))


def changed_within(tree: SourceTree, kind: Kind, whole: Node, *changes: Change) -> Iterator[Mutation]:
    """A mutation described by the expression around it, before and after."""
    for mutation in changed(tree, kind, "", *changes):
        if span := tree.span(whole):
            moved = (replace(edit, start=edit.start - span[0], end=edit.end - span[0]) for edit in mutation.edits)
            after = edited(tree.data[span[0] : span[1]], moved)
            yield replace(mutation, description=f"`{short(tree.text(whole))}` becomes `{short(after)}`")


def swapped(tree: SourceTree, kind: Kind, whole: Node, left: Node, right: Node) -> Iterator[Mutation]:
    """The mutation in which two parts of `whole` change places; none where they are alike."""
    if tree.text(left) != tree.text(right):
        yield from changed_within(tree, kind, whole, (left, tree.text(right)), (right, tree.text(left)))


def prints(node: Node) -> bool:
    """Whether a node is a call that only prints, dumps or ends the simulation."""
    if name_of(node) != "InvocationExpression":
        return False
    return bool(_PRINTING.match(node.getFirstToken().rawText))
