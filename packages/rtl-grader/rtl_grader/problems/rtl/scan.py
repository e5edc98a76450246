"""What a file of RTL defines, what that needs, and which parts of its modules can be masked.

The syntax tree is read down to the statements, not into expressions. It is read without includes, so a macro of a
header may hide parts of a module from it; a part that it sees is literally in the file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from rtl_grader.hdl.directives import PLAIN_DIRECTIVE
from rtl_grader.hdl.text import code_of, macros_of
from rtl_grader.hdl.tree import Node, SourceTree, children, is_token, name_of

_UNITS = {
    "ModuleDeclaration": "module",
    "InterfaceDeclaration": "interface",
    "PackageDeclaration": "package",
    "ProgramDeclaration": "program",
    "UdpDeclaration": "primitive",
}
_MASKED = {
    "AlwaysBlock": "always",
    "AlwaysCombBlock": "always",
    "AlwaysFFBlock": "always",
    "AlwaysLatchBlock": "always",
    "ContinuousAssign": "assign",
    "LoopGenerate": "generate",
    "IfGenerate": "generate",
    "CaseGenerate": "generate",
    "FunctionDeclaration": "function",
    "TaskDeclaration": "function",
    "HierarchyInstantiation": "instance",
    "CaseStatement": "case",
    "ConditionalStatement": "if",
    "ForLoopStatement": "loop",
    "LoopStatement": "loop",
    "ExpressionStatement": "statement",
}
"""Kind of a node -> kind of the mask in its place."""
_OPENED = """
GenerateRegion GenerateBlock ElseClause TimingControlStatement SequentialBlockStatement StandardCaseItem
DefaultCaseItem PatternCaseItem SyntaxList SeparatedList
"""
_CLOSED = {"HierarchyInstantiation", "ContinuousAssign", "ExpressionStatement"}
_INSIDE = (_MASKED.keys() | set(_OPENED.split())) - _CLOSED
"""Nodes whose parts may be masked too."""
_HEADER = {"PackageImportDeclaration", "ParameterDeclarationStatement"}
"""Members before the body that belong to a module's interface."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.A)
_BENCH_NAME = re.compile(r"(?i)(?:tb|test|testbench)_.*|.*_(?:tb|test|testbench)|testbench|tb")
_ENDS = re.compile(r"\$(?:finish|stop)\b")
_DELAY = re.compile(r"#\s*\(?\s*\d")
_IMPORT = re.compile(r"\bimport\s+([A-Za-z_]\w*)\s*::", re.A)
_INCLUDE = re.compile(r'`include[ \t]*"([^"\n]*)"')
_MACRO = re.compile(r"(?<!`)`(?:(ifdef|ifndef|elsif|undef|define)[ \t]+)?([A-Za-z_]\w*)", re.A)
_CONDITION = re.compile(r"`(ifdef|ifndef|endif)\b")
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Mask:
    """A part of a module: characters `start` to `end` of its file."""

    kind: str
    start: int
    end: int
    tokens: int
    """Number of tokens in its code."""


@dataclass(frozen=True)
class Unit:
    """A module, interface, package, program or primitive of a file."""

    kind: str
    name: str
    start: int
    end: int
    uses: frozenset[str] = frozenset()
    """Names of the modules that it instantiates and of its interfaces."""
    no_design: str = ""
    """Why there is nothing to ask about it; empty if there is."""
    masks: tuple[Mask, ...] = ()
    body: Mask | None = None
    """Everything after the ports and the parameters."""


@dataclass(frozen=True)
class Scan:
    """What a file defines, and what all of it needs."""

    units: tuple[Unit, ...]
    packages: frozenset[str]
    includes: dict[str, bool]
    """Name of each included file -> whether it is needed: not only where some condition holds."""
    defines: frozenset[str]
    """Macros that it defines."""
    macros: dict[str, bool]
    """Macros that it uses, likewise."""


def scan(text: str) -> Scan:
    """Read a file. Never raises for a text."""
    code = code_of(text)
    tree = SourceTree(text)
    reader = _Reader(tree, code)
    units = [reader.unit(node) for node in tree.root.members if name_of(node) in _UNITS]
    conditions = list(_conditions(code))
    includes: dict[str, bool] = {}
    for include in _INCLUDE.finditer(text):
        if code[include.start()] == "`":
            _note(includes, include[1], include.start(), conditions)
    macros: dict[str, bool] = {}
    for use in _MACRO.finditer(code):
        if not use[1] and not PLAIN_DIRECTIVE.fullmatch(use[2]):
            _note(macros, use[2], use.start(), conditions)
    return Scan(
        units=tuple(unit for unit in units if unit is not None),
        packages=frozenset(_IMPORT.findall(code)),
        includes=includes,
        defines=frozenset(macros_of(code)),
        macros=macros,
    )


def _conditions(code: str) -> Iterator[tuple[int, int]]:
    """Yield the outermost conditional parts of a text, in order."""
    depth = start = 0
    for directive in _CONDITION.finditer(code):
        if directive[1] == "endif":
            depth -= 1
            if depth == 0:
                yield start, directive.end()
            depth = max(depth, 0)
        else:
            depth += 1
            start = start if depth > 1 else directive.start()
    if depth:
        yield start, len(code)


def _note(
    names: dict[str, bool], name: str, place: int, conditions: list[tuple[int, int]]
) -> None:
    after = bisect_right(conditions, (place, place))
    is_needed = not after or place >= conditions[after - 1][1]
    names[name] = is_needed or names.get(name, False)


class _Reader:
    """Reads the units of a tree, with places as characters."""

    def __init__(self, tree: SourceTree, code: str) -> None:
        self._tree = tree
        self._code = code
        self._is_plain = len(tree.data) == len(code)

    def unit(self, node: Node) -> Unit | None:
        """Return a unit; None if it is not literally in the file."""
        place = self._place(node)
        if place is None:
            return None
        kind = _UNITS[name_of(node)]
        header = node if kind == "primitive" else node.header
        name = str(header.name.rawText) if header.name else ""
        if kind != "module":
            return Unit(kind, name, *place)
        members = list(node.members)
        parts = list(_parts(members))
        masks = [*self._groups(members), *(self._mask(part, part) for part in parts)]
        return Unit(
            kind,
            name,
            *place,
            uses=frozenset(_uses(header, parts)),
            no_design=self._no_design(name, header, self._code[slice(*place)]),
            masks=tuple(mask for mask in masks if mask is not None),
            body=self._body(members),
        )

    def _place(self, first: Node, last: Node | None = None) -> tuple[int, int] | None:
        spans = [self._tree.span(node) for node in (first, last or first)]
        if None in spans:
            return None
        (start, _), (_, end) = spans  # type: ignore[misc]
        if self._is_plain:
            return start, end
        data = self._tree.data
        before = len(data[:start].decode())
        return before, before + len(data[start:end].decode())

    def _mask(self, first: Node, last: Node, kind: str = "") -> Mask | None:
        """Return the mask from one node to another; None if it would tear a condition or a macro."""
        place = self._place(first, last)
        if place is None:
            return None
        code = self._code[slice(*place)]
        directives = _CONDITION.findall(code)
        if len(directives) != 2 * directives.count("endif"):
            return None
        kind = kind or _MASKED[name_of(first)]
        return Mask(kind, *place, tokens=len(_TOKEN.findall(code)))

    def _groups(self, members: Iterable[Node]) -> Iterator[Mask | None]:
        """Yield the masks of several `assign` in a row."""
        for kind, group in groupby(members, key=name_of):
            row = list(group)
            if kind == "ContinuousAssign" and len(row) > 1:
                yield self._mask(row[0], row[-1])

    def _body(self, members: list[Node]) -> Mask | None:
        kinds = [name_of(member) for member in members]
        first = 1 + max(
            (at for at, kind in enumerate(kinds) if kind == "PortDeclaration"), default=-1
        )
        while first < len(kinds) and kinds[first] in _HEADER:
            first += 1
        return self._mask(members[first], members[-1], "body") if members[first:] else None

    def _no_design(self, name: str, header: Node, code: str) -> str:
        if not _NAME.fullmatch(name):
            return "its name is no plain name"
        if _BENCH_NAME.fullmatch(name):
            return "it is a test bench by its name"
        ports = header.ports
        if ports is None or not _NAME.search(code_of(self._tree.text(ports))):
            return "it has no ports"
        if _ENDS.search(code) and _DELAY.search(code) and "initial" in code:
            return "it is a test bench: it waits, and ends the simulation"
        return ""


def _parts(members: Iterable[Node]) -> Iterator[Node]:
    """Yield the members and statements that may be masked, from the top down."""
    stack = list(members)[::-1]
    while stack:
        node = stack.pop()
        kind = name_of(node)
        if kind in _MASKED:
            yield node
        if kind in _INSIDE:
            stack += [child for child in reversed(children(node)) if not is_token(child)]


def _uses(header: Node, parts: Iterable[Node]) -> Iterator[str]:
    for part in parts:
        if name_of(part) == "HierarchyInstantiation":
            yield part.type.rawText
    for port in getattr(header.ports, "ports", None) or ():
        port_header = getattr(port, "header", None)
        if port_header is not None and name_of(port_header) == "InterfacePortHeader":
            yield port_header.nameOrKeyword.rawText
