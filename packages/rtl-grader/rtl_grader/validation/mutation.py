"""A mutation (one wrong edit of a file), its kinds, and functions that build mutations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from rtl_grader.hdl.tree import Edit, Node, SourceTree, edited, name_of

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
"""Maximum characters of source text in a description."""


@dataclass(frozen=True)
class Mutation:
    """A change of a file: all `edits` together. The description omits file and line."""

    kind: Kind
    description: str
    edits: tuple[Edit, ...]


def short(text: str) -> str:
    """Source text on one line, shortened for a description."""
    flat = " ".join(text.split())
    return flat if len(flat) <= SHOWN else flat[: SHOWN - 3] + "..."


Change = tuple[Node, str]
"""A node or token, and its replacement."""


def changed(tree: SourceTree, kind: Kind, description: str, *changes: Change) -> Iterator[Mutation]:
    """Yield the mutation with these changes; nothing if one of the nodes is not in the file as written (a macro)."""
    spans = [tree.span(node) for node, _ in changes]
    edits = tuple(Edit(*span, text) for span, (_, text) in zip(spans, changes, strict=True) if span)
    if len(edits) == len(changes):
        yield Mutation(kind, description, edits)


def replaced(tree: SourceTree, kind: Kind, node: Node, text: str) -> Iterator[Mutation]:
    """Yield the mutation that replaces a node or token by `text`."""
    return changed(tree, kind, f"`{short(tree.text(node))}` becomes `{short(text)}`", (node, text))


def changed_within(
    tree: SourceTree, kind: Kind, whole: Node, *changes: Change
) -> Iterator[Mutation]:
    """Yield the mutation with these changes, described by the surrounding expression before and after."""
    for mutation in changed(tree, kind, "", *changes):
        if span := tree.span(whole):
            moved = (
                replace(edit, start=edit.start - span[0], end=edit.end - span[0])
                for edit in mutation.edits
            )
            after = edited(tree.data[span[0] : span[1]], moved)
            yield replace(
                mutation, description=f"`{short(tree.text(whole))}` becomes `{short(after)}`"
            )


def swapped(
    tree: SourceTree, kind: Kind, whole: Node, left: Node, right: Node
) -> Iterator[Mutation]:
    """Yield the mutation that swaps two parts of `whole`; nothing if they are equal."""
    if tree.text(left) != tree.text(right):
        yield from changed_within(
            tree, kind, whole, (left, tree.text(right)), (right, tree.text(left))
        )


def prints(node: Node) -> bool:
    """Whether a node is a call that only prints, dumps or ends the simulation."""
    if name_of(node) != "InvocationExpression":
        return False
    return bool(_PRINTING.match(node.getFirstToken().rawText))
