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
from collections.abc import Iterator
from typing import cast

from rtl_grader.hdl.tree import Node, SourceTree, children, find, is_token, name_of
from rtl_grader.validation.module_mutations import module_mutations, shares_header
from rtl_grader.validation.mutation import (
    ASSIGNMENTS,
    COMPARISONS,
    LITERALS,
    SHOWN,
    Kind,
    Mutation,
    Mutations,
    Rule,
    changed,
    changed_within,
    exchange,
    nodes_of,
    prints,
    short,
    sign_of,
    swapped,
)
from rtl_grader.validation.statement_mutations import STATEMENT_RULES

_NO_BEHAVIOUR = """
ModuleHeader PortDeclaration FunctionPortList FunctionPort ParameterPortList AnsiPortList
NonAnsiPortList DelayControl DelaySyntax OneStepDelay CycleDelay AttributeInstance AttributeSpec
TimeUnitsDeclaration ConcurrentAssertionMember ConcurrentAssertionStatement AssertPropertyStatement
AssumePropertyStatement CoverPropertyStatement ImmediateAssertStatement ImmediateAssumeStatement
ImmediateCoverStatement ImmediateAssertionMember PropertyDeclaration SequenceDeclaration
CovergroupDeclaration SpecifyBlock InstanceName
"""
_SKIPPED = frozenset(_NO_BEHAVIOUR.split())
_TOKEN_TABLE = """
Binary operator: + - ^
Binary operator: - + ^
Binary operator: * +
Binary operator: / *
Binary operator: % /
Binary operator: & | ^
Binary operator: | & ^
Binary operator: ^ & |
Binary operator: ~^ ^
Binary operator: ^~ ^
Binary operator: && ||
Binary operator: || &&
Binary operator: == != >=
Binary operator: != == >
Binary operator: === !==
Binary operator: !== ===
Binary operator: < > !=
Binary operator: > < !=
Binary operator: <= >= ==
Binary operator: >= <= ==
Binary operator: << >>
Binary operator: >> <<
Binary operator: <<< >>
Binary operator: >>> <<
Binary operator: += -=
Binary operator: -= +=
Binary operator: &= |=
Binary operator: |= &=
Binary operator: ^= &=
Binary swap: -
Binary swap: /
Binary swap: %
Binary swap: <<
Binary swap: >>
Binary swap: <<<
Binary swap: >>>
Binary off by one: < <=
Binary off by one: <= <
Binary off by one: > >=
Binary off by one: >= >
PrefixUnary polarity: !
PrefixUnary polarity: ~
PrefixUnary operator: & |
PrefixUnary operator: | &
PrefixUnary operator: ^ |
PrefixUnary operator: ~& ~|
PrefixUnary operator: ~| ~&
PrefixUnary operator: ~^ ^
PrefixUnary operator: ^~ ^
SignalEvent polarity: posedge negedge
SignalEvent polarity: negedge posedge
"""
"""Form of an expression, kind of the mutation, operator or edge, and what replaces it; nothing if it is
removed, or if the operands are swapped."""
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
_UNSIZED = {"'0": "'1", "'1": "'0"}
_LITERAL = re.compile(r"(?:(\d[\d_]*)?\s*'[sS]?([bodhBODH])\s*)?([0-9a-fA-F][0-9a-fA-F_]*)")


def mutations_of(tree: SourceTree) -> list[Mutation]:
    """Return all mutations that the rules find in a file, in text order."""
    mutations: list[Mutation] = []
    for node in _behaviour(tree.root):
        mutations += _tokens(tree, node)
        for rules in (_RULES, STATEMENT_RULES):
            if rule := rules.get(name_of(node)):
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


_TokenChanges = defaultdict[tuple[str, str], list[tuple[Kind, str]]]
"""(type of a node, its token) -> kinds of mutations, and the tokens that they put in its place."""


def _token_changes() -> _TokenChanges:
    changes = _TokenChanges(list)
    for line in _TOKEN_TABLE.strip().splitlines():
        rule, _, signs = line.partition(": ")
        form, _, kind = rule.partition(" ")
        sign, *others = signs.split()
        # The space keeps the neighbours from forming another operator, as in `&~a`.
        for other in others or [" "]:
            changes[f"{form}ExpressionSyntax", sign].append((cast(Kind, kind), other))
    return changes


def _tokens(tree: SourceTree, node: Node) -> Mutations:
    """Replace an operator or an edge, or swap the operands of one that is not commutative."""
    form = type(node).__name__
    if form not in _FORMS or name_of(node) in ASSIGNMENTS:
        return
    token = node.edge if form == "SignalEventExpressionSyntax" else node.operatorToken
    for kind, other in _TOKENS.get((form, token.rawText), ()):
        if kind == "swap":
            yield from swapped(tree, kind, node, node.left, node.right)
        else:
            yield from changed_within(tree, kind, node, (token, other))


def _assigned(tree: SourceTree, node: Node) -> Mutations:
    """Assign the complement in a continuous assignment."""
    for assignment in node.assignments:
        if name_of(assignment) == "AssignmentExpression":
            right = assignment.right
            complement = f"~({tree.text(right)})"
            yield from changed_within(tree, "polarity", assignment, (right, complement))


def _concatenation(tree: SourceTree, node: Node) -> Mutations:
    """Reverse the order of the parts."""
    parts = nodes_of(node.expressions)
    texts = [tree.text(part) for part in parts]
    backwards = texts[::-1]
    if backwards != texts:
        yield from changed_within(tree, "bit order", node, *zip(parts, backwards, strict=True))


def _instance(tree: SourceTree, node: Node) -> Mutations:
    """Swap two neighbouring connections of an instance."""
    signals = [getattr(connection, "expr", None) for connection in nodes_of(node.connections)]
    wires = [signal for signal in signals if signal is not None]
    for pair in itertools.pairwise(wires):
        a, b = map(tree.text, pair)
        if a != b:
            described = f"connections `{short(a)}` and `{short(b)}` change places"
            yield from changed(tree, "swap", described, *exchange(tree, pair))


def _number(tree: SourceTree, node: Node) -> Mutations:
    """Change a literal: by one if it is an index, size or operand of a comparison, else to another value."""
    parent = node.parent
    if parent is None:
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


def _reversed_declarations(tree: SourceTree) -> Mutations:
    """Declare `[7:0]` as `[0:7]` for a vector whose bits are only selected one by one."""
    selects: defaultdict[str, set[bool]] = defaultdict(set)
    for node in tree.of("IdentifierSelectName"):
        for select in node.selectors:
            for inner in nodes_of(select)[:1]:
                selects[node.identifier.rawText].add(name_of(inner) == "BitSelect")
    single = {name for name, are_bits in selects.items() if are_bits == {True}}
    ranged = selects.keys() - single
    # Not by kinds: the order of mutations decides which are drawn.
    for node in find(tree.root, *_DECLARATIONS):
        declarators = find(node, "Declarator")
        names = {part.name.rawText for part in declarators if not list(part.dimensions)}
        ranges = list(find(node, "SimpleRangeSelect", skip=frozenset({"Declarator"})))
        # In `input [7:0] a, b` the second port has no range of its own and follows the first.
        if len(ranges) != 1 or not names & single or names & ranged:
            continue
        if name_of(node) == "ImplicitAnsiPort" and shares_header(node):
            continue
        (bounds,) = ranges
        for mutation in swapped(tree, "bit order", bounds, bounds.left, bounds.right):
            described = f"`{', '.join(sorted(names))}`: {mutation.description}"
            yield Mutation("bit order", described, mutation.edits)


_TOKENS = _token_changes()
_FORMS = {form for form, _ in _TOKENS}
_RULES: dict[str, Rule] = {
    "ContinuousAssign": _assigned,
    "ConcatenationExpression": _concatenation,
    "HierarchicalInstance": _instance,
    **dict.fromkeys(LITERALS, _number),
}
"""Kind of a node -> its mutations."""
