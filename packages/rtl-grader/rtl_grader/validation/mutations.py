"""The mutations of a syntax tree, kind by kind. Each rule takes one node and yields its mutations.

Skipped on purpose: headers of modules and functions, parameters, delays, attributes, assertions and
printing tasks (a harness cannot notice them, or the interface check notices them first), and loop
conditions and steps, whose mutants run forever; a counting `for` loop is reversed instead. Rules for a
whole module (registers, inputs, parameters, resets) are in `module_mutations.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

from rtl_grader.hdl.tree import Edit, Node, SourceTree, children, is_token, name_of, walk
from rtl_grader.validation.module_mutations import module_mutations, shares_header
from rtl_grader.validation.mutation import (
    SHOWN,
    Mutation,
    changed,
    changed_within,
    prints,
    replaced,
    short,
    swapped,
)

_NO_BEHAVIOUR = """
ModuleHeader PortDeclaration FunctionPortList FunctionPort ParameterPortList AnsiPortList
NonAnsiPortList DelayControl DelaySyntax OneStepDelay CycleDelay AttributeInstance AttributeSpec
TimeUnitsDeclaration ConcurrentAssertionMember ConcurrentAssertionStatement AssertPropertyStatement
AssumePropertyStatement CoverPropertyStatement ImmediateAssertStatement ImmediateAssumeStatement
ImmediateCoverStatement ImmediateAssertionMember PropertyDeclaration SequenceDeclaration
CovergroupDeclaration SpecifyBlock InstanceName
"""
_SKIPPED = frozenset(_NO_BEHAVIOUR.split())
_OPERATORS = {
    "+": "- ^",
    "-": "+ ^",
    "*": "+",
    "/": "*",
    "%": "/",
    "&": "| ^",
    "|": "& ^",
    "^": "& |",
    "~^": "^",
    "^~": "^",
    "&&": "||",
    "||": "&&",
    "==": "!= >=",
    "!=": "== >",
    "===": "!==",
    "!==": "===",
    "<": "> !=",
    ">": "< !=",
    "<=": ">= ==",
    ">=": "<= ==",
    "<<": ">>",
    ">>": "<<",
    "<<<": ">>",
    ">>>": "<<",
    "+=": "-=",
    "-=": "+=",
    "&=": "|=",
    "|=": "&=",
    "^=": "&=",
}
_REDUCTIONS = {"&": "|", "|": "&", "^": "|", "~&": "~|", "~|": "~&", "~^": "^", "^~": "^"}
_OFF_BY_ONE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_ORDERED = {"-", "/", "%", "<<", ">>", "<<<", ">>>"}
_COMPARISONS = {"==", "!=", "===", "!==", "<", ">", "<=", ">="}
_ASSIGNMENTS = {"AssignmentExpression", "NonblockingAssignmentExpression"}
"""Plain assignments."""
_INDEXED = {
    "BitSelect",
    "SimpleRangeSelect",
    "AscendingRangeSelect",
    "DescendingRangeSelect",
    "RangeDimensionSpecifier",
}
_BASES = {"b": 2, "o": 8, "d": 10, "h": 16}
_FORMATS = {2: "b", 8: "o", 10: "d", 16: "x"}
_EDGES = {"posedge": "negedge", "negedge": "posedge"}
_UNSIZED = {"'0": "'1", "'1": "'0"}
_COMPOUND = {"AddAssignmentExpression": "+", "SubtractAssignmentExpression": "-"}
_STEPS = {
    "PostincrementExpression": "+",
    "UnaryPreincrementExpression": "+",
    "PostdecrementExpression": "-",
    "UnaryPredecrementExpression": "-",
}
_COUNTS = {"AddExpression": "+", "SubtractExpression": "-"}
_LITERALS = {
    "IntegerLiteralExpression",
    "IntegerVectorExpression",
    "UnbasedUnsizedLiteralExpression",
}
_COMPARES = {
    "LessThanExpression",
    "LessThanEqualExpression",
    "GreaterThanExpression",
    "GreaterThanEqualExpression",
    "EqualityExpression",
    "InequalityExpression",
}
_LITERAL = re.compile(r"(?:(\d[\d_]*)?\s*'[sS]?([bodhBODH])\s*)?([0-9a-fA-F][0-9a-fA-F_]*)")


def mutations_of(tree: SourceTree) -> list[Mutation]:
    """Return all mutations that the rules find in a file, in text order."""
    found = [
        mutation
        for node in _behaviour(tree.root)
        for rule in _RULES
        for mutation in rule(tree, node)
    ]
    return found + list(_reversed_declarations(tree)) + list(module_mutations(tree))


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
            bounds = [bound for bound in children(node.selector) if not is_token(bound)]
            stack.extend(bound for bound in bounds if name_of(bound) == "IntegerLiteralExpression")
        elif kind == "ParameterDeclaration" and node.keyword.rawText == "parameter":
            continue
        else:
            stack.extend(reversed(children(node)))


def _binary(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    if type(node).__name__ != "BinaryExpressionSyntax" or name_of(node) in _ASSIGNMENTS:
        return
    token, sign = node.operatorToken, node.operatorToken.rawText
    for other in _OPERATORS.get(sign, "").split():
        yield from changed_within(tree, "operator", node, (token, other))
    if sign in _OFF_BY_ONE:
        yield from changed_within(tree, "off by one", node, (token, _OFF_BY_ONE[sign]))
    if sign in _ORDERED:
        yield from swapped(tree, "swap", node, node.left, node.right)


def _unary(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    if type(node).__name__ != "PrefixUnaryExpressionSyntax":
        return
    token, sign = node.operatorToken, node.operatorToken.rawText
    if sign in ("!", "~"):
        # The space keeps the neighbours from forming another operator, as in `&~a`.
        yield from changed_within(tree, "polarity", node, (token, " "))
    elif sign in _REDUCTIONS:
        yield from changed_within(tree, "operator", node, (token, _REDUCTIONS[sign]))


def _edge(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    if name_of(node) == "SignalEventExpression" and node.edge.rawText in _EDGES:
        yield from changed_within(tree, "polarity", node, (node.edge, _EDGES[node.edge.rawText]))


def _condition(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Negate an `if` or `?:`, swap its branches, or drop one."""
    if name_of(node) == "ConditionalExpression":
        yield from swapped(tree, "swap", node, node.left, node.right)
        for branch in (node.left, node.right):
            if text := tree.text(branch):
                yield from replaced(tree, "dropped branch", node, f"({text})")
    if name_of(node) != "ConditionalStatement":
        return
    predicate = tree.text(node.predicate)
    which = f"`if ({short(predicate)})`"
    if not predicate.lstrip("( ").startswith(("!", "~")):
        negated = f"{which} becomes `if (!({short(predicate)}))`"
        yield from changed(tree, "polarity", negated, (node.predicate, f"!({predicate})"))
    if node.elseClause is None:
        yield from changed(tree, "dropped branch", f"{which} does nothing", (node.statement, ";"))
    elif instead := tree.text(node.elseClause.clause):
        yield from changed(tree, "dropped branch", f"{which} loses its else", (node.elseClause, ""))
        yield from changed(
            tree, "dropped branch", f"{which} is gone, only its else stays", (node, instead)
        )


def _case(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    items = (
        [item for item in node.items if not is_token(item)]
        if name_of(node) == "CaseStatement"
        else []
    )
    for item in items if len(items) > 1 else []:
        label = tree.text(item).split(":", 1)[0]
        yield from changed(
            tree, "dropped branch", f"case item `{short(label)}` is gone", (item, "")
        )


def _assigned(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Assign the complement in a continuous assignment."""
    for assignment in node.assignments if name_of(node) == "ContinuousAssign" else ():
        if name_of(assignment) == "AssignmentExpression":
            right = assignment.right
            yield from changed_within(
                tree, "polarity", assignment, (right, f"~({tree.text(right)})")
            )


def _concatenation(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    if name_of(node) == "ConcatenationExpression":
        parts = [part for part in node.expressions if not is_token(part)]
        texts = [tree.text(part) for part in parts][::-1]
        if texts != texts[::-1]:
            yield from changed_within(tree, "bit order", node, *zip(parts, texts, strict=True))


def _instance(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Swap two neighbouring connections of an instance."""
    if name_of(node) != "HierarchicalInstance":
        return
    wires = [
        c.expr for c in node.connections if not is_token(c) and getattr(c, "expr", None) is not None
    ]
    for left, right in itertools.pairwise(wires):
        a, b = tree.text(left), tree.text(right)
        if a != b:
            described = f"connections `{short(a)}` and `{short(b)}` change places"
            yield from changed(tree, "swap", described, (left, b), (right, a))


def _number(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Change a literal: by one if it is an index, size or operand of a comparison, else to another value."""
    parent = node.parent
    if name_of(node) not in _LITERALS or parent is None:
        return
    compares = name_of(parent) not in _ASSIGNMENTS and (
        getattr(getattr(parent, "operatorToken", None), "rawText", "") in _COMPARISONS
    )
    near = compares or name_of(parent) in (*_INDEXED, "StandardCaseItem")
    # An extra bit of a declared vector is rarely noticeable.
    declared = parent.parent is not None and name_of(parent.parent) == "RangeDimensionSpecifier"
    shown = node
    while (
        shown.parent is not None
        and shown.parent.parent is not None
        and len(tree.text(shown.parent)) <= SHOWN
    ):
        shown = shown.parent
    for text in _other_values(tree.text(node), near=near, smaller_only=declared):
        yield from changed_within(tree, "off by one" if near else "constant", shown, (node, text))


def _other_values(literal: str, *, near: bool, smaller_only: bool = False) -> list[str]:
    """Return other values of a literal in its base and width; empty for a literal with x or z digits.

    `near` gives one more and one less. Otherwise 0 and 1 are exchanged, and the last bit of other values is flipped.
    """
    if literal in _UNSIZED:
        return [_UNSIZED[literal]]
    match = _LITERAL.fullmatch(literal)
    if not match:
        return []
    base = _BASES[(match[2] or "d").lower()]
    try:
        value = int(match[3].replace("_", ""), base)
    except ValueError:
        return []
    if smaller_only:
        wanted = [value - 1]
    elif near:
        wanted = [value + 1, value - 1]
    else:
        wanted = [1 - value if value < 2 else value ^ 1]
    limit = 1 << int(match[1].replace("_", "")) if match[1] else None
    prefix = literal[: match.start(3)]
    return [
        prefix + format(v, _FORMATS[base])
        for v in wanted
        if v >= 0 and (limit is None or v < limit)
    ]


def _loop(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Reverse a loop that counts an `integer` or `int` by one, which exchanges its first and last match."""
    if name_of(node) != "ForLoopStatement":
        return
    start, stop = tree.span(node.openParen), tree.span(node.closeParen)
    if not start or not stop:
        return
    header = tree.data[start[1] : stop[0]].decode()
    match = re.fullmatch(
        r"\s*(?P<type>(?:int|integer)\s+)?(?P<v>\w+)\s*=\s*(?P<a>[^;]+?)\s*;\s*(?P=v)\s*(?P<op><=|<|>=|>)\s*(?P<b>[^;]+?)\s*;"
        r"\s*(?:(?P=v)\s*=\s*(?P=v)\s*(?P<s>[+-])\s*1|(?P=v)\s*(?P<s2>\+\+|--)|(?P<s3>\+\+|--)(?P=v))\s*",
        header,
    )
    if not match:
        return
    v, step = match["v"], (match["s"] or match["s2"] or match["s3"])[0]
    declared = match["type"] or re.search(rf"\b(?:int|integer)\b[^;]*\b{v}\b", tree.data.decode())
    if not declared or (step == "+") != (match["op"][0] == "<"):
        return
    last = (
        match["b"]
        if match["op"] in ("<=", ">=")
        else f"({match['b']}) {'-' if step == '+' else '+'} 1"
    )
    sign, turned = (">=", "-") if step == "+" else ("<=", "+")
    text = f"{match['type'] or ''}{v} = {last}; {v} {sign} {match['a']}; {v} = {v} {turned} 1"
    edit = Edit(start[1], stop[0], text)
    yield Mutation("bit order", f"`for ({short(header)})` becomes `for ({short(text)})`", (edit,))


def _reversed_declarations(tree: SourceTree) -> Iterator[Mutation]:
    """Declare `[7:0]` as `[0:7]` for a vector whose bits are only selected one by one."""
    single: set[str] = set()
    ranged: set[str] = set()
    for node in tree.of("IdentifierSelectName"):
        for select in node.selectors:
            inner = next((c for c in children(select) if not is_token(c)), None)
            if inner is not None:
                (single if name_of(inner) == "BitSelect" else ranged).add(node.identifier.rawText)
    for node in walk(tree.root):  # not by kinds: the order of mutations decides which are drawn
        if name_of(node) not in (
            "ImplicitAnsiPort",
            "PortDeclaration",
            "NetDeclaration",
            "DataDeclaration",
        ):
            continue
        names = {
            d.name.rawText
            for d in walk(node)
            if name_of(d) == "Declarator" and not list(d.dimensions)
        }
        ranges = [
            n for n in walk(node, frozenset({"Declarator"})) if name_of(n) == "SimpleRangeSelect"
        ]
        # In `input [7:0] a, b` the second port has no range of its own and follows the first.
        if len(ranges) != 1 or not names & single or names & ranged:
            continue
        if name_of(node) == "ImplicitAnsiPort" and shares_header(node):
            continue
        msb, lsb = ranges[0].left, ranges[0].right
        for mutation in swapped(tree, "bit order", ranges[0], msb, lsb):
            yield Mutation(
                "bit order", f"`{', '.join(sorted(names))}`: {mutation.description}", mutation.edits
            )


def _saturation(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Saturate a sum or difference that should wrap, and drop the `if` with a comparison around a counter,
    so that one that should stop at a limit wraps."""
    kind = name_of(node)
    if kind in _ASSIGNMENTS:
        value = _bare(node.right)
        if name_of(value) in _COUNTS and name_of(node.left) == "IdentifierName":
            target, sign = tree.text(node.left), _COUNTS[name_of(value)]
            if text := _limited(tree, target, sign, value.left, value.right):
                yield from replaced(
                    tree, "saturation", value if value is node.right else node.right, text
                )
    elif kind in _COMPOUND and name_of(node.left) == "IdentifierName":
        target = tree.text(node.left)
        if text := _limited(tree, target, _COMPOUND[kind], node.left, node.right):
            yield from replaced(tree, "saturation", node, f"{target} = {text}")
    elif kind in _STEPS and name_of(node.operand) == "IdentifierName":
        target = tree.text(node.operand)
        up, down = f"(&{target}) ? ~0 : {target} + 1", f"({target} == 0) ? 0 : {target} - 1"
        yield from replaced(
            tree, "saturation", node, f"{target} = {up if _STEPS[kind] == '+' else down}"
        )
    elif kind == "ConditionalStatement" and node.elseClause is None and _stops_counting(node):
        yield from replaced(tree, "saturation", node, tree.text(node.statement))


def _limited(tree: SourceTree, target: str, sign: str, left: Node, right: Node) -> str | None:
    """Text of `left sign right` that saturates at the unsigned range of `target`; None if there is none."""
    a, b = tree.text(left), tree.text(right)
    if not a or not b:
        return None
    if sign == "-":
        return f"(({a}) < ({b})) ? 0 : ({a}) - ({b})"
    if name_of(_bare(left)) in _LITERALS:
        left, right, a, b = right, left, b, a
    if name_of(_bare(left)) in _LITERALS:
        return None
    # Unsized literals are not allowed in a concatenation; an extra bit of the other operand holds the carry.
    other = f"({b})" if name_of(_bare(right)) in _LITERALS else f"{{1'b0, {b}}}"
    return f"((({{1'b0, {a}}} + {other}) >> $bits({target})) != 0) ? ~0 : ({a}) + ({b})"


def _stops_counting(condition: Node) -> bool:
    """Whether an `if` has a comparison and counts in its body."""
    counts = {name_of(part) for part in walk(condition.statement)} & (
        _COUNTS.keys() | _COMPOUND.keys() | _STEPS.keys()
    )
    return bool(counts) and any(name_of(part) in _COMPARES for part in walk(condition.predicate))


def _bare(node: Node) -> Node:
    """An expression without its outer parentheses."""
    while name_of(node) == "ParenthesizedExpression":
        node = next(part for part in node if not is_token(part))
    return node


def _priority(tree: SourceTree, node: Node) -> Iterator[Mutation]:
    """Swap neighbours in an `if` chain, in nested `?:`, in a `casez` or `case (1'b1)`, and among the `if`s
    of a block."""
    kind = name_of(node)
    if kind == "ConditionalStatement" and node.elseClause is not None:
        other = node.elseClause.clause
        if name_of(other) == "ConditionalStatement":
            parts = [(node.predicate, other.predicate), (node.statement, other.statement)]
            yield from _exchanged(tree, parts, node.predicate, other.predicate)
    elif kind == "ConditionalExpression":
        other = _bare(node.right)
        if name_of(other) == "ConditionalExpression":
            parts = [(node.predicate, other.predicate), (node.left, other.left)]
            yield from _exchanged(tree, parts, node.predicate, other.predicate)
    elif kind == "CaseStatement" and _overlapping(node):
        items = [
            item
            for item in node.items
            if not is_token(item) and name_of(item) == "StandardCaseItem"
        ]
        for first, second in itertools.pairwise(items):
            yield from _exchanged(tree, [(first, second)], first, second)
    elif kind == "SequentialBlockStatement":
        for first, second in itertools.pairwise(part for part in node.items if not is_token(part)):
            if _lone_if(first) and _lone_if(second):
                yield from _exchanged(tree, [(first, second)], first.predicate, second.predicate)


def _exchanged(
    tree: SourceTree, parts: list[tuple[Node, Node]], first: Node, second: Node
) -> Iterator[Mutation]:
    changes = [change for a, b in parts for change in ((a, tree.text(b)), (b, tree.text(a)))]
    before, behind = (short(tree.text(node).split(":", 1)[0]) for node in (first, second))
    return changed(tree, "priority", f"`{behind}` goes before `{before}`", *changes)


def _overlapping(case: Node) -> bool:
    """Whether two items of a `case` can match at once: `casez`, `casex`, or a constant compared with conditions."""
    return case.caseKeyword.rawText in ("casez", "casex") or "Literal" in name_of(case.expr)


def _lone_if(node: Node) -> bool:
    return name_of(node) == "ConditionalStatement" and node.elseClause is None


_RULES: tuple[Callable[[SourceTree, Node], Iterator[Mutation]], ...] = (
    _binary,
    _unary,
    _edge,
    _condition,
    _case,
    _assigned,
    _concatenation,
    _instance,
    _number,
    _loop,
    _saturation,
    _priority,
)
