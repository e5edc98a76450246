"""Mutations of a whole module: registers that are too short, inputs and parameters without effect, resets that come late.

Each renames a signal inside the module's body and puts something else behind the new name, so the header, and with it the
interface, stays. Left out: signals that a macro, `.*` or `.name` hides, and those that are declared a second time in the body.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rtl_core.problems.tree import Edit, Node, SourceTree, children, is_token, name_of, tokens, walk
from rtl_core.validation.clocking import edges_and_uses, is_active_low, split_clocks
from rtl_core.validation.mutation import Mutation

_PORTS = ("ImplicitAnsiPort", "ExplicitAnsiPort")
_DECLARED = ("DataDeclaration", "NetDeclaration")
_HEAD = {"PortDeclaration", "ParameterDeclarationStatement", "TypedefDeclaration", "PackageImportDeclaration"}
TEXTBOOK_WIDTH = 8
"""Registers that should be longer are cut to this width, for want of which answers from memory are wrong."""


@dataclass(frozen=True)
class Port:
    """One port as it is declared in a module's text."""

    name: str
    words: frozenset[str]
    """Keywords of its header: direction, net or variable type, `signed`."""
    header: Node
    node: Node
    """The port, or the declaration in the body that it shares with others."""
    bounds: Node | None
    """Its packed range, None for one bit."""

    @property
    def signed(self) -> str:
        return "signed " if "signed" in self.words else ""


def module_mutations(tree: SourceTree) -> Iterator[Mutation]:
    """Every mutation of this kind, module by module."""
    for node in walk(tree.root):
        if name_of(node) == "ModuleDeclaration":
            module = _Module(tree, node)
            yield from _short_outputs(module)
            yield from _short_registers(module)
            yield from _ignored_inputs(module)
            yield from _ignored_parameters(module)
            yield from _late_resets(module)


class _Module:
    """A module's ports, parameters and body, and the edits that rename a signal in the body."""

    def __init__(self, tree: SourceTree, node: Node) -> None:
        self.tree, self.node = tree, node
        self.body = [member for member in node.members if name_of(member) not in _HEAD]
        self.ports = {port.name: port for port in self._ports()}
        self.edges, used = edges_and_uses(node)
        bits = [p.name for p in self.inputs if p.bounds is None]
        self.clocks, self.resets = split_clocks(bits, self.edges, used)

    @property
    def inputs(self) -> list[Port]:
        return [port for port in self.ports.values() if "input" in port.words]

    def text(self, node: Node | None) -> str:
        """The range of a port with a space behind it, or nothing."""
        return f"{self.tree.text(node)} " if node is not None else ""

    def behind(self, name: str, other: str, declaration: str) -> tuple[Edit, ...]:
        """Edits that let the body see `other` in place of `name`, with `declaration` before its first member; none where it does
        not use the name or a use cannot be renamed."""
        uses = self._uses(name)
        first = self.tree.span(self.body[0]) if self.body else None
        if not uses or first is None:
            return ()
        return (*(Edit(*span, other) for span in uses), Edit(first[0], first[0], f"{declaration}\n  "))

    def parameters(self) -> list[tuple[str, str]]:
        """(name, text of the default value) of each parameter that an instance may set."""
        found = []
        for part in (
            self.node.header,
            *(m for m in self.node.members if name_of(m) == "ParameterDeclarationStatement"),
        ):
            for declaration in walk(part):
                if name_of(declaration) == "ParameterDeclaration" and declaration.keyword.rawText != "localparam":
                    found += [
                        (d.name.rawText, self.tree.text(d.initializer.expr))
                        for d in _declarators(declaration)
                        if d.initializer
                    ]
        return [(name, text) for name, text in found if text]

    def reads_of(self, name: str, where: Iterator[Node]) -> list[tuple[int, int]]:
        """Where a name is read as a value in these nodes."""
        spans = [self.tree.span(n.identifier) for n in where if _is_name(n) and n.identifier.rawText == name]
        return [span for span in spans if span]

    def _uses(self, name: str) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for member in self.body:
            for node in walk(member):
                for token in (child for child in children(node) if is_token(child)):
                    if name_of(node) == "WildcardPortConnection":
                        return []
                    if token.rawText != name or name_of(token) != "Identifier":
                        continue
                    if name_of(node) in ("NamedPortConnection", "NamedParamAssignment") and _connects(node):
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
            words = frozenset(token.rawText for token in tokens(node.header) if token.rawText.isalpha())
            # A port without a header of its own has that of the port before.
            own = any(token.rawText for token in tokens(node.header))
            words, bounds = (words, _bounds(node.header)) if own else inherited
            inherited = words, bounds
            if not list(node.declarator.dimensions) and not _unpackable(node.header):
                yield Port(node.declarator.name.rawText, words, node.header, node, bounds)
        for member in self.node.members:
            if name_of(member) == "PortDeclaration":
                words = frozenset(token.rawText for token in tokens(member.header) if token.rawText.isalpha())
                for declarator in _declarators(member):
                    if not list(declarator.dimensions):
                        bounds = _bounds(member.header)
                        yield Port(declarator.name.rawText, words, member.header, member, bounds)


def _short_outputs(module: _Module) -> Iterator[Mutation]:
    """A register or net behind an output, with fewer bits than the output has."""
    tree = module.tree
    for port in module.ports.values():
        whole = tree.span(port.header)
        if "output" not in port.words or port.bounds is None or port.node is None or whole is None:
            continue
        if name_of(port.node) not in _PORTS or not {"reg", "logic", "output"} & port.words or _shared(port.node):
            continue
        kind = next((word for word in ("reg", "logic") if word in port.words), "wire")
        initial = port.node.declarator.initializer
        given = f" {tree.text(initial)}" if initial else ""
        header = [Edit(*span, "wire") for t in tokens(port.header) if t.rawText == kind and (span := tree.span(t))]
        if initial and (span := tree.span(initial)):
            header.append(Edit(*span, ""))
        for bounds, told in _narrower(tree, port.bounds):
            other = f"{port.name}__short"
            declaration = f"{kind} {port.signed}{bounds} {other}{given}; assign {port.name} = {other};"
            if edits := module.behind(port.name, other, declaration):
                yield Mutation(
                    "truncation",
                    f"output `{port.name}` {tree.text(port.bounds)} has {told} behind it",
                    (*edits, *header),
                )


def _short_registers(module: _Module) -> Iterator[Mutation]:
    """A vector that is declared in the body, with fewer bits."""
    tree = module.tree
    for member in module.body:
        if name_of(member) not in _DECLARED or (bounds := _bounds(member.type)) is None:
            continue
        declared = [d.name.rawText for d in _declarators(member)]
        if module.ports.keys() & set(declared):
            continue  # the second half of an older port declaration
        names = ", ".join(declared)
        span = tree.span(bounds)
        if span is None:
            continue
        for text, told in _narrower(tree, bounds):
            yield Mutation("truncation", f"`{names}` {tree.text(bounds)} has {told}", (Edit(*span, text),))


def _ignored_inputs(module: _Module) -> Iterator[Mutation]:
    """An input, or one bit of it, that reads as a constant."""
    for port in module.inputs:
        if port.name in module.clocks:
            continue
        other, width = f"{port.name}__seen", module.text(port.bounds)
        values = {"0": f"`{port.name}` reads as 0"}
        if port.bounds is None:
            values["1"] = f"`{port.name}` reads as 1"
        else:
            values[f"{port.name} & ~1"] = f"the last bit of `{port.name}` reads as 0"
            values[f"({port.name} << 1) >> 1"] = f"the first bit of `{port.name}` reads as 0"
            if (size := _size(module.tree, port.bounds)) and size > 2:
                values[f"{port.name} | (1 << {size // 2})"] = (
                    f"bit {size // 2} of `{port.name}`, from the right, reads as 1"
                )
        for value, told in values.items():
            if edits := module.behind(port.name, other, f"wire {port.signed}{width}{other} = {value};"):
                yield Mutation("ignored input", told, edits)


def _ignored_parameters(module: _Module) -> Iterator[Mutation]:
    """A parameter that may be set without effect: in the body, or in the header's ranges as well."""
    ports = [part for part in walk(module.node.header) if name_of(part) in ("AnsiPortList", "NonAnsiPortList")]
    ports += [member for member in module.node.members if name_of(member) == "PortDeclaration"]
    rest = [member for member in module.node.members if name_of(member) != "PortDeclaration"]
    for name, default in module.parameters():
        inside = [span for part in rest for span in module.reads_of(name, walk(part))]
        outside = [span for part in ports for span in module.reads_of(name, walk(part))]
        if inside:
            edits = tuple(Edit(*span, f"({default})") for span in inside)
            yield Mutation("ignored parameter", f"the body takes `{name}` as {default} whatever it is set to", edits)
        if outside:
            edits = tuple(Edit(*span, f"({default})") for span in [*inside, *outside])
            yield Mutation("ignored parameter", f"`{name}` is {default} whatever it is set to", edits)


def _late_resets(module: _Module) -> Iterator[Mutation]:
    """A reset that acts one clock edge later, or only when it lasts for two."""
    if not module.clocks:
        return
    clock = module.clocks[0]
    edge = next(iter(sorted(module.edges.get(clock, ()), reverse=True)), "posedge")
    for reset in module.resets:
        if reset not in module.ports:
            continue
        low = is_active_low(module.node, reset, module.edges)
        before = f"reg {reset}__before; always @({edge} {clock}) {reset}__before <= {reset};"
        if edits := module.behind(reset, f"{reset}__before", before):
            yield Mutation("late reset", f"`{reset}` acts one edge later", edits)
        held = f"{reset}__held"
        if edits := module.behind(
            reset, held, f"{before} wire {held} = {reset} {'|' if low else '&'} {reset}__before;"
        ):
            yield Mutation("late reset", f"`{reset}` acts only when it lasts for two edges", edits)


def _narrower(tree: SourceTree, bounds: Node) -> Iterator[tuple[str, str]]:
    """(range with fewer bits, how many in words) for a declared range."""
    select = next((n for n in walk(bounds) if name_of(n) == "SimpleRangeSelect"), None)
    if select is None:
        return
    left, right = tree.text(select.left), tree.text(select.right)
    if (size := _size(tree, bounds)) is None:
        if not left.isdigit():
            yield f"[({left}) - 1:{right}]", "one bit less"
            yield f"[(({left}) + ({right})) / 2:{right}]", "half of its bits"
        return
    low = int(right)
    for fewer in dict.fromkeys((size - 1, TEXTBOOK_WIDTH if size > TEXTBOOK_WIDTH else size // 2)):
        if 0 < fewer < size:
            # The last bit keeps its number, in either order.
            first = low + fewer - 1 if int(left) > low else low - fewer + 1
            yield f"[{first}:{low}]", f"only {fewer} bit{'s' if fewer > 1 else ''}"


def _size(tree: SourceTree, bounds: Node) -> int | None:
    """Bits of a range between two plain numbers, else None."""
    select = next((n for n in walk(bounds) if name_of(n) == "SimpleRangeSelect"), None)
    if select is None:
        return None
    left, right = tree.text(select.left), tree.text(select.right)
    return abs(int(left) - int(right)) + 1 if left.isdigit() and right.isdigit() else None


def _bounds(node: Node) -> Node | None:
    """The packed range of a header or type with exactly one."""
    found = [part for part in walk(node) if name_of(part) == "VariableDimension"]
    return found[0] if len(found) == 1 and name_of(found[0].specifier) == "RangeDimensionSpecifier" else None


def _unpackable(header: Node) -> bool:
    """Whether a header has a type of which no range is known: several dimensions, or a name."""
    parts = [name_of(part) for part in walk(header)]
    return parts.count("VariableDimension") > 1 or "NamedType" in parts


def _declarators(declaration: Node) -> list[Node]:
    return [part for part in declaration.declarators if not is_token(part)]


def _shared(port: Node) -> bool:
    """Whether the next port has no header of its own, so that it would follow an edit of this one."""
    ports = [part for part in port.parent if not is_token(part)]
    spot = next((i for i, part in enumerate(ports) if part == port), None)
    return spot is None or (spot + 1 < len(ports) and not any(t.rawText for t in tokens(ports[spot + 1].header)))


def _is_name(node: Node) -> bool:
    return name_of(node) in ("IdentifierName", "IdentifierSelectName")


def _is_member(node: Node) -> bool:
    """Whether a name stands behind a dot, as a member of something else."""
    return node.parent is not None and name_of(node.parent) == "ScopedName" and node.parent.right == node


def _connects(connection: Node) -> bool:
    """Whether a connection names its signal apart from the port, `.a(b)`."""
    return any(is_token(child) and child.rawText == "(" for child in children(connection))
