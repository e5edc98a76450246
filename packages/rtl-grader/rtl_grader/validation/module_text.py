"""A module's source text: ports with their ranges, parameters, body, and the edits that rename a signal in the body."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rtl_grader.hdl.clocking import edges_and_uses, split_clocks
from rtl_grader.hdl.tree import Edit, Node, SourceTree, children, is_token, name_of, tokens, walk
from rtl_grader.validation.mutation import prints

HEAD = {
    "PortDeclaration",
    "ParameterDeclarationStatement",
    "TypedefDeclaration",
    "PackageImportDeclaration",
}
"""Members of a module that belong to its interface."""


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

    def text(self, node: Node | None) -> str:
        """Range of a port with a trailing space, or an empty string."""
        return f"{self.tree.text(node)} " if node is not None else ""

    def behind(self, name: str, other: str, declaration: str) -> tuple[Edit, ...]:
        """Edits that make the body use `other` in place of `name`, and insert `declaration` before its
        first member. Empty if the body does not use the name, or if a use cannot be renamed."""
        uses = self._uses(name)
        first = self.tree.span(self.body[0]) if self.body else None
        if not uses or first is None:
            return ()
        return (
            *(Edit(*span, other) for span in uses),
            Edit(first[0], first[0], f"{declaration}\n  "),
        )

    def parameters(self) -> list[tuple[str, str]]:
        """(name, text of the default value) of each parameter that an instance may set."""
        statements = [m for m in self.node.members if name_of(m) == "ParameterDeclarationStatement"]
        found = [
            (declarator.name.rawText, self.tree.text(declarator.initializer.expr))
            for part in (self.node.header, *statements)
            for node in walk(part)
            if name_of(node) == "ParameterDeclaration" and node.keyword.rawText != "localparam"
            for declarator in declarators(node)
            if declarator.initializer
        ]
        return [(name, text) for name, text in found if text]

    def reads_of(self, name: str, where: Iterator[Node]) -> list[tuple[int, int]]:
        """Spans of these nodes that read a name as a value."""
        spans = [
            self.tree.span(n.identifier)
            for n in where
            if _is_name(n) and n.identifier.rawText == name
        ]
        return [span for span in spans if span]

    def _uses(self, name: str) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for member in self.body:
            for node in _unprinted(member):
                for token in (child for child in children(node) if is_token(child)):
                    if name_of(node) == "WildcardPortConnection":
                        return []
                    if token.rawText != name or name_of(token) != "Identifier":
                        continue
                    if name_of(node) in (
                        "NamedPortConnection",
                        "NamedParamAssignment",
                    ) and _connects(node):
                        continue
                    span = self.tree.span(token) if _is_name(node) else None
                    if span is None:
                        return []
                    if not _is_member(node):
                        found.append(span)
        return found

    def _ports(self) -> Iterator[Port]:
        inherited: tuple[frozenset[str], Node | None] = (frozenset(), None)
        for node in walk(self.node.header):
            if name_of(node) != "ImplicitAnsiPort":
                continue
            words = frozenset(
                token.rawText for token in tokens(node.header) if token.rawText.isalpha()
            )
            # A port without a header of its own has the header of the previous port.
            own = any(token.rawText for token in tokens(node.header))
            words, bounds = (words, bounds_of(node.header)) if own else inherited
            inherited = words, bounds
            if not list(node.declarator.dimensions) and not _unpackable(node.header):
                yield Port(node.declarator.name.rawText, words, node.header, node, bounds)
        for member in self.node.members:
            if name_of(member) == "PortDeclaration":
                words = frozenset(
                    token.rawText for token in tokens(member.header) if token.rawText.isalpha()
                )
                for declarator in declarators(member):
                    if not list(declarator.dimensions):
                        bounds = bounds_of(member.header)
                        yield Port(declarator.name.rawText, words, member.header, member, bounds)


def bounds_of(node: Node) -> Node | None:
    """Packed range of a header or type; None unless there is exactly one."""
    found = [part for part in walk(node) if name_of(part) == "VariableDimension"]
    return (
        found[0]
        if len(found) == 1 and name_of(found[0].specifier) == "RangeDimensionSpecifier"
        else None
    )


def _unpackable(header: Node) -> bool:
    """Whether the range of a header is unknown: it has several dimensions or a named type."""
    parts = [name_of(part) for part in walk(header)]
    return parts.count("VariableDimension") > 1 or "NamedType" in parts


def declarators(declaration: Node) -> list[Node]:
    return [part for part in declaration.declarators if not is_token(part)]


def _is_name(node: Node) -> bool:
    return name_of(node) in ("IdentifierName", "IdentifierSelectName")


def _is_member(node: Node) -> bool:
    """Whether a name follows a dot, as a member of something else."""
    return (
        node.parent is not None
        and name_of(node.parent) == "ScopedName"
        and node.parent.right == node
    )


def _connects(connection: Node) -> bool:
    """Whether a connection names its signal separately from the port, `.a(b)`."""
    return any(is_token(child) and child.rawText == "(" for child in children(connection))


def _unprinted(member: Node) -> Iterator[Node]:
    """Yield the nodes below `member`, without calls that only print."""
    stack = [member]
    while stack:
        node = stack.pop()
        if is_token(node) or prints(node):
            continue
        yield node
        stack.extend(reversed(children(node)))
