"""What a file of RTL defines, what that needs, and which parts of its modules can be masked.

The syntax tree is read down to the statements, not into expressions. What can be masked is literally in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from rtl_grader.hdl.directives import PLAIN_DIRECTIVE
from rtl_grader.hdl.text import code_of, macros_of
from rtl_grader.hdl.tree import Node, SourceTree, Span, children, find, is_token, name_of, walk

_UNITS = """
ModuleDeclaration InterfaceDeclaration PackageDeclaration ProgramDeclaration UdpDeclaration
"""
_MASKED = """
AlwaysBlock AlwaysCombBlock AlwaysFFBlock AlwaysLatchBlock ContinuousAssign LoopGenerate IfGenerate CaseGenerate
FunctionDeclaration TaskDeclaration HierarchyInstantiation CaseStatement ConditionalStatement ForLoopStatement
LoopStatement ExpressionStatement
"""
_MASKS = frozenset(_MASKED.split())
_KINDS = frozenset(_UNITS.split())
_OPENED = """
GenerateRegion GenerateBlock ElseClause TimingControlStatement SequentialBlockStatement StandardCaseItem
DefaultCaseItem PatternCaseItem SyntaxList SeparatedList
"""
_INSIDE = frozenset(f"{_MASKED} {_OPENED}".split())
"""Nodes whose parts may be masked too."""
_MODULE = "ModuleDeclaration"
_INSTANCE = "HierarchyInstantiation"
_HEADER = {"PackageImportDeclaration", "ParameterDeclarationStatement"}
"""Members before the body that belong to a module's interface."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.A)
_BENCH_NAME = re.compile(r"(?i)(?:tb|testbench)_.*|.*_(?:tb|testbench)|testbench|tb")
_TEST_NAME = re.compile(r"(?i)test_.*|.*_test")
_STARTS = re.compile(r"\binitial\b")
_OUTPUT = re.compile(r"\boutput\b")
_ENDS = re.compile(r"\$(?:finish|stop)\b")
_DELAY = re.compile(r"#\s*\(?\s*\d")
_SCOPE = re.compile(r"(?<![\w$`])(?!std\b)([A-Za-z_]\w*)\s*::", re.A)
_CLASS = re.compile(r"\bclass\s+([A-Za-z_]\w*)", re.A)
_INCLUDE = re.compile(r'`include[ \t]*"([^"\n]*)"')
_MACRO = re.compile(
    r"(?<!`)`(?!(?:define|undef|ifdef|ifndef|elsif|pragma|line)\b)([A-Za-z_]\w*)", re.A
)
_CONDITION = re.compile(r"`(ifdef|ifndef|endif)\b")
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Mask:
    """A part of a module: the UTF-8 bytes `start` to `end` of its file."""

    start: int
    end: int
    tokens: int
    """Number of tokens in its code."""


@dataclass(frozen=True)
class Unit:
    """A module, interface, package, program or primitive of a file."""

    name: str
    is_module: bool
    uses: frozenset[str] = frozenset()
    """Names of the modules that it instantiates and of its interfaces."""
    optional: frozenset[str] = frozenset()
    """Those of `uses` that it instantiates only under conditions of generate blocks."""
    instances: tuple[tuple[str, str], ...] = ()
    """(name of the module, text) of each instantiation."""
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
    """Packages that it imports or names."""
    includes: frozenset[str]
    defines: frozenset[str]
    """Macros that it defines: "`" and their names."""
    macros: frozenset[str]
    """Macros that it uses."""
    has_conditions: bool
    """Whether it may need less than it names."""
    syntax_error: str = ""
    """The first one, with its line."""


def scan(
    text: str,
    path: str = "source",
    headers: Mapping[str, str] | None = None,
    define: Mapping[str, str] | None = None,
) -> Scan:
    """Read a file with the headers and macros of `SourceTree`. Never raises for a text."""
    code = code_of(text)
    tree = SourceTree(text, path, headers, define)
    nodes = [node for node in tree.root.members if name_of(node) in _KINDS]
    nodes = [node for node in nodes if tree.is_own(node)]
    includes = _INCLUDE.finditer(text)
    macros = [name for name in _MACRO.findall(code) if not PLAIN_DIRECTIVE.fullmatch(name)]
    return Scan(
        units=tuple(_unit(tree, node) for node in nodes),
        packages=frozenset(_SCOPE.findall(code)).difference(_CLASS.findall(code)),
        includes=frozenset(match[1] for match in includes if code[match.start()] == "`"),
        defines=frozenset(map("`{}".format, macros_of(code))),
        macros=frozenset(map("`{}".format, macros)),
        has_conditions=bool(_CONDITION.search(code)),
        syntax_error=tree.syntax_error(),
    )


def _unit(tree: SourceTree, node: Node) -> Unit:
    header: Node = getattr(node, "header", node)
    name = str(header.name.rawText) if header.name else ""
    if name_of(node) != _MODULE:
        return Unit(name, is_module=False)
    members = list(node.members)
    parts = list(_parts(members))
    nested = set()
    for member in members:
        if name_of(member) == _MODULE:
            nested.add(member.header.name.rawText)
    masks = [_mask(tree, part, part) for part in parts]
    for kind, group in groupby(members, key=name_of):
        row = list(group)
        if kind == "ContinuousAssign" and len(row) > 1:
            masks.append(_mask(tree, row[0], row[-1]))
    body = _body(tree, members)
    instances = []
    for part in parts:
        if name_of(part) == _INSTANCE:
            module = part.type.rawText
            if module not in nested:
                instances.append((module, tree.text(part)))
    return Unit(
        name,
        is_module=True,
        uses=frozenset([*_interfaces(header), *dict(instances)]),
        optional=_optional(tree, parts),
        instances=tuple(instances),
        no_design=_no_design(tree, node, name),
        masks=tuple(filter(None, masks)),
        body=_mask(tree, body[0], body[-1]) if body else None,
    )


def _mask(tree: SourceTree, first: Node, last: Node) -> Mask | None:
    """Return the mask from one node to another; None if it would tear a condition or a macro."""
    begin, end = tree.span(first), tree.span(last)
    if begin is None or end is None:
        return None
    code = code_of(tree.data[begin[0] : end[1]].decode())
    directives = _CONDITION.findall(code)
    if len(directives) != 2 * directives.count("endif"):
        return None
    return Mask(begin[0], end[1], count_tokens(code))


def count_tokens(code: str) -> int:
    """Number of tokens: words, numbers and single characters."""
    return len(_TOKEN.findall(code))


def _body(tree: SourceTree, members: list[Node]) -> list[Node]:
    """The members after the last port, without parameters and imports at their beginning, and without those of macros
    and headers at both ends."""
    kinds = [name_of(member) for member in members]
    while "PortDeclaration" in kinds or (kinds and kinds[0] in _HEADER):
        kinds.pop(0)
    body = members[len(members) - len(kinds) :]
    while body and not tree.span(body[-1]):
        body.pop()
    while body and not tree.span(body[0]):
        body.pop(0)
    return body


def _no_design(tree: SourceTree, node: Node, name: str) -> str:
    if not _NAME.fullmatch(name):
        return "its name is no plain name"
    header = node.header
    if not tree.span(header):
        return "a macro writes it"
    ports = tree.text(header.ports) if header.ports else ""
    if not _NAME.search(code_of(ports)):
        return "it has no ports"
    code = code_of(tree.text(node))
    if _is_bench(name, code):
        return "it is a test bench"
    return ""


def _is_bench(name: str, code: str) -> bool:
    if _BENCH_NAME.fullmatch(name):
        return True
    starts = _STARTS.search(code)
    output = _OUTPUT.search(code)
    if _TEST_NAME.fullmatch(name):
        return bool(starts) or not output
    ends = _ENDS.search(code)
    delay = _DELAY.search(code)
    return None not in (starts, ends, delay)


def _parts(members: list[Node]) -> Iterator[Node]:
    """Yield the members and statements that may be masked, from the top down."""
    stack = members[::-1]
    while stack:
        node = stack.pop()
        kind = name_of(node)
        if kind in _MASKS:
            yield node
        if kind in _INSIDE:
            stack += [child for child in reversed(children(node)) if not is_token(child)]


def _optional(tree: SourceTree, parts: list[Node]) -> frozenset[str]:
    """The modules that are instantiated only below an `if` or `case` of a generate block."""
    places: set[Span | None] = set()
    for part in parts:
        if name_of(part) in ("IfGenerate", "CaseGenerate"):
            below = find(part, _INSTANCE)
            places.update(map(tree.span, below))
    optional: set[str] = set()
    needed: set[str] = set()
    for part in parts:
        if name_of(part) == _INSTANCE:
            is_below = tree.span(part) in places
            names = optional if is_below else needed
            names.add(part.type.rawText)
    return frozenset(optional - needed)


def _interfaces(header: Node) -> Iterator[str]:
    """Yield the names of the interfaces among a module's ports."""
    for port in walk(header):
        if name_of(port) == "InterfacePortHeader":
            yield port.nameOrKeyword.rawText
