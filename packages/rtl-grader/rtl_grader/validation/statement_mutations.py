"""Mutations of statements and `?:`: polarity, dropped branches, reversed loops, saturation, priority."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from rtl_grader.hdl.tree import Edit, Node, SourceTree, find, name_of, walk
from rtl_grader.validation.mutation import (
    ASSIGNMENTS,
    COMPARISONS,
    LITERALS,
    Mutation,
    Mutations,
    Rule,
    changed,
    exchange,
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


def _choice(tree: SourceTree, node: Node) -> Mutations:
    """Swap the branches of a `?:`, or drop one; exchange it with one that is nested in its last branch."""
    yield from swapped(tree, "swap", node, node.left, node.right)
    for branch in (node.left, node.right):
        if text := tree.text(branch):
            yield from replaced(tree, "dropped branch", node, f"({text})")
    other = _bare(node.right)
    if name_of(other) == name_of(node):
        conditions = node.predicate, other.predicate
        yield from _prior(tree, conditions, conditions, (node.left, other.left))


def _if(tree: SourceTree, node: Node) -> Mutations:
    """Negate an `if`, drop a branch, exchange it with the next in a chain, or drop the comparison around a
    counter, so that one that should stop at a limit wraps."""
    predicate = tree.text(node.predicate)
    words = f"`if ({short(predicate)})`"
    if not predicate.lstrip("( ").startswith(("!", "~")):
        described = f"{words} becomes `if (!({short(predicate)}))`"
        yield from changed(tree, "polarity", described, (node.predicate, f"!({predicate})"))
    if node.elseClause is None:
        described = f"{words} does nothing"
        yield from changed(tree, "dropped branch", described, (node.statement, ";"))
        if _stops_counting(node):
            yield from replaced(tree, "saturation", node, tree.text(node.statement))
        return
    other = node.elseClause.clause
    if alternative := tree.text(other):
        described = f"{words} loses its else"
        yield from changed(tree, "dropped branch", described, (node.elseClause, ""))
        described = f"{words} is gone, only its else stays"
        yield from changed(tree, "dropped branch", described, (node, alternative))
    if name_of(other) == name_of(node):
        conditions = node.predicate, other.predicate
        branches = node.statement, other.statement
        yield from _prior(tree, conditions, conditions, branches)


def _prior(tree: SourceTree, labels: Iterable[Node], *pairs: tuple[Node, Node]) -> Mutations:
    """Exchange two alternatives, given by their conditions or case items: the nodes of each pair change places."""
    first, second = (_label(tree, label) for label in labels)
    described = f"`{second}` goes before `{first}`"
    return changed(tree, "priority", described, *exchange(tree, *pairs))


def _label(tree: SourceTree, node: Node) -> str:
    """A condition, or the label of a case item, for a description."""
    label, _, _ = tree.text(node).partition(":")
    return short(label)


def _case(tree: SourceTree, node: Node) -> Mutations:
    """Drop an item, or exchange neighbours that may match at once."""
    items = nodes_of(node.items)
    for item in items if len(items) > 1 else ():
        described = f"case item `{_label(tree, item)}` is gone"
        yield from changed(tree, "dropped branch", described, (item, ""))
    # `casez`, `casex`, or a constant compared with conditions
    if node.caseKeyword.rawText in ("casez", "casex") or "Literal" in name_of(node.expr):
        items = [item for item in items if name_of(item) == "StandardCaseItem"]
        for pair in itertools.pairwise(items):
            yield from _prior(tree, pair, pair)


def _block(tree: SourceTree, node: Node) -> Mutations:
    """Exchange neighbouring `if`s without an `else`."""
    for pair in itertools.pairwise(nodes_of(node.items)):
        if all(map(_is_lone_if, pair)):
            yield from _prior(tree, (one.predicate for one in pair), pair)


def _is_lone_if(node: Node) -> bool:
    return name_of(node) == "ConditionalStatement" and node.elseClause is None


def _loop(tree: SourceTree, node: Node) -> Mutations:
    """Reverse a loop that counts an `integer` or `int` by one, which exchanges its first and last match."""
    opening, closing = tree.span(node.openParen), tree.span(node.closeParen)
    if not opening or not closing:
        return
    start, end = opening[1], closing[0]
    header = tree.data[start:end].decode()
    match = _LOOP.fullmatch(header)
    if not match:
        return
    variable, first, last, compare = match.group("v", "first", "limit", "compare")
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


def _step(tree: SourceTree, node: Node) -> Mutations:
    """Saturate a counter that should wrap."""
    if name_of(node.operand) == "IdentifierName":
        target = tree.text(node.operand)
        text = f"({target} == 0) ? 0 : {target} - 1"
        if _STEPS[name_of(node)] == "+":
            text = f"(&{target}) ? ~0 : {target} + 1"
        yield from replaced(tree, "saturation", node, f"{target} = {text}")


def _assignment(tree: SourceTree, node: Node) -> Mutations:
    """Saturate a sum or difference that should wrap."""
    if name_of(node.left) != "IdentifierName":
        return
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
    return any(True for _ in find(statement.statement, *_COUNTS))


def _bare(node: Node) -> Node:
    """An expression without its outer parentheses."""
    while name_of(node) == "ParenthesizedExpression":
        (node,) = nodes_of(node)
    return node


STATEMENT_RULES: dict[str, Rule] = {
    "ConditionalExpression": _choice,
    "ConditionalStatement": _if,
    "CaseStatement": _case,
    "SequentialBlockStatement": _block,
    "ForLoopStatement": _loop,
    **dict.fromkeys(_STEPS, _step),
    **dict.fromkeys(ASSIGNMENTS | _COMPOUND.keys(), _assignment),
}
"""Kind of a node -> its mutations."""
