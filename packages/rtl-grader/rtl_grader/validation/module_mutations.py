"""Mutations of a whole module: registers that are too short, inputs and parameters without effect, late or
missing resets.

Most of them rename a signal inside the module's body and give the new name another value, so that header
and interface stay the same. Signals that a macro, `.*` or `.name` hides, or that the body declares again,
are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rtl_grader.hdl.clocking import is_active_low
from rtl_grader.hdl.tree import Edit, Node, SourceTree, find, name_of, tokens
from rtl_grader.validation.module_text import ModuleText, Port, as_net, bounds_of, declarators
from rtl_grader.validation.mutation import ASSIGNMENTS, Mutation, Mutations, changed, nodes_of

_PORT_LISTS = ("AnsiPortList", "NonAnsiPortList")
_DECLARED = ("DataDeclaration", "NetDeclaration")
TEXTBOOK_WIDTH = 8
"""Longer registers are also cut to this width, a typical error of answers copied from a textbook."""


def module_mutations(tree: SourceTree) -> Mutations:
    """Yield all mutations of this file, module by module."""
    for node in tree.of("ModuleDeclaration"):
        module = ModuleText(tree, node)
        yield from _short_outputs(module)
        yield from _short_registers(module)
        yield from _ignored_inputs(module)
        yield from _ignored_parameters(module)
        yield from _late_resets(module)
        yield from _missing_resets(module)


def _short_outputs(module: ModuleText) -> Mutations:
    """Put a register or net with fewer bits behind an output."""
    tree = module.tree
    for port in module.ports.values():
        if "output" not in port.words or port.bounds is None or tree.span(port.header) is None:
            continue
        if name_of(port.node) != "ImplicitAnsiPort" or shares_header(port.node):
            continue
        kind = next((word for word in ("reg", "logic") if word in port.words), "wire")
        initial = port.node.declarator.initializer
        value = f" {tree.text(initial)}" if initial else ""
        header = as_net(tree, port.node)
        other = f"{port.name}__short"
        for bounds, fewer in _narrower(tree, port.bounds):
            register = f"{kind} {port.signed}{bounds} {other}{value};"
            declaration = f"{register} assign {port.name} = {other};"
            described = f"output `{port.name}` {tree.text(port.bounds)} has {fewer} behind it"
            for one in module.behind("truncation", described, port.name, other, declaration):
                yield replace(one, edits=(*one.edits, *header))


def _short_registers(module: ModuleText) -> Mutations:
    """Declare a vector of the body with fewer bits."""
    tree = module.tree
    for member in module.body:
        if name_of(member) not in _DECLARED or (bounds := bounds_of(member.type)) is None:
            continue
        names = [declarator.name.rawText for declarator in declarators(member)]
        if module.ports.keys() & set(names):
            continue  # the second half of an older port declaration
        for text, fewer in _narrower(tree, bounds):
            described = f"`{', '.join(names)}` {tree.text(bounds)} has {fewer}"
            yield from changed(tree, "truncation", described, (bounds, text))


def _ignored_inputs(module: ModuleText) -> Mutations:
    """Make an input, or one bit of it, read as a constant."""
    for port in module.inputs:
        if port.name in module.clocks:
            continue
        other = f"{port.name}__seen"
        bounds = f"{module.tree.text(port.bounds)} " if port.bounds else ""
        for value, description in _constants(module.tree, port):
            wire = f"wire {port.signed}{bounds}{other} = {value};"
            yield from module.behind("ignored input", description, port.name, other, wire)


def _constants(tree: SourceTree, port: Port) -> Iterator[tuple[str, str]]:
    """Yield (what an input reads as, description)."""
    name = port.name
    yield "0", f"`{name}` reads as 0"
    if port.bounds is None:
        yield "1", f"`{name}` reads as 1"
        return
    yield f"{name} & ~1", f"the last bit of `{name}` reads as 0"
    yield f"({name} << 1) >> 1", f"the first bit of `{name}` reads as 0"
    size = _size(tree, port.bounds)
    if size and size > 2:
        middle = size // 2
        described = f"bit {middle} of `{name}`, from the right, reads as 1"
        yield f"{name} | (1 << {middle})", described


def _ignored_parameters(module: ModuleText) -> Mutations:
    """Ignore the value of a parameter: in the body, or in the header's ranges too."""
    lists = list(find(module.node.header, *_PORT_LISTS))
    declarations = module.members("PortDeclaration")
    rest = [member for member in module.node.members if name_of(member) != "PortDeclaration"]
    for name, default in module.parameters():
        inside = module.reads_of(name, rest)
        outside = module.reads_of(name, [*lists, *declarations])
        for spans, described in (
            (inside, f"the body takes `{name}` as {default} whatever it is set to"),
            (outside and inside + outside, f"`{name}` is {default} whatever it is set to"),
        ):
            if edits := tuple(Edit(*span, f"({default})") for span in spans):
                yield Mutation("ignored parameter", described, edits)


def _late_resets(module: ModuleText) -> Mutations:
    """Make a reset act one clock edge later, or only if it lasts for two."""
    for reset in module.resets:  # without a clock there is none
        clock = module.clocks[0]
        edge = max(module.edges.get(clock, ["posedge"]))
        operator = "|" if is_active_low(module.node, reset, module.edges) else "&"
        before, long = f"{reset}__before", f"{reset}__held"
        register = f"reg {before}; always @({edge} {clock}) {before} <= {reset};"
        described = f"`{reset}` acts one edge later"
        yield from module.behind("late reset", described, reset, before, register)
        described = f"`{reset}` acts only when it lasts for two edges"
        lasting = f"{register} wire {long} = {reset} {operator} {before};"
        yield from module.behind("late reset", described, reset, long, lasting)


def _missing_resets(module: ModuleText) -> Mutations:
    """Make a register keep its value in reset."""
    tree = module.tree
    for node in find(module.node, "ConditionalStatement"):
        words = [token.rawText for token in tokens(node.predicate)]
        *negation, reset = [word for word in words if word not in ("(", ")")] or [""]
        if reset not in module.resets or negation not in ([], ["!"], ["~"]):
            continue
        is_low = is_active_low(module.node, reset, module.edges)
        branch = node.statement if is_low == bool(negation) else node.elseClause
        for part in find(branch, "ExpressionStatement") if branch is not None else ():
            if name_of(part.expr) in ASSIGNMENTS:
                register = tree.text(part.expr.left)
                kept = f"`{register}` keeps its value while `{reset}` is active"
                yield from changed(tree, "missing reset", kept, (part, ";"))


def _narrower(tree: SourceTree, bounds: Node) -> Iterator[tuple[str, str]]:
    """Yield (range with fewer bits, number of bits in words) for a declared range."""
    if (limits := _limits(tree, bounds)) is None:
        return
    left, right = limits
    if (size := _size(tree, bounds)) is None:
        if not left.isdigit():
            yield f"[({left}) - 1:{right}]", "one bit less"
            yield f"[(({left}) + ({right})) / 2:{right}]", "half of its bits"
        return
    low = int(right)
    rises = int(left) <= low
    for fewer in dict.fromkeys(
        (size - 1, TEXTBOOK_WIDTH if size > TEXTBOOK_WIDTH else size // 2)
    ):
        if 0 < fewer < size:
            # The rightmost bit keeps its number, whether the range rises or falls.
            first = low - fewer + 1 if rises else low + fewer - 1
            words = f"only {fewer} bits" if fewer > 1 else "only 1 bit"
            yield f"[{first}:{low}]", words


def _size(tree: SourceTree, bounds: Node) -> int | None:
    """Number of bits of a range between two plain numbers, else None."""
    limits = _limits(tree, bounds)
    if limits is None or not all(map(str.isdigit, limits)):
        return None
    left, right = map(int, limits)
    return abs(left - right) + 1


def _limits(tree: SourceTree, bounds: Node) -> tuple[str, str] | None:
    """Texts left and right of the colon of a range."""
    for node in find(bounds, "SimpleRangeSelect"):
        return tree.text(node.left), tree.text(node.right)
    return None


def shares_header(port: Node) -> bool:
    """Whether the next port has no header of its own, so that an edit of this header would change it too."""
    ports = nodes_of(port.parent)
    if port not in ports:
        return True
    following = ports[ports.index(port) + 1 :]
    return bool(following) and not any(token.rawText for token in tokens(following[0].header))
