"""Mutations of a whole module: registers that are too short, inputs and parameters without effect, resets that come late.

Each renames a signal inside the module's body and puts something else behind the new name, so the header, and with it the
interface, stays. Left out: signals that a macro, `.*` or `.name` hides, and those that are declared a second time in the body.
"""

from __future__ import annotations

from collections.abc import Iterator

from rtl_core.problems.clocking import is_active_low
from rtl_core.problems.tree import Edit, Node, SourceTree, is_token, name_of, tokens, walk
from rtl_core.validation.module_text import ModuleText, bounds_of, declarators
from rtl_core.validation.mutation import Mutation, changed

_PORTS = ("ImplicitAnsiPort", "ExplicitAnsiPort")
_DECLARED = ("DataDeclaration", "NetDeclaration")
_ASSIGNED = ("AssignmentExpression", "NonblockingAssignmentExpression")
TEXTBOOK_WIDTH = 8
"""Registers that should be longer are cut to this width, for want of which answers from memory are wrong."""


def module_mutations(tree: SourceTree) -> Iterator[Mutation]:
    """Every mutation of this kind, module by module."""
    for node in tree.of("ModuleDeclaration"):
        module = ModuleText(tree, node)
        yield from _short_outputs(module)
        yield from _short_registers(module)
        yield from _ignored_inputs(module)
        yield from _ignored_parameters(module)
        yield from _late_resets(module)
        yield from _missing_resets(module)


def _short_outputs(module: ModuleText) -> Iterator[Mutation]:
    """A register or net behind an output, with fewer bits than the output has."""
    tree = module.tree
    for port in module.ports.values():
        whole = tree.span(port.header)
        if "output" not in port.words or port.bounds is None or port.node is None or whole is None:
            continue
        if name_of(port.node) not in _PORTS or not {"reg", "logic", "output"} & port.words or shares_header(port.node):
            continue
        kind = next((word for word in ("reg", "logic") if word in port.words), "wire")
        initial = port.node.declarator.initializer
        given = f" {tree.text(initial)}" if initial else ""
        header = [Edit(*span, "wire") for t in tokens(port.header) if t.rawText == kind and (span := tree.span(t))]
        if initial and (span := tree.span(initial)):
            header.append(Edit(*span, ""))
        for bounds, fewer in _narrower(tree, port.bounds):
            other = f"{port.name}__short"
            declaration = f"{kind} {port.signed}{bounds} {other}{given}; assign {port.name} = {other};"
            if edits := module.behind(port.name, other, declaration):
                yield Mutation(
                    "truncation",
                    f"output `{port.name}` {tree.text(port.bounds)} has {fewer} behind it",
                    (*edits, *header),
                )


def _short_registers(module: ModuleText) -> Iterator[Mutation]:
    """A vector that is declared in the body, with fewer bits."""
    tree = module.tree
    for member in module.body:
        if name_of(member) not in _DECLARED or (bounds := bounds_of(member.type)) is None:
            continue
        declared = [d.name.rawText for d in declarators(member)]
        if module.ports.keys() & set(declared):
            continue  # the second half of an older port declaration
        for text, fewer in _narrower(tree, bounds):
            described = f"`{', '.join(declared)}` {tree.text(bounds)} has {fewer}"
            yield from changed(tree, "truncation", described, (bounds, text))


def _ignored_inputs(module: ModuleText) -> Iterator[Mutation]:
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
        for value, described in values.items():
            if edits := module.behind(port.name, other, f"wire {port.signed}{width}{other} = {value};"):
                yield Mutation("ignored input", described, edits)


def _ignored_parameters(module: ModuleText) -> Iterator[Mutation]:
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


def _late_resets(module: ModuleText) -> Iterator[Mutation]:
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


def _missing_resets(module: ModuleText) -> Iterator[Mutation]:
    """A register that keeps its value in reset."""
    tree = module.tree
    for node in (n for n in walk(module.node) if name_of(n) == "ConditionalStatement"):
        words = [token.rawText for token in tokens(node.predicate) if token.rawText not in ("(", ")")]
        if not words or words[-1] not in module.resets or len(words) > 2 or words[:-1] not in ([], ["!"], ["~"]):
            continue
        active_branch = is_active_low(module.node, words[-1], module.edges) == (len(words) == 2)
        branch = node.statement if active_branch else node.elseClause
        for part in walk(branch) if branch is not None else ():
            if name_of(part) == "ExpressionStatement" and name_of(part.expr) in _ASSIGNED:
                kept = f"`{tree.text(part.expr.left)}` keeps its value while `{words[-1]}` is active"
                yield from changed(tree, "missing reset", kept, (part, ";"))


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


def shares_header(port: Node) -> bool:
    """Whether the next port has no header of its own, so that it would follow an edit of this one."""
    ports = [part for part in port.parent if not is_token(part)]
    spot = next((i for i, part in enumerate(ports) if part == port), None)
    return spot is None or (spot + 1 < len(ports) and not any(t.rawText for t in tokens(ports[spot + 1].header)))
