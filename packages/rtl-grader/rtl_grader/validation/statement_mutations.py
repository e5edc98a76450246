"""Mutations of statements and conditions: polarity, dropped branches, reversed loops, saturation, priority."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from rtl_grader.hdl.tree import Edit, Node, SourceTree, name_of, walk
from rtl_grader.validation.mutation import (
    ASSIGNMENTS,
    COMPARISONS,
    LITERALS,
    Change,
    Mutation,
    changed,
    nodes_of,
    replaced,
    short,
    sign_of,
    swapped,
)

_COMPOUND = {"AddAssignmentExpression": "+", "SubtractAssignmentExpression": "-"}
_STEPS = {
    "PostincrementExpression": "+",
    "UnaryPreincrementExpression": "+",
    "PostdecrementExpression": "-",
    "UnaryPredecrementExpression": "-",
}
_SUMS = {"AddExpression": "+", "SubtractExpression": "-"}
_COUNTS = _SUMS.keys() | _COMPOUND.keys() | _STEPS.keys()
_LOOP = re.compile(
    r"\s*(?P<type>(?:int|integer)\s+)?(?P<v>\w+)\s*=\s*(?P<first>[^;]+?)\s*;"
    r"\s*(?P=v)\s*(?P<compare><=|<|>=|>)\s*(?P<limit>[^;]+?)\s*;"
    r"\s*(?:(?P=v)\s*=\s*(?P=v)\s*(?P<s>[+-])\s*1|(?P=v)\s*(?P<s2>\+\+|--)|(?P<s3>\+\+|--)(?P=v))\s*"
)
"""The header of a loop that counts by one."""


def condition(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Negate an `if`, swap the branches of a `?:`, or drop a branch."""
    if name_of(node) == "ConditionalExpression":
        yield from swapped(tree, "swap", node, node.left, node.right)
        for branch in (node.left, node.right):
            if text := tree.text(branch):
                yield from replaced(tree, "dropped branch", node, f"({text})")
    if name_of(node) != "ConditionalStatement":
        return
    predicate = tree.text(node.predicate)
    words = short(predicate)
    if not predicate.lstrip("( ").startswith(("!", "~")):
        negated = f"`if ({words})` becomes `if (!({words}))`"
        yield from changed(tree, "polarity", negated, (node.predicate, f"!({predicate})"))
    if node.elseClause is None:
        yield from _dropped(tree, f"`if ({words})` does nothing", (node.statement, ";"))
    elif alternative := tree.text(node.elseClause.clause):
        yield from _dropped(tree, f"`if ({words})` loses its else", (node.elseClause, ""))
        described = f"`if ({words})` is gone, only its else stays"
        yield from _dropped(tree, described, (node, alternative))


def _dropped(tree: SourceTree, description: str, change: Change) -> Iterator[Mutation]:
    return changed(tree, "dropped branch", description, change)


def _case(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Drop an item."""
    if name_of(node) != "CaseStatement":
        return
    items = nodes_of(node.items)
    if len(items) > 1:
        for item in items:
            yield from _dropped(tree, f"case item `{_label(tree, item)}` is gone", (item, ""))


def _label(tree: SourceTree, node: Node) -> str:
    """A condition, or the label of a case item, for a description."""
    label, _, _ = tree.text(node).partition(":")
    return short(label)


def _loop(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Reverse a loop that counts an `integer` or `int` by one, which exchanges its first and last match."""
    if name_of(node) != "ForLoopStatement":
        return
    opening, closing = tree.span(node.openParen), tree.span(node.closeParen)
    if not opening or not closing:
        return
    start, end = opening[1], closing[0]
    header = tree.data[start:end].decode()
    match = _LOOP.fullmatch(header)
    if not match:
        return
    variable, first, last, compare = (
        match["v"],
        match["first"],
        match["limit"],
        match["compare"],
    )
    counts_up = (match["s"] or match["s2"] or match["s3"]).startswith("+")
    declaration = rf"\b(?:int|integer)\b[^;]*\b{variable}\b"
    is_declared = match["type"] or re.search(declaration, tree.data.decode())
    if not is_declared or counts_up != compare.startswith("<"):
        return
    backwards, until = ("-", ">=") if counts_up else ("+", "<=")
    if not compare.endswith("="):
        last = f"({last}) {backwards} 1"
    begin = f"{match['type'] or ''}{variable} = {last}"
    step = f"{variable} = {variable} {backwards} 1"
    text = f"{begin}; {variable} {until} {first}; {step}"
    described = f"`for ({short(header)})` becomes `for ({short(text)})`"
    yield Mutation("bit order", described, (Edit(start, end, text),))


def _saturation(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Saturate a sum or difference that should wrap, and drop the `if` with a comparison around a counter,
    so that one that should stop at a limit wraps."""
    kind = name_of(node)
    if kind == "ConditionalStatement":
        if node.elseClause is None and _stops_counting(node):
            yield from replaced(tree, "saturation", node, tree.text(node.statement))
    elif kind in _STEPS:
        if name_of(node.operand) == "IdentifierName":
            target = tree.text(node.operand)
            text = f"({target} == 0) ? 0 : {target} - 1"
            if _STEPS[kind] == "+":
                text = f"(&{target}) ? ~0 : {target} + 1"
            yield from replaced(tree, "saturation", node, f"{target} = {text}")
    elif kind in ASSIGNMENTS | _COMPOUND.keys() and name_of(node.left) == "IdentifierName":
        yield from _saturated_assignment(tree, node)


def _saturated_assignment(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    target = tree.text(node.left)
    if sign := _COMPOUND.get(name_of(node)):
        if limited := _limited(tree, target, sign, node.left, node.right):
            yield from replaced(tree, "saturation", node, f"{target} = {limited}")
        return
    value = _bare(node.right)
    sign = _SUMS.get(name_of(value))
    limited = sign and _limited(tree, target, sign, value.left, value.right)
    if limited:
        yield from replaced(tree, "saturation", node.right, limited)


def _limited(tree: SourceTree, target: str, sign: str, left: Node, right: Node) -> str | None:
    """Text of `left sign right` that saturates at the unsigned range of `target`; None if there is none."""
    a, b = tree.text(left), tree.text(right)
    if not a or not b:
        return None
    if sign == "-":
        return f"(({a}) < ({b})) ? 0 : ({a}) - ({b})"
    literals = [name_of(_bare(operand)) in LITERALS for operand in (left, right)]
    if all(literals):
        return None
    if literals[0]:
        a, b = b, a
    # Unsized literals are not allowed in a concatenation; an extra bit of the other operand holds the carry.
    other = f"({b})" if any(literals) else f"{{1'b0, {b}}}"
    carry = f"(({{1'b0, {a}}} + {other}) >> $bits({target}))"
    return f"({carry} != 0) ? ~0 : ({a}) + ({b})"


def _stops_counting(statement: Node) -> bool:
    """Whether an `if` has a comparison and counts in its body."""
    if not any(sign_of(part) in COMPARISONS for part in walk(statement.predicate)):
        return False
    return any(name_of(part) in _COUNTS for part in walk(statement.statement))


def _bare(node: Node) -> Node:
    """An expression without its outer parentheses."""
    while name_of(node) == "ParenthesizedExpression":
        (node,) = nodes_of(node)
    return node


def _priority(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Swap neighbours in an `if` chain, in nested `?:`, in a `casez` or `case (1'b1)`, and among the `if`s
    of a block."""
    kind = name_of(node)
    if kind == "ConditionalStatement" and node.elseClause is not None:
        other = node.elseClause.clause
        if name_of(other) == kind:
            yield from _exchanged(tree, node, other, ("predicate", "statement"))
    elif kind == "ConditionalExpression":
        other = _bare(node.right)
        if name_of(other) == kind:
            yield from _exchanged(tree, node, other, ("predicate", "left"))
    elif kind == "CaseStatement" and _may_overlap(node):
        items = [item for item in nodes_of(node.items) if name_of(item) == "StandardCaseItem"]
        for first, second in itertools.pairwise(items):
            described = f"`{_label(tree, second)}` goes before `{_label(tree, first)}`"
            yield from _swapped_whole(tree, described, first, second)
    elif kind == "SequentialBlockStatement":
        for first, second in itertools.pairwise(nodes_of(node.items)):
            if _lone_if(first) and _lone_if(second):
                described = _described(tree, first, second)
                yield from _swapped_whole(tree, described, first, second)


def _described(tree: SourceTree, first: Node, second: Node) -> str:
    return f"`{_label(tree, second.predicate)}` goes before `{_label(tree, first.predicate)}`"


def _exchanged(
    tree: SourceTree, first: Node, second: Node, parts: tuple[str, ...]
) -> Iterator[Mutation]:
    """Exchange the named parts of two conditionals."""
    changes: list[Change] = []
    for part in parts:
        one, two = getattr(first, part), getattr(second, part)
        changes += [(one, tree.text(two)), (two, tree.text(one))]
    return changed(tree, "priority", _described(tree, first, second), *changes)


def _swapped_whole(
    tree: SourceTree, description: str, first: Node, second: Node
) -> Iterator[Mutation]:
    changes = (first, tree.text(second)), (second, tree.text(first))
    return changed(tree, "priority", description, *changes)


def _may_overlap(case: Node) -> bool:
    """Whether two items of a `case` can match at once: `casez`, `casex`, or a constant compared with conditions."""
    return case.caseKeyword.rawText in ("casez", "casex") or "Literal" in name_of(case.expr)


def _lone_if(node: Node) -> bool:
    return name_of(node) == "ConditionalStatement" and node.elseClause is None


STATEMENT_RULES = (_case, _loop, _saturation, _priority)
