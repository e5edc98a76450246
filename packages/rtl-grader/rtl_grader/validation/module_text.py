"""A module's source text: ports with their ranges, parameters, body, and the edits that rename a signal in the body."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rtl_grader.hdl.clocking import edges_and_uses, split_clocks
from rtl_grader.hdl.tree import (
    Edit,
    Node,
    SourceTree,
    Span,
    children,
    find,
    is_token,
    name_of,
    tokens,
    walk,
)
from rtl_grader.validation.mutation import Kind, Mutation, Mutations, nodes_of, prints

HEAD = {
    "PortDeclaration",
    "ParameterDeclarationStatement",
    "TypedefDeclaration",
    "PackageImportDeclaration",
}
"""Members of a module that belong to its interface."""
_NAMES = ("IdentifierName", "IdentifierSelectName")
_CONNECTIONS = ("NamedPortConnection", "NamedParamAssignment")


@dataclass(frozen=True)
class Port:
    """A port as declared in the source text."""

    name: str
    words: frozenset[str]
    """Keywords of the header: direction, net or variable type, `signed`."""
    header: Node
    node: Node
    """The port, or its declaration in the body, which several ports may share."""
    bounds: Node | None
    """Packed range, None for one bit."""

    @property
    def signed(self) -> str:
        return "signed " if "signed" in self.words else ""


class ModuleText:
    """Ports, parameters and body of a module, and edits that rename a signal in the body."""

    def __init__(self, tree: SourceTree, node: Node) -> None:
        self.tree, self.node = tree, node
        self.body = [member for member in node.members if name_of(member) not in HEAD]
        self.ports = {port.name: port for port in self._ports()}
        self.edges, used = edges_and_uses(node)
        bits = [p.name for p in self.inputs if p.bounds is None]
        self.clocks, self.resets = split_clocks(bits, self.edges, used)

    @property
    def inputs(self) -> list[Port]:
        return [port for port in self.ports.values() if "input" in port.words]

    def behind(
        self, kind: Kind, description: str, name: str, other: str, declaration: str
    ) -> Mutations:
        """Yield the mutation whose body uses `other` in place of `name`, with `declaration` before its first
        member; nothing if the body does not use the name, or if a use cannot be renamed."""
        uses = self._uses(name)
        first = self.tree.span(self.body[0]) if self.body else None
        if uses and first is not None:
            start, _ = first
            renamed = [Edit(*span, other) for span in uses]
            edits = (*renamed, Edit(start, start, f"{declaration}\n  "))
            yield Mutation(kind, description, edits)

    def parameters(self) -> list[tuple[str, str]]:
        """(name, text of the default value) of each parameter that an instance may set."""
        statements = self.members("ParameterDeclarationStatement")
        parameters = []
        for part in (self.node.header, *statements):
            for node in find(part, "ParameterDeclaration"):
                if node.keyword.rawText != "localparam":
                    parameters += declarators(node)
        defaults = [
            (one, self.tree.text(one.initializer.expr)) for one in parameters if one.initializer
        ]
        return [(one.name.rawText, text) for one, text in defaults if text]

    def members(self, kind: str) -> list[Node]:
        return [member for member in self.node.members if name_of(member) == kind]

    def reads_of(self, name: str, parts: Iterable[Node]) -> list[Span]:
        """Spans of the nodes in these parts that read a name as a value."""
        names = [node.identifier for part in parts for node in find(part, *_NAMES)]
        spans = [self.tree.span(token) for token in names if token.rawText == name]
        return [span for span in spans if span]

    def _uses(self, name: str) -> list[Span]:
        """Spans of the uses of a name in the body; empty if one cannot be renamed."""
        spans: list[Span] = []
        for node in itertools.chain.from_iterable(map(_unprinted, self.body)):
            words = [child for child in children(node) if is_token(child)]
            if words and name_of(node) == "WildcardPortConnection":
                return []
            # In `.a(b)` the signal has its own name.
            if name_of(node) in _CONNECTIONS and node.openParen.rawText:
                continue
            for word in words:
                if word.rawText != name or name_of(word) != "Identifier":
                    continue
                span = self.tree.span(word) if name_of(node) in _NAMES else None
                if span is None:
                    return []
                if not _is_member(node):
                    spans.append(span)
        return spans

    def _ports(self) -> Iterator[Port]:
        words, bounds = frozenset[str](), None
        for node in find(self.node.header, "ImplicitAnsiPort"):
            # A port without a header of its own has the header of the previous port.
            if any(token.rawText for token in tokens(node.header)):
                words, bounds = _words(node.header), bounds_of(node.header)
            if not list(node.declarator.dimensions) and not _unpackable(node.header):
                yield Port(node.declarator.name.rawText, words, node.header, node, bounds)
        for member in self.members("PortDeclaration"):
            header = member.header
            for declarator in declarators(member):
                if not list(declarator.dimensions):
                    name = declarator.name.rawText
                    yield Port(name, _words(header), header, member, bounds_of(header))


def _words(header: Node) -> frozenset[str]:
    """Keywords of a port's header, and the name of its type."""
    return frozenset(token.rawText for token in tokens(header) if token.rawText.isalpha())


def bounds_of(node: Node) -> Node | None:
    """Packed range of a header or type; None unless there is exactly one."""
    ranges = list(find(node, "VariableDimension"))
    if len(ranges) != 1 or name_of(ranges[0].specifier) != "RangeDimensionSpecifier":
        return None
    return ranges[0]


def _unpackable(header: Node) -> bool:
    """Whether the range of a header is unknown: it has several dimensions or a named type."""
    parts = [name_of(part) for part in walk(header)]
    return parts.count("VariableDimension") > 1 or "NamedType" in parts


def as_net(tree: SourceTree, port: Node) -> list[Edit]:
    """Edits that turn an output variable into a net without an initial value, so that it can be assigned."""
    headers = [child for child in children(port) if name_of(child).endswith("PortHeader")]
    if not headers:
        return []
    words = list(tokens(headers[0]))
    texts = {word.rawText for word in words}
    changes = [(part, "") for part in find(port, "EqualsValueClause")]
    if "output" in texts and not texts & {"wire", "var"}:
        changes += [(word, "wire") for word in words if word.rawText in ("reg", "logic")]
    return [Edit(*span, text) for part, text in changes if (span := tree.span(part))]


def declarators(declaration: Node) -> list[Node]:
    return nodes_of(declaration.declarators)


def _is_member(node: Node) -> bool:
    """Whether a name follows a dot, as a member of something else."""
    parent = node.parent
    return parent is not None and name_of(parent) == "ScopedName" and parent.right == node


def _unprinted(member: Node) -> Iterator[Node]:
    """Yield the nodes below `member`, without calls that only print."""
    stack = [member]
    while stack:
        node = stack.pop()
        if is_token(node) or prints(node):
            continue
        yield node
        stack.extend(reversed(children(node)))
