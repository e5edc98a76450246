"""The mutations of a syntax tree, kind by kind. Each rule takes one node and yields its mutations.

Skipped on purpose: headers of modules and functions, parameters, delays, attributes, assertions and
printing tasks (a harness cannot notice them, or the interface check notices them first), and loop
conditions and steps, whose mutants run forever; a counting `for` loop is reversed instead. Rules for
statements are in `statement_mutations.py`, those for a whole module (registers, inputs, parameters, resets)
in `module_mutations.py`.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from rtl_grader.hdl.tree import Node, SourceTree, children, is_token, name_of, walk
from rtl_grader.validation.module_mutations import module_mutations, shares_header
from rtl_grader.validation.mutation import (
    ASSIGNMENTS,
    COMPARISONS,
    LITERALS,
    SHOWN,
    Mutation,
    changed,
    changed_within,
    nodes_of,
    prints,
    short,
    sign_of,
    swapped,
)
from rtl_grader.validation.statement_mutations import STATEMENT_RULES, condition

_NO_BEHAVIOUR = """
ModuleHeader PortDeclaration FunctionPortList FunctionPort ParameterPortList AnsiPortList
NonAnsiPortList DelayControl DelaySyntax OneStepDelay CycleDelay AttributeInstance AttributeSpec
TimeUnitsDeclaration ConcurrentAssertionMember ConcurrentAssertionStatement AssertPropertyStatement
AssumePropertyStatement CoverPropertyStatement ImmediateAssertStatement ImmediateAssumeStatement
ImmediateCoverStatement ImmediateAssertionMember PropertyDeclaration SequenceDeclaration
CovergroupDeclaration SpecifyBlock InstanceName
"""
_SKIPPED = frozenset(_NO_BEHAVIOUR.split())
_OPERATOR_TABLE = """
+   - ^
-   + ^
*   +
/   *
%   /
&   | ^
|   & ^
^   & |
~^  ^
^~  ^
&&  ||
||  &&
==  != >=
!=  == >
=== !==
!== ===
<   > !=
>   < !=
<=  >= ==
>=  <= ==
<<  >>
>>  <<
<<< >>
>>> <<
+=  -=
-=  +=
&=  |=
|=  &=
^=  &=
"""
_OPERATORS = {
    sign: others for sign, *others in map(str.split, _OPERATOR_TABLE.strip().splitlines())
}
"""Binary operator -> operators that replace it."""
_REDUCTIONS = {"&": "|", "|": "&", "^": "|", "~&": "~|", "~|": "~&", "~^": "^", "^~": "^"}
_OFF_BY_ONE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_ORDERED = {"-", "/", "%", "<<", ">>", "<<<", ">>>"}
_INDEXED = {
    "BitSelect",
    "SimpleRangeSelect",
    "AscendingRangeSelect",
    "DescendingRangeSelect",
    "RangeDimensionSpecifier",
    "StandardCaseItem",
}
"""Where a literal is an index, a size or a case, so that its neighbours are likely errors."""
_DECLARATIONS = ("ImplicitAnsiPort", "PortDeclaration", "NetDeclaration", "DataDeclaration")
_BASES = {"b": 2, "o": 8, "d": 10, "h": 16}
_FORMATS = {2: "b", 8: "o", 10: "d", 16: "x"}
_EDGES = {"posedge": "negedge", "negedge": "posedge"}
_UNSIZED = {"'0": "'1", "'1": "'0"}
_LITERAL = re.compile(r"(?:(\d[\d_]*)?\s*'[sS]?([bodhBODH])\s*)?([0-9a-fA-F][0-9a-fA-F_]*)")


def mutations_of(tree: SourceTree) -> list[Mutation]:
    """Return all mutations that the rules find in a file, in text order."""
    mutations: list[Mutation] = []
    for node in _behaviour(tree.root):
        for rule in _RULES:
            mutations += rule(tree, node)
    return [*mutations, *_reversed_declarations(tree), *module_mutations(tree)]


def _behaviour(root: Node) -> Iterator[Node]:
    """Yield the nodes that the rules examine, without loop headers and calls that only print."""
    stack = [root]
    while stack:
        node = stack.pop()
        if is_token(node) or name_of(node) in _SKIPPED or prints(node):
            continue
        yield node
        kind = name_of(node)
        if kind in ("ForLoopStatement", "LoopStatement"):
            stack.append(node.statement)
        elif kind == "LoopGenerate":
            stack.append(node.block)
        elif kind == "RangeDimensionSpecifier":
            # Only plain bounds of a declared range: `[1-W:0]` does not compile, and `[W:0]` is rarely noticeable.
            for bound in nodes_of(node.selector):
                if name_of(bound) == "IntegerLiteralExpression":
                    stack.append(bound)
        elif kind != "ParameterDeclaration" or node.keyword.rawText != "parameter":
            stack.extend(reversed(children(node)))


def _binary(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    if type(node).__name__ != "BinaryExpressionSyntax" or name_of(node) in ASSIGNMENTS:
        return
    token, sign = node.operatorToken, sign_of(node)
    for other in _OPERATORS.get(sign, ()):
        yield from changed_within(tree, "operator", node, (token, other))
    if sign in _OFF_BY_ONE:
        yield from changed_within(tree, "off by one", node, (token, _OFF_BY_ONE[sign]))
    if sign in _ORDERED:
        yield from swapped(tree, "swap", node, node.left, node.right)


def _unary(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    if type(node).__name__ != "PrefixUnaryExpressionSyntax":
        return
    token, sign = node.operatorToken, sign_of(node)
    if sign in ("!", "~"):
        # The space keeps the neighbours from forming another operator, as in `&~a`.
        yield from changed_within(tree, "polarity", node, (token, " "))
    elif sign in _REDUCTIONS:
        yield from changed_within(tree, "operator", node, (token, _REDUCTIONS[sign]))


def _edge(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    if name_of(node) == "SignalEventExpression" and node.edge.rawText in _EDGES:
        yield from changed_within(
            tree, "polarity", node, (node.edge, _EDGES[node.edge.rawText])
        )


def _assigned(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Assign the complement in a continuous assignment."""
    if name_of(node) != "ContinuousAssign":
        return
    for assignment in node.assignments:
        if name_of(assignment) == "AssignmentExpression":
            right = assignment.right
            complement = f"~({tree.text(right)})"
            yield from changed_within(tree, "polarity", assignment, (right, complement))


def _concatenation(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    if name_of(node) != "ConcatenationExpression":
        return
    parts = nodes_of(node.expressions)
    texts = [tree.text(part) for part in parts]
    backwards = texts[::-1]
    if backwards != texts:
        yield from changed_within(tree, "bit order", node, *zip(parts, backwards, strict=True))


def _instance(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Swap two neighbouring connections of an instance."""
    if name_of(node) != "HierarchicalInstance":
        return
    signals = [getattr(connection, "expr", None) for connection in nodes_of(node.connections)]
    wires = [signal for signal in signals if signal is not None]
    for left, right in itertools.pairwise(wires):
        a, b = tree.text(left), tree.text(right)
        if a != b:
            described = f"connections `{short(a)}` and `{short(b)}` change places"
            yield from changed(tree, "swap", described, (left, b), (right, a))


def _number(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Change a literal: by one if it is an index, size or operand of a comparison, else to another value."""
    parent = node.parent
    if name_of(node) not in LITERALS or parent is None:
        return
    compares = name_of(parent) not in ASSIGNMENTS and sign_of(parent) in COMPARISONS
    near = compares or name_of(parent) in _INDEXED
    # An extra bit of a declared vector is rarely noticeable.
    declared = parent.parent is not None and name_of(parent.parent) == "RangeDimensionSpecifier"
    whole = _surroundings(tree, node)
    for text in _other_values(tree.text(node), near=near, smaller_only=declared):
        yield from changed_within(
            tree, "off by one" if near else "constant", whole, (node, text)
        )


def _surroundings(tree: SourceTree, node: Node) -> Node:
    """The largest expression or statement around a node that is short enough for a description."""
    while node.parent is not None and node.parent.parent is not None:
        if len(tree.text(node.parent)) > SHOWN:
            break
        node = node.parent
    return node


def _other_values(literal: str, *, near: bool, smaller_only: bool = False) -> list[str]:
    """Return other values of a literal in its base and width; empty for a literal with x or z digits.

    `near` gives one more and one less. Otherwise 0 and 1 are exchanged, and the last bit of other values is flipped.
    """
    if literal in _UNSIZED:
        return [_UNSIZED[literal]]
    match = _LITERAL.fullmatch(literal)
    if not match:
        return []
    size, letter, digits = match.groups()
    base = _BASES[(letter or "d").lower()]
    try:
        value = int(digits.replace("_", ""), base)
    except ValueError:
        return []
    if smaller_only:
        others = [value - 1]
    elif near:
        others = [value + 1, value - 1]
    else:
        others = [1 - value if value < 2 else value ^ 1]
    if size:
        limit = 1 << int(size.replace("_", ""))
        others = [other for other in others if other < limit]
    prefix = literal[: match.start(3)]
    return [prefix + format(other, _FORMATS[base]) for other in others if other >= 0]


def _reversed_declarations(tree: SourceTree) -> Iterator[Mutation]:
    """Declare `[7:0]` as `[0:7]` for a vector whose bits are only selected one by one."""
    selects: defaultdict[str, set[bool]] = defaultdict(set)
    for node in tree.of("IdentifierSelectName"):
        for select in node.selectors:
            for inner in nodes_of(select)[:1]:
                selects[node.identifier.rawText].add(name_of(inner) == "BitSelect")
    single = {name for name, are_bits in selects.items() if are_bits == {True}}
    ranged = selects.keys() - single
    for node in walk(tree.root):  # not by kinds: the order of mutations decides which are drawn
        if name_of(node) not in _DECLARATIONS:
            continue
        names = set()
        for part in walk(node):
            if name_of(part) == "Declarator" and not list(part.dimensions):
                names.add(part.name.rawText)
        parts = walk(node, frozenset({"Declarator"}))
        ranges = [part for part in parts if name_of(part) == "SimpleRangeSelect"]
        # In `input [7:0] a, b` the second port has no range of its own and follows the first.
        if len(ranges) != 1 or not names & single or names & ranged:
            continue
        if name_of(node) == "ImplicitAnsiPort" and shares_header(node):
            continue
        (bounds,) = ranges
        for mutation in swapped(tree, "bit order", bounds, bounds.left, bounds.right):
            described = f"`{', '.join(sorted(names))}`: {mutation.description}"
            yield Mutation("bit order", described, mutation.edits)


_RULES: tuple[Callable[[SourceTree, Node], Iterator[Mutation]], ...] = (
    _binary,
    _unary,
    _edge,
    condition,
    _assigned,
    _concatenation,
    _instance,
    _number,
    *STATEMENT_RULES,
)
