"""Mutations of arithmetic at the end of its range: saturation in place of wrapping, and the limit that is gone."""

from __future__ import annotations

from collections.abc import Iterator

from rtl_core.problems.tree import Node, SourceTree, is_token, name_of, walk
from rtl_core.validation.mutation import Mutation, replaced

_PLAIN = {"AssignmentExpression", "NonblockingAssignmentExpression"}
_COMPOUND = {"AddAssignmentExpression": "+", "SubtractAssignmentExpression": "-"}
_STEPS = {
    "PostincrementExpression": "+", "UnaryPreincrementExpression": "+",
    "PostdecrementExpression": "-", "UnaryPredecrementExpression": "-",
}  # fmt: skip
_COUNTS = {"AddExpression": "+", "SubtractExpression": "-"}
_LITERALS = {"IntegerLiteralExpression", "IntegerVectorExpression", "UnbasedUnsizedLiteralExpression"}
_COMPARES = {
    "LessThanExpression", "LessThanEqualExpression", "GreaterThanExpression", "GreaterThanEqualExpression",
    "EqualityExpression", "InequalityExpression",
}  # fmt: skip


def saturation(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """A sum or difference that stays at the last value of its target instead of wrapping; an `if` with a comparison, around
    counting, that is gone, so that what stopped at a limit wraps."""
    kind = name_of(node)
    if kind in _PLAIN:
        value = _bare(node.right)
        if name_of(value) in _COUNTS and name_of(node.left) == "IdentifierName":
            target, sign = tree.text(node.left), _COUNTS[name_of(value)]
            if text := _limited(tree, target, sign, value.left, value.right):
                yield from replaced(tree, "saturation", value if value is node.right else node.right, text)
    elif kind in _COMPOUND and name_of(node.left) == "IdentifierName":
        target = tree.text(node.left)
        if text := _limited(tree, target, _COMPOUND[kind], node.left, node.right):
            yield from replaced(tree, "saturation", node, f"{target} = {text}")
    elif kind in _STEPS and name_of(node.operand) == "IdentifierName":
        target, sign = tree.text(node.operand), _STEPS[kind]
        text = (
            f"{target} = (&{target}) ? ~0 : {target} + 1"
            if sign == "+"
            else f"{target} = ({target} == 0) ? 0 : {target} - 1"
        )
        yield from replaced(tree, "saturation", node, text)
    elif kind == "ConditionalStatement" and node.elseClause is None and _stops_counting(node):
        yield from replaced(tree, "saturation", node, tree.text(node.statement))


def _limited(tree: SourceTree, target: str, sign: str, left: Node, right: Node) -> str | None:
    """The text of `left sign right` that saturates at the range of `target`, unsigned; None where it cannot be written."""
    a, b = tree.text(left), tree.text(right)
    if not a or not b:
        return None
    if sign == "-":
        return f"(({a}) < ({b})) ? 0 : ({a}) - ({b})"
    if name_of(_bare(left)) in _LITERALS:
        left, right, a, b = right, left, b, a
    if name_of(_bare(left)) in _LITERALS:
        return None
    # Unsized literals must not stand in a concatenation; one more bit on the other side holds the carry.
    other = f"({b})" if name_of(_bare(right)) in _LITERALS else f"{{1'b0, {b}}}"
    return f"((({{1'b0, {a}}} + {other}) >> $bits({target})) != 0) ? ~0 : ({a}) + ({b})"


def _stops_counting(condition: Node) -> bool:
    """Whether an `if` compares something and counts only then."""
    counts = {name_of(part) for part in walk(condition.statement)} & (_COUNTS.keys() | _COMPOUND.keys() | _STEPS.keys())
    return bool(counts) and any(name_of(part) in _COMPARES for part in walk(condition.predicate))


def _bare(node: Node) -> Node:
    """An expression without the parentheses around it."""
    while name_of(node) == "ParenthesizedExpression":
        node = next(part for part in node if not is_token(part))
    return node
