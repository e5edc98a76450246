"""A mutation (one wrong edit of a file), its kinds, and functions that build mutations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from rtl_grader.hdl.tree import Edit, Node, SourceTree, edited, is_token, name_of

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
ASSIGNMENTS = {"AssignmentExpression", "NonblockingAssignmentExpression"}
"""Plain assignments."""
LITERALS = {
    "IntegerLiteralExpression",
    "IntegerVectorExpression",
    "UnbasedUnsizedLiteralExpression",
}
COMPARISONS = {"==", "!=", "===", "!==", "<", ">", "<=", ">="}
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


Mutations = Iterator[Mutation]
Rule = Callable[[SourceTree, Node], Mutations]
"""Yields the mutations of a node."""
Change = tuple[Node, str]
"""A node or token, and its replacement."""


def changed(tree: SourceTree, kind: Kind, description: str, *changes: Change) -> Mutations:
    """Yield the mutation with these changes; nothing if one of the nodes is not in the file as written (a macro)."""
    edits = []
    for node, text in changes:
        if (span := tree.span(node)) is None:
            return
        edits.append(Edit(*span, text))
    yield Mutation(kind, description, tuple(edits))


def replaced(tree: SourceTree, kind: Kind, node: Node, text: str) -> Mutations:
    """Yield the mutation that replaces a node or token by `text`."""
    return changed_within(tree, kind, node, (node, text))


def changed_within(tree: SourceTree, kind: Kind, whole: Node, *changes: Change) -> Mutations:
    """Yield the mutation with these changes, described by the surrounding expression before and after."""
    span = tree.span(whole)
    if span is None:
        return
    start, end = span
    for mutation in changed(tree, kind, "", *changes):
        edits = [
            Edit(edit.start - start, edit.end - start, edit.text) for edit in mutation.edits
        ]
        after = edited(tree.data[start:end], edits)
        described = f"`{short(tree.text(whole))}` becomes `{short(after)}`"
        yield replace(mutation, description=described)


def exchange(tree: SourceTree, *pairs: tuple[Node, Node]) -> list[Change]:
    """Changes by which the nodes of each pair change places."""
    changes = []
    for one, other in pairs:
        changes += [(one, tree.text(other)), (other, tree.text(one))]
    return changes


def swapped(tree: SourceTree, kind: Kind, whole: Node, left: Node, right: Node) -> Mutations:
    """Yield the mutation that swaps two parts of `whole`; nothing if they are equal."""
    changes = exchange(tree, (left, right))
    if tree.text(left) != tree.text(right):
        yield from changed_within(tree, kind, whole, *changes)


def sign_of(node: Node) -> str:
    """The operator of an expression; empty for other nodes."""
    token = getattr(node, "operatorToken", None)
    return "" if token is None else str(token.rawText)


def nodes_of(node: Node) -> list[Node]:
    """The parts of a node or list that are no tokens."""
    return [part for part in node if part is not None and not is_token(part)]


def prints(node: Node) -> bool:
    """Whether a node is a call that only prints, dumps or ends the simulation."""
    if name_of(node) != "InvocationExpression":
        return False
    return bool(_PRINTING.match(node.getFirstToken().rawText))
