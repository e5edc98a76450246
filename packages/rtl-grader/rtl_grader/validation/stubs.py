"""Stubs: modules with the right interface and no design. A harness that accepts one is too weak.

Some need no golden answer: every output is 0, 1, x, a copy of an input, an echo of the clock, a count of
its edges, or 0 with one short pulse. Others contain the golden answer under another name: its outputs stay
constant after one right step, or a single output is stuck at 0 or 1.

A stub is the source text of the golden answer (or of the context) with the module's body removed, so that
parameters keep their meaning. Without either, it is generated from the problem's interface; a direction
that is not known is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from posixpath import basename
from typing import Literal, get_args

from rtl_grader.grading.stand_in import completed, render_module
from rtl_grader.hdl.clocking import (
    CLOCK_LIKE,
    RESET_LIKE,
    clocks_and_resets,
    edges_and_uses,
    is_active_low,
    split_clocks,
)
from rtl_grader.hdl.tree import Edit, Node, SourceTree, children, name_of, tokens, walk
from rtl_grader.problems.testbench import renamed
from rtl_grader.types.problem import Port, Problem
from rtl_grader.validation.module_text import HEAD, ModuleText

Stub = Literal[
    "zeros", "ones", "unknown", "inputs", "clock", "counter", "blip", "one step", "stuck"
]
STUBS: tuple[Stub, ...] = get_args(Stub)
WITHOUT_DESIGN: tuple[Stub, ...] = (
    "zeros",
    "ones",
    "unknown",
    "inputs",
    "clock",
    "counter",
    "blip",
)
"""Stubs that contain nothing of the golden answer."""
MOST_STUCK = 8
"""Maximum number of outputs to be stuck in turn."""
_WORDS: dict[str, str] = {
    "zeros": "all outputs 0",
    "ones": "all outputs 1",
    "unknown": "all outputs x",
    "inputs": "inputs passed through to the outputs",
    "clock": "an echo of the clock on all outputs",
    "counter": "a free-running counter on all outputs",
    "blip": "all outputs 0 with one short pulse",
    "one step": "all outputs constant after one right step",
}
INNER = "__right"
"""Suffix of the golden answer's module inside a stub."""


@dataclass(frozen=True)
class Stubs:
    """The stubs of a problem by name, or the reason why there are none."""

    files: dict[str, dict[str, str]]
    """Name -> answer (path -> text). The name is the kind, followed by output and value if an output is stuck."""
    reason: str = ""

    def of(self, kinds: Iterable[Stub]) -> dict[str, dict[str, str]]:
        """Stubs of some kinds, in the order of the kinds."""
        return {
            name: files
            for kind in kinds
            for name, files in self.files.items()
            if kind_of(name) == kind
        }


def kind_of(name: str) -> Stub:
    """Kind of a stub from its name."""
    return next(kind for kind in STUBS if name == kind or name.startswith(f"{kind} "))


def in_words(name: str) -> str:
    """Description of a stub from its name."""
    return _WORDS.get(name) or f"output {name.removeprefix('stuck ')} for ever, the others right"


def stubs(problem: Problem) -> Stubs:
    """Make the stubs of a problem. Other target files keep their golden or given text, or are omitted if
    they have none."""
    if problem.interface is None:
        return Stubs({}, "the interface of the top module is not known")
    interface = completed(problem.interface, problem)
    outputs = [port for port in interface.ports if port.direction == "output"]
    inputs = [port for port in interface.ports if port.direction == "input"]
    targets = [path for path in problem.targets if path.endswith((".v", ".sv"))]
    nothing = dict.fromkeys(targets, "// nothing\n")
    known = {**problem.context, **(problem.golden or {})}
    rest = nothing | {path: text for path, text in known.items() if path in nothing}
    clock = _clock(problem, inputs)
    found: dict[str, dict[str, str]] = {}
    for stub in WITHOUT_DESIGN:
        if stub in ("clock", "counter") and clock is None:
            continue
        body = _body(stub, outputs, inputs, clock)
        for path in targets:
            if (text := _emptied(rest[path], interface.module, body)) is not None:
                break
        else:
            if interface.source == "golden" or not targets:
                return Stubs(
                    {},
                    f"no target file holds module {interface.module} in a form that can be emptied",
                )
            path = next(
                (p for p in targets if basename(p).split(".")[0] == interface.module), targets[0]
            )
            text = render_module(interface, body)
        found[stub] = {**rest, path: _timed(text) if stub == "blip" else text}
    if problem.golden is not None:
        found |= _around_golden(problem, rest)
    return Stubs(found)


class AroundGolden:
    """The golden answer's module inside another module with the same name and ports, where its output `q`
    is the wire `q__right`."""

    def __init__(self, problem: Problem, files: Mapping[str, str] | None = None):
        """Wrap the golden answer's module. `files`: all files of the answers, by default the golden ones.
        Raises ValueError if it cannot be parsed."""
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
            raise ValueError(
                f"no target file holds module {interface.module} in a form that can be taken apart"
            )
        self._tree = tree  # keeps the nodes alive
        self.module, self._top = module, interface.module
        self._files, self._path = files or golden, path
        bounds = {port.name: declared[port.name].bounds for port in self.outputs}
        self.ranges = {name: tree.text(node) if node else "" for name, node in bounds.items()}
        self._inner = renamed(tree.text(module), {self._top: f"{self._top}{INNER}"})
        given = ", ".join(f".{p.name}({p.name})" for p in interface.parameters)
        ports = [f".{p.name}({p.name})" for p in self.inputs] + [
            f".{p.name}({p.name}{INNER})" for p in self.outputs
        ]
        self._instance = (
            "".join(f"  wire {text} {name}{INNER};\n" for name, text in self.ranges.items())
            + f"  {self._top}{INNER}{f' #({given})' if given else ''} inner{INNER} ({', '.join(ports)});\n"
        )

    def answer(self, body: str) -> dict[str, str] | None:
        """Answer (path -> text) with this body around the golden answer; None if a macro defines the module."""
        around = _emptied(self._files[self._path], self._top, self._instance + body)
        if around is None:
            return None
        return {**self._files, self._path: f"{_timed(around)}\n{self._inner}\n"}

    def but_for(self, output: str, value: str) -> str:
        """Body that assigns `value` to one output, and the right values to the others."""
        assigned = {
            output: value,
            **{name: f"{name}{INNER}" for name in self.ranges if name != output},
        }
        return "".join(f"  assign {name} = {text};\n" for name, text in assigned.items())


def _around_golden(problem: Problem, rest: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Stubs that contain the golden answer's module; empty if its text cannot be parsed."""
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
    """Body whose outputs follow the golden answer in reset and while unknown, change once more, and then
    stay constant."""
    edges, used = edges_and_uses(module)
    _, resets = split_clocks(bits, edges, used)
    active = [
        f"!{name}" if is_active_low(module, name, edges) else name
        for name in resets
        if name in used
    ]
    now, kept = ([f"{name}{mark}" for name in ranges] for mark in (INNER, "__kept"))
    take = " ".join(f"{k} = {n};" for k, n in zip(kept, now, strict=True))
    # The delay collects all bits of one change before the outputs are sampled.
    return (
        "".join(
            f"  reg {text} {name}__kept;\n  assign {name} = {name}__kept;\n"
            for name, text in ranges.items()
        )
        + f"  reg done__ = 0;\n  wire free__ = {' | '.join(active) or 0};\n"
        f"  always @({' or '.join([*now, 'free__'])}) begin\n    #0.1;\n"
        f"    if (free__ === 1'b1 || (^{{{', '.join(kept)}}}) === 1'bx) begin {take} done__ = 0; end\n"
        f"    else if (!done__ && {{{', '.join(now)}}} !== {{{', '.join(kept)}}}) begin {take} done__ = 1; end\n  end\n"
    )


def _clock(problem: Problem, inputs: list[Port]) -> str | None:
    """Input whose edges the golden answer or the given files wait for, else one that is named like a clock."""
    bits = [port.name for port in inputs if port.width in (1, None)]
    clocks, _, _ = clocks_and_resets({**problem.context, **(problem.golden or {})}, bits)
    return next(iter(clocks), None) or next(
        (name for name in bits if CLOCK_LIKE.search(name)), None
    )


def _body(stub: Stub, outputs: list[Port], inputs: list[Port], clock: str | None) -> str:
    """Body of a stub that contains no design."""
    data = [
        p for p in inputs if not CLOCK_LIKE.search(p.name) and not RESET_LIKE.search(p.name)
    ] or inputs
    constants = {
        "zeros": "0",
        "ones": "~0",
        "unknown": "'bx",
        "clock": f"{clock} ? ~0 : 0",
        "blip": "blip ? ~0 : 0",
    }
    constants["counter"] = "count__"

    def value(port: Port) -> str:
        same_width = (p.name for p in data if p.width == port.width)
        return constants.get(stub) or next(same_width, data[0].name if data else "0")

    states = {
        "blip": "  reg blip = 0;\n  initial begin #1 blip = 1; #1 blip = 0; end\n",
        "counter": f"  reg [63:0] count__ = 0;\n  always @(posedge {clock}) count__ = count__ + 1;\n",
    }
    assigned = "".join(f"  assign {port.name} = {value(port)};\n" for port in outputs)
    return states.get(stub, "") + assigned


def _timed(text: str) -> str:
    """The text with a time unit of 1 ns, unless it has one."""
    return text if "`timescale" in text or "timeunit" in text else f"`timescale 1ns/1ps\n{text}"


def _module(tree: SourceTree, name: str) -> Node | None:
    return next(
        (node for node in tree.of("ModuleDeclaration") if node.header.name.rawText == name), None
    )


def _emptied(text: str, module: str, body: str) -> str | None:
    """`text` with another body for `module`; None if it lacks the module or a macro defines it."""
    tree = SourceTree(text)
    node = _module(tree, module)
    if node is None:
        return None
    ports = [
        part
        for part in walk(node.header)
        if name_of(part) in ("ImplicitAnsiPort", "ExplicitAnsiPort")
    ]
    ports += [member for member in node.members if name_of(member) == "PortDeclaration"]
    edits = [edit for port in ports for edit in _as_net(tree, port)]
    removed = [tree.span(member) for member in node.members if name_of(member) not in HEAD]
    end = tree.span(node.endmodule)
    if end is None or None in removed:
        return None
    edits += [Edit(*span, "") for span in removed if span]
    edits.append(Edit(end[0], end[0], "\n" + body))
    return tree.edited(tuple(edits))


def _as_net(tree: SourceTree, port: Node) -> list[Edit]:
    """Edits that turn an output variable into a net without an initial value, so that it can be assigned."""
    header = next(
        (child for child in children(port) if name_of(child).endswith("PortHeader")), None
    )
    if header is None:
        return []
    words = {token.rawText for token in tokens(header)}
    changes = [(part, "") for part in walk(port) if name_of(part) == "EqualsValueClause"]
    if "output" in words and not words & {"wire", "var"}:
        changes += [
            (token, "wire") for token in tokens(header) if token.rawText in ("reg", "logic")
        ]
    return [Edit(*span, text) for part, text in changes if (span := tree.span(part))]
