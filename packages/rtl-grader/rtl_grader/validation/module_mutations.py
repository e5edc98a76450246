"""Mutations of a whole module: registers that are too short, inputs and parameters without effect, late or
missing resets.

Most of them rename a signal inside the module's body and give the new name another value, so that header
and interface stay the same. Signals that a macro, `.*` or `.name` hides, or that the body declares again,
are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from rtl_grader.hdl.clocking import is_active_low
from rtl_grader.hdl.tree import Edit, Node, SourceTree, is_token, name_of, tokens, walk
from rtl_grader.validation.module_text import ModuleText, bounds_of, declarators
from rtl_grader.validation.mutation import Mutation, changed

_PORTS = ("ImplicitAnsiPort", "ExplicitAnsiPort")
_DECLARED = ("DataDeclaration", "NetDeclaration")
_ASSIGNED = ("AssignmentExpression", "NonblockingAssignmentExpression")
TEXTBOOK_WIDTH = 8
"""Longer registers are also cut to this width, a typical error of answers copied from a textbook."""


def module_mutations(tree: SourceTree) -> Iterator[Mutation]:
    """Yield all mutations of this file, module by module."""
    for node in tree.of("ModuleDeclaration"):
        module = ModuleText(tree, node)
        yield from _short_outputs(module)
        yield from _short_registers(module)
        yield from _ignored_inputs(module)
        yield from _ignored_parameters(module)
        yield from _late_resets(module)
        yield from _missing_resets(module)


def _short_outputs(module: ModuleText) -> Iterator[Mutation]:
    """Put a register or net with fewer bits behind an output."""
    tree = module.tree
    for port in module.ports.values():
        whole = tree.span(port.header)
        if "output" not in port.words or port.bounds is None or port.node is None or whole is None:
            continue
        if (
            name_of(port.node) not in _PORTS
            or not {"reg", "logic", "output"} & port.words
            or shares_header(port.node)
        ):
            continue
        kind = next((word for word in ("reg", "logic") if word in port.words), "wire")
        initial = port.node.declarator.initializer
        given = f" {tree.text(initial)}" if initial else ""
        header = [
            Edit(*span, "wire")
            for t in tokens(port.header)
            if t.rawText == kind and (span := tree.span(t))
        ]
        if initial and (span := tree.span(initial)):
            header.append(Edit(*span, ""))
        for bounds, fewer in _narrower(tree, port.bounds):
            other = f"{port.name}__short"
            declaration = (
                f"{kind} {port.signed}{bounds} {other}{given}; assign {port.name} = {other};"
            )
            if edits := module.behind(port.name, other, declaration):
                described = f"output `{port.name}` {tree.text(port.bounds)} has {fewer} behind it"
                yield Mutation("truncation", described, (*edits, *header))


def _short_registers(module: ModuleText) -> Iterator[Mutation]:
    """Declare a vector of the body with fewer bits."""
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
    """Make an input, or one bit of it, read as a constant."""
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
                middle = size // 2
                values[f"{port.name} | (1 << {middle})"] = (
                    f"bit {middle} of `{port.name}`, from the right, reads as 1"
                )
        for value, described in values.items():
            if edits := module.behind(
                port.name, other, f"wire {port.signed}{width}{other} = {value};"
            ):
                yield Mutation("ignored input", described, edits)


def _ignored_parameters(module: ModuleText) -> Iterator[Mutation]:
    """Ignore the value of a parameter: in the body, or in the header's ranges too."""
    ports = [
        part
        for part in walk(module.node.header)
        if name_of(part) in ("AnsiPortList", "NonAnsiPortList")
    ]
    ports += [member for member in module.node.members if name_of(member) == "PortDeclaration"]
    rest = [member for member in module.node.members if name_of(member) != "PortDeclaration"]
    for name, default in module.parameters():
        inside = [span for part in rest for span in module.reads_of(name, walk(part))]
        outside = [span for part in ports for span in module.reads_of(name, walk(part))]
        if inside:
            edits = tuple(Edit(*span, f"({default})") for span in inside)
            yield Mutation(
                "ignored parameter",
                f"the body takes `{name}` as {default} whatever it is set to",
                edits,
            )
        if outside:
            edits = tuple(Edit(*span, f"({default})") for span in [*inside, *outside])
            yield Mutation(
                "ignored parameter", f"`{name}` is {default} whatever it is set to", edits
            )


def _late_resets(module: ModuleText) -> Iterator[Mutation]:
    """Make a reset act one clock edge later, or only if it lasts for two."""
    if not module.clocks:
        return
    clock = module.clocks[0]
    edge = next(iter(sorted(module.edges.get(clock, ()), reverse=True)), "posedge")
    for reset in (name for name in module.resets if name in module.ports):
        operator = "|" if is_active_low(module.node, reset, module.edges) else "&"
        before, held = f"{reset}__before", f"{reset}__held"
        register = f"reg {before}; always @({edge} {clock}) {before} <= {reset};"
        if edits := module.behind(reset, before, register):
            yield Mutation("late reset", f"`{reset}` acts one edge later", edits)
        if edits := module.behind(
            reset, held, f"{register} wire {held} = {reset} {operator} {before};"
        ):
            yield Mutation("late reset", f"`{reset}` acts only when it lasts for two edges", edits)


def _missing_resets(module: ModuleText) -> Iterator[Mutation]:
    """Make a register keep its value in reset."""
    tree = module.tree
    for node in (n for n in walk(module.node) if name_of(n) == "ConditionalStatement"):
        words = [
            token.rawText for token in tokens(node.predicate) if token.rawText not in ("(", ")")
        ]
        if (
            not words
            or words[-1] not in module.resets
            or len(words) > 2
            or words[:-1] not in ([], ["!"], ["~"])
        ):
            continue
        active_branch = is_active_low(module.node, words[-1], module.edges) == (len(words) == 2)
        branch = node.statement if active_branch else node.elseClause
        for part in walk(branch) if branch is not None else ():
            if name_of(part) == "ExpressionStatement" and name_of(part.expr) in _ASSIGNED:
                kept = (
                    f"`{tree.text(part.expr.left)}` keeps its value while `{words[-1]}` is active"
                )
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
    for fewer in dict.fromkeys((size - 1, TEXTBOOK_WIDTH if size > TEXTBOOK_WIDTH else size // 2)):
        if 0 < fewer < size:
            # The rightmost bit keeps its number, whether the range rises or falls.
            first = low + fewer - 1 if int(left) > low else low - fewer + 1
            yield f"[{first}:{low}]", f"only {fewer} bit{'s' if fewer > 1 else ''}"


def _size(tree: SourceTree, bounds: Node) -> int | None:
    """Number of bits of a range between two plain numbers, else None."""
    limits = _limits(tree, bounds)
    return (
        abs(int(limits[0]) - int(limits[1])) + 1
        if limits and all(map(str.isdigit, limits))
        else None
    )


def _limits(tree: SourceTree, bounds: Node) -> tuple[str, str] | None:
    """Texts left and right of the colon of a range."""
    select = next((n for n in walk(bounds) if name_of(n) == "SimpleRangeSelect"), None)
    return (tree.text(select.left), tree.text(select.right)) if select is not None else None


def shares_header(port: Node) -> bool:
    """Whether the next port has no header of its own, so that an edit of this header would change it too."""
    ports = [part for part in port.parent if not is_token(part)]
    spot = next((i for i, part in enumerate(ports) if part == port), None)
    return spot is None or (
        spot + 1 < len(ports) and not any(t.rawText for t in tokens(ports[spot + 1].header))
    )
