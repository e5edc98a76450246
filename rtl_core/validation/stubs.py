"""Stubs: modules with the right interface and no design behind it. A harness that pays one pays for nothing.

Without a golden answer: every output 0, every output 1, every output x, every output an input passed through, an echo of the clock, and 0 with
one short pulse. With one, the golden answer stands inside the stub under another name: its outputs as they are after one right
step, from then on constant; each output alone stuck at 0 and at 1, the others right.

A stub is made from the source text of the golden answer (or of the context's version) with the module's body taken out, so that
parameters keep their meaning; without either it is written from the problem's interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from rtl_core.grading.stand_in import render_module
from rtl_core.problems.clocking import (
    CLOCK_LIKE,
    RESET_LIKE,
    clocks_and_resets,
    edges_and_uses,
    is_active_low,
    split_clocks,
)
from rtl_core.problems.testbench import renamed
from rtl_core.problems.tree import Edit, Node, SourceTree, children, name_of, tokens, walk
from rtl_core.types.problem import Port, Problem
from rtl_core.validation.module_text import HEAD, ModuleText

Stub = Literal["zeros", "ones", "unknown", "inputs", "clock", "blip", "one step", "stuck"]
STUBS: tuple[Stub, ...] = get_args(Stub)
WITHOUT_DESIGN: tuple[Stub, ...] = ("zeros", "ones", "unknown", "inputs", "clock", "blip")
"""Stubs that hold nothing of the golden answer."""
MOST_STUCK = 8
"""At most so many outputs are stuck in turn."""
_WORDS: dict[str, str] = {
    "zeros": "all outputs 0",
    "ones": "all outputs 1",
    "unknown": "all outputs x",
    "inputs": "inputs passed through to the outputs",
    "clock": "an echo of the clock on all outputs",
    "blip": "all outputs 0 with one short pulse",
    "one step": "all outputs constant after one right step",
}
INNER = "__right"
"""What the golden answer's module ends in where it stands inside a stub."""


@dataclass(frozen=True)
class Stubs:
    """The stubs of a problem by name, or why there are none."""

    files: dict[str, dict[str, str]]
    """Name -> answer (path -> text). A name is its kind, with output and value behind it where an output is stuck."""
    reason: str = ""

    def of(self, kinds: Iterable[Stub]) -> dict[str, dict[str, str]]:
        """Those of some kinds, in the order of the kinds."""
        return {name: files for kind in kinds for name, files in self.files.items() if kind_of(name) == kind}


def kind_of(name: str) -> Stub:
    """The kind of a stub, from its name."""
    return next(kind for kind in STUBS if name == kind or name.startswith(f"{kind} "))


def in_words(name: str) -> str:
    """What a stub does, from its name."""
    return _WORDS.get(name) or f"output {name.removeprefix('stuck ')} for ever, the others right"


def stubs(problem: Problem) -> Stubs:
    """The stubs of a problem. Other target files keep their golden or given text; without one they are left out."""
    interface = problem.interface
    if interface is None:
        return Stubs({}, "the interface of the top module is not known")
    outputs = [port for port in interface.ports if port.direction == "output"]
    if not outputs:
        return Stubs({}, f"no output is known of {interface.module}")
    inputs = [port for port in interface.ports if port.direction == "input"]
    targets = [path for path in problem.targets if path.endswith((".v", ".sv"))]
    rest = {path: text for path, text in {**problem.context, **(problem.golden or {})}.items() if path in targets}
    clock = _clock(problem, inputs)
    found: dict[str, dict[str, str]] = {}
    for stub in WITHOUT_DESIGN:
        if stub == "clock" and clock is None:
            continue
        body = _body(stub, outputs, inputs, clock)
        for path in targets:
            if path in rest and (text := _emptied(rest[path], interface.module, body)) is not None:
                break
        else:
            if interface.source == "golden" or not targets:
                return Stubs({}, f"no target file holds module {interface.module} in a form that can be emptied")
            if any(port.direction is None for port in interface.ports):
                return Stubs({}, "the direction of a port is not known")
            path = next((p for p in targets if p.rsplit("/", 1)[-1].split(".")[0] == interface.module), targets[0])
            text = render_module(interface, body)
        found[stub] = {**rest, path: _timed(text) if stub == "blip" else text}
    if problem.golden is not None:
        found |= _around_golden(problem, rest)
    return Stubs(found)


class AroundGolden:
    """The golden answer's module inside another one with the same name and ports. Its output `q` is the wire `q__right` there."""

    def __init__(self, problem: Problem, files: Mapping[str, str] | None = None):
        """Takes the golden answer, among `files` where they are given. Raises ValueError where its text cannot be taken apart."""
        interface, golden = problem.interface, problem.golden or {}
        if interface is None:
            raise ValueError("the interface of the top module is not known")
        self.inputs = [port for port in interface.ports if port.direction == "input"]
        self.outputs = [port for port in interface.ports if port.direction == "output"]
        for path in (p for p in problem.targets if p in golden and p.endswith((".v", ".sv"))):
            tree = SourceTree(golden[path])
            module = _module(tree, interface.module)
            if module is None or len(self.inputs) + len(self.outputs) != len(interface.ports):
                continue
            declared = ModuleText(tree, module).ports
            if declared.keys() >= {port.name for port in self.outputs}:
                break
        else:
            raise ValueError(f"no target file holds module {interface.module} in a form that can be taken apart")
        self._tree = tree  # the nodes live as long as it does
        self.module, self._top = module, interface.module
        self._files, self._path = files or golden, path
        bounds = {port.name: declared[port.name].bounds for port in self.outputs}
        self.ranges = {name: tree.text(node) if node else "" for name, node in bounds.items()}
        self._inner = renamed(tree.text(module), {self._top: f"{self._top}{INNER}"})
        given = ", ".join(f".{p.name}({p.name})" for p in interface.parameters)
        ports = [f".{p.name}({p.name})" for p in self.inputs] + [f".{p.name}({p.name}{INNER})" for p in self.outputs]
        self._instance = (
            "".join(f"  wire {text} {name}{INNER};\n" for name, text in self.ranges.items())
            + f"  {self._top}{INNER}{f' #({given})' if given else ''} inner{INNER} ({', '.join(ports)});\n"
        )

    def answer(self, body: str) -> dict[str, str] | None:
        """The answer (path -> text) with this body around the golden answer; None where the module hides in macros."""
        around = _emptied(self._files[self._path], self._top, self._instance + body)
        if around is None:
            return None
        return {**self._files, self._path: f"{_timed(around)}\n{self._inner}\n"}

    def but_for(self, output: str, value: str) -> str:
        """The body that assigns `value` to one output, and leaves the others right."""
        assigned = {output: value, **{name: f"{name}{INNER}" for name in self.ranges if name != output}}
        return "".join(f"  assign {name} = {text};\n" for name, text in assigned.items())


def _around_golden(problem: Problem, rest: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The stubs that hold the golden answer's module; none where its text cannot be taken apart."""
    try:
        golden = AroundGolden(problem, rest)
    except ValueError:
        return {}
    bits = [port.name for port in golden.inputs if port.width == 1]
    bodies = {"one step": _one_step(golden.module, bits, golden.ranges)}
    for output in golden.outputs[:MOST_STUCK] if len(golden.outputs) > 1 else ():
        for value, stuck in ((0, "0"), (1, "~0")):
            bodies[f"stuck {output.name} at {value}"] = golden.but_for(output.name, stuck)
    return {name: answer for name, body in bodies.items() if (answer := golden.answer(body))}


def _one_step(module: Node, bits: list[str], ranges: Mapping[str, str]) -> str:
    """Outputs that follow the golden answer in reset and until they are known, change once more, and stay."""
    edges, used = edges_and_uses(module)
    _, resets = split_clocks(bits, edges, used)
    active = [f"!{name}" if is_active_low(module, name, edges) else name for name in resets if name in used]
    now, kept = ([f"{name}{mark}" for name in ranges] for mark in (INNER, "__kept"))
    take = " ".join(f"{k} = {n};" for k, n in zip(kept, now, strict=True))
    # All bits of one change come together: outputs are looked at a moment after.
    return (
        "".join(f"  reg {text} {name}__kept;\n  assign {name} = {name}__kept;\n" for name, text in ranges.items())
        + f"  reg done__ = 0;\n  wire free__ = {' | '.join(active) or 0};\n"
        f"  always @({' or '.join([*now, 'free__'])}) begin\n    #0.1;\n"
        f"    if (free__ === 1'b1 || (^{{{', '.join(kept)}}}) === 1'bx) begin {take} done__ = 0; end\n"
        f"    else if (!done__ && {{{', '.join(now)}}} !== {{{', '.join(kept)}}}) begin {take} done__ = 1; end\n  end\n"
    )


def _clock(problem: Problem, inputs: list[Port]) -> str | None:
    """The input that the golden answer or the given files wait for an edge of, or that is named like a clock."""
    bits = [port.name for port in inputs if port.width in (1, None)]
    clocks, _, _ = clocks_and_resets({**problem.context, **(problem.golden or {})}, bits)
    return next(iter(clocks), None) or next((name for name in bits if CLOCK_LIKE.search(name)), None)


def _body(stub: Stub, outputs: list[Port], inputs: list[Port], clock: str | None) -> str:
    """The body of a stub that holds no design."""
    if stub == "blip":
        pulse = "  reg blip = 0;\n  initial begin #1 blip = 1; #1 blip = 0; end\n"
        return pulse + "".join(f"  assign {port.name} = blip ? ~0 : 0;\n" for port in outputs)
    if stub == "clock":
        return "".join(f"  assign {port.name} = {clock} ? ~0 : 0;\n" for port in outputs)
    return "".join(f"  assign {port.name} = {_value(stub, port, inputs)};\n" for port in outputs)


def _timed(text: str) -> str:
    """The text with a time unit of 1 ns, unless it has one."""
    return text if "`timescale" in text or "timeunit" in text else f"`timescale 1ns/1ps\n{text}"


def _value(stub: Stub, port: Port, inputs: list[Port]) -> str:
    if stub == "zeros" or (stub == "inputs" and not inputs):
        return "0"
    if stub == "ones":
        return "~0"  # as wide as the output it is assigned to
    if stub == "unknown":
        return "'bx"
    data = [p for p in inputs if not CLOCK_LIKE.search(p.name) and not RESET_LIKE.search(p.name)] or inputs
    return next((p.name for p in data if p.width == port.width), data[0].name)


def _module(tree: SourceTree, name: str) -> Node | None:
    """The declaration of a module, if it stands in this text."""
    return next((node for node in tree.of("ModuleDeclaration") if node.header.name.rawText == name), None)


def _emptied(text: str, module: str, body: str) -> str | None:
    """`text` with another body for `module`; None when the module is not there or hides in macros."""
    tree = SourceTree(text)
    node = _module(tree, module)
    if node is None:
        return None
    edits: list[Edit] = []
    for port in walk(node.header):
        if name_of(port) in ("ImplicitAnsiPort", "ExplicitAnsiPort"):
            edits += _as_net(tree, port)
    for member in node.members:
        if name_of(member) == "PortDeclaration":
            edits += _as_net(tree, member)
        elif name_of(member) not in HEAD:
            span = tree.span(member)
            if span is None:
                return None
            edits.append(Edit(*span, ""))
    end = tree.span(node.endmodule)
    if end is None:
        return None
    edits.append(Edit(end[0], end[0], "\n" + body))
    return tree.edited(tuple(edits))


def _as_net(tree: SourceTree, port: Node) -> list[Edit]:
    """Edits that make an output variable a net without an initial value, so that it can be assigned."""
    header = next((child for child in children(port) if name_of(child).endswith("PortHeader")), None)
    if header is None:
        return []
    words = [token.rawText for token in tokens(header)]
    edits = []
    if "output" in words and "wire" not in words and "var" not in words:
        for token in tokens(header):
            span = tree.span(token) if token.rawText in ("reg", "logic") else None
            if span:
                edits.append(Edit(*span, "wire"))
    for part in walk(port):
        span = tree.span(part) if name_of(part) == "EqualsValueClause" else None
        if span:
            edits.append(Edit(*span, ""))
    return edits
