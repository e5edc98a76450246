"""Mutations of priority: of two conditions that can hold at once, the other one wins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rtl_core.problems.tree import Node, SourceTree, is_token, name_of
from rtl_core.validation.mutation import Mutation, changed, short


def priority(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Neighbours in an `if` chain, in nested `?:`, in a `casez` or `case (1'b1)`, and among `if`s of a block change places."""
    kind = name_of(node)
    if kind == "ConditionalStatement" and node.elseClause is not None:
        other = node.elseClause.clause
        if name_of(other) == "ConditionalStatement":
            parts = [(node.predicate, other.predicate), (node.statement, other.statement)]
            yield from _exchanged(tree, parts, node.predicate, other.predicate)
    elif kind == "ConditionalExpression":
        other = node.right
        while name_of(other) == "ParenthesizedExpression":
            other = next(part for part in other if not is_token(part))
        if name_of(other) == "ConditionalExpression":
            parts = [(node.predicate, other.predicate), (node.left, other.left)]
            yield from _exchanged(tree, parts, node.predicate, other.predicate)
    elif kind == "CaseStatement" and _overlapping(node):
        items = [item for item in node.items if not is_token(item) and name_of(item) == "StandardCaseItem"]
        for first, second in itertools.pairwise(items):
            yield from _exchanged(tree, [(first, second)], first, second)
    elif kind == "SequentialBlockStatement":
        for first, second in itertools.pairwise(part for part in node.items if not is_token(part)):
            if _lone_if(first) and _lone_if(second):
                yield from _exchanged(tree, [(first, second)], first.predicate, second.predicate)


def _exchanged(tree: SourceTree, parts: list[tuple[Node, Node]], first: Node, second: Node) -> Iterator[Mutation]:
    changes = [change for a, b in parts for change in ((a, tree.text(b)), (b, tree.text(a)))]
    before, behind = (short(tree.text(node).split(":", 1)[0]) for node in (first, second))
    return changed(tree, "priority", f"`{behind}` goes before `{before}`", *changes)


def _overlapping(case: Node) -> bool:
    """Whether two items of a `case` can match at once: `casez`, `casex`, or a constant that is compared with conditions."""
    return case.caseKeyword.rawText in ("casez", "casex") or "Literal" in name_of(case.expr)


def _lone_if(node: Node) -> bool:
    return name_of(node) == "ConditionalStatement" and node.elseClause is None
