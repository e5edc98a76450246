"""Find the clock and reset inputs of a design from how its source uses them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from rtl_grader.hdl.tree import Node, SourceTree, find, name_of, tokens
from rtl_grader.types.files import Files

Edges = dict[str, set[str]]
"""Signal -> `posedge` or `negedge` or both, as in event controls."""
CLOCK_LIKE = re.compile(r"(^|_)(clk|clock|ck|mclk|tick)|clk|clock", re.I)
RESET_LIKE = re.compile(r"rst|reset|clr|clear", re.I)
_LOW_LIKE = re.compile(
    r"(^|_)n(rst|reset|clr|clear)|(rst|reset|clr|clear)(_?n|_b|_l)(_i|_in)?$", re.I
)
_NEGATIONS = ("UnaryLogicalNotExpression", "UnaryBitwiseNotExpression")
_PARENTHESES, _NOT = frozenset("()"), frozenset("!~")
_NEITHER = frozenset(
    {"SignalEventExpression", "HierarchyInstantiation", "ModuleHeader", "PortDeclaration"}
)


def edges_and_uses(root: Node) -> tuple[Edges, set[str]]:
    """Return (signal -> edges, `posedge` or `negedge`, in event controls; names that are read anywhere else)."""
    edges: Edges = defaultdict(set)
    for node in find(root, "SignalEventExpression"):
        if node.edge.rawText:
            for token in tokens(node.expr):
                edges[token.rawText].add(node.edge.rawText)
    names = find(root, "IdentifierName", skip=_NEITHER)
    return edges, {node.identifier.rawText for node in names}


def split_clocks(
    bits: Iterable[str], edges: Iterable[str], used: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return (clocks, resets) among the one-bit inputs `bits`. A clock is only used with an edge. A reset
    is used with an edge and also read (unless it is named like a clock), or is named like a reset. Without
    a clock there is no reset."""
    bits = list(bits)
    edges, uses = set(edges), set(used)
    clocks, resets = [], []
    for name in bits:
        is_like_reset = RESET_LIKE.search(name)
        has_edge = name in edges
        if has_edge and CLOCK_LIKE.search(name) and not is_like_reset:
            clocks.append(name)
        elif is_like_reset or (has_edge and name in uses):
            resets.append(name)
        elif has_edge:
            clocks.append(name)
    if edges and not clocks:
        clocks = [name for name in bits if CLOCK_LIKE.search(name) and name not in resets]
    return clocks, resets if clocks else []


def clocks_and_resets(
    files: Files, bits: Iterable[str]
) -> tuple[list[str], list[str], set[str]]:
    """Return (clocks, resets, active-low resets) among the one-bit inputs `bits` of a design, from all its
    files (path -> text)."""
    readings = []
    every_edge: set[str] = set()
    every_use: set[str] = set()
    for path, text in files.items():
        if not path.endswith((".v", ".sv")):
            continue
        tree = SourceTree(text)
        edges, uses = edges_and_uses(tree.root)
        readings.append((tree, edges, edges.keys() | uses))
        every_edge.update(edges)
        every_use |= uses
    clocks, resets = split_clocks(bits, every_edge, every_use)

    def is_low(reset: str) -> bool:
        for tree, edges, names in readings:  # the first file that names it decides
            if reset in names:
                return is_active_low(tree.root, reset, edges)
        return bool(_LOW_LIKE.search(reset))

    return clocks, resets, set(filter(is_low, resets))


def is_active_low(root: Node, reset: str, edges: Edges) -> bool:
    """Whether a reset is active low: used with its falling edge, negated where it is read, or named so."""
    if edges.get(reset):
        return "negedge" in edges[reset]
    for node in find(root, *_NEGATIONS, "ConditionalPredicate"):
        is_negation = name_of(node) in _NEGATIONS
        if _words(node, _PARENTHESES | _NOT) == [reset]:
            return is_negation or _words(node, _PARENTHESES) != [reset]
    return bool(_LOW_LIKE.search(reset))


def _words(node: Node, left_out: frozenset[str]) -> list[str]:
    """Texts of a node's tokens, except those in `left_out`."""
    return [token.rawText for token in tokens(node) if token.rawText not in left_out]
