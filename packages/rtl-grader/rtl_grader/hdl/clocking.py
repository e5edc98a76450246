"""Find the clock and reset inputs of a design from how its source uses them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from rtl_grader.hdl.tree import Node, SourceTree, name_of, tokens, walk

CLOCK_LIKE = re.compile(r"(^|_)(clk|clock|ck|mclk|tick)|clk|clock", re.I)
RESET_LIKE = re.compile(r"rst|reset|clr|clear", re.I)
_LOW_LIKE = re.compile(
    r"(^|_)n(rst|reset|clr|clear)|(rst|reset|clr|clear)(_?n|_b|_l)(_i|_in)?$", re.I
)
_NEITHER = frozenset(
    {"SignalEventExpression", "HierarchyInstantiation", "ModuleHeader", "PortDeclaration"}
)


def edges_and_uses(root: Node) -> tuple[dict[str, set[str]], set[str]]:
    """Return (signal -> edges, `posedge` or `negedge`, in event controls; names that are read anywhere else)."""
    edges: dict[str, set[str]] = defaultdict(set)
    for node in walk(root):
        if name_of(node) == "SignalEventExpression" and node.edge.rawText:
            for token in tokens(node.expr):
                edges[token.rawText].add(node.edge.rawText)
    used = {
        node.identifier.rawText
        for node in walk(root, _NEITHER)
        if name_of(node) == "IdentifierName"
    }
    return edges, used


def split_clocks(
    bits: Iterable[str], edges: Iterable[str], used: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return (clocks, resets) among the one-bit inputs `bits`. A clock is only used with an edge. A reset
    is used with an edge and also read (unless it is named like a clock), or is named like a reset. Without
    a clock there is no reset."""
    bits, edges, used = list(bits), set(edges), set(used)
    named = {
        name
        for name in bits
        if name in edges and CLOCK_LIKE.search(name) and not RESET_LIKE.search(name)
    }
    resets = [
        name
        for name in bits
        if name not in named and (name in edges & used or RESET_LIKE.search(name))
    ]
    clocks = [name for name in bits if name in edges and name not in resets]
    if edges and not clocks:
        clocks = [name for name in bits if CLOCK_LIKE.search(name) and name not in resets]
    return clocks, resets if clocks else []


def clocks_and_resets(
    files: Mapping[str, str], bits: Iterable[str]
) -> tuple[list[str], list[str], set[str]]:
    """Return (clocks, resets, active-low resets) among the one-bit inputs `bits` of a design, from all its
    files (path -> text)."""
    trees = [SourceTree(text) for path, text in files.items() if path.endswith((".v", ".sv"))]
    read = [(tree.root, *edges_and_uses(tree.root)) for tree in trees]
    clocks, resets = split_clocks(
        bits,
        {name for _, edges, _ in read for name in edges},
        {name for _, _, used in read for name in used},
    )
    low = set()
    for reset in resets:  # the first file that names it decides
        place = next(
            ((root, edges) for root, edges, used in read if reset in edges or reset in used), None
        )
        if is_active_low(place[0], reset, place[1]) if place else _LOW_LIKE.search(reset):
            low.add(reset)
    return clocks, resets, low


def is_active_low(root: Node, reset: str, edges: Mapping[str, set[str]]) -> bool:
    """Whether a reset is active low: used with its falling edge, negated where it is read, or named so."""
    if edges.get(reset):
        return "negedge" in edges[reset]
    for node in walk(root):
        negated = type(
            node
        ).__name__ == "PrefixUnaryExpressionSyntax" and node.operatorToken.rawText in ("!", "~")
        if (negated or name_of(node) == "ConditionalPredicate") and _words(node) == [reset]:
            return negated or _words(node, "!~") != [reset]
    return bool(_LOW_LIKE.search(reset))


def _words(node: Node, kept: str = "") -> list[str]:
    """A node's tokens without parentheses and negation operators, except those in `kept`."""
    return [
        token.rawText
        for token in tokens(node)
        if token.rawText in kept or token.rawText not in "()!~"
    ]
