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
from pathlib import Path
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
from rtl_grader.hdl.tree import Edit, Node, SourceTree, find, name_of
from rtl_grader.problems.testbench import renamed
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Interface, Port, Problem
from rtl_grader.validation.module_text import HEAD, ModuleText, as_net
from rtl_grader.verilog_templates import verilog_templates

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
HDL = (".v", ".sv")
_ANSI_PORTS = ("ImplicitAnsiPort", "ExplicitAnsiPort")
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
_TEMPLATES = verilog_templates(Path(__file__).parent / "wrappers")


@dataclass(frozen=True)
class Stubs:
    """The stubs of a problem by name, or the reason why there are none."""

    files: dict[str, Files]
    """Name -> answer (path -> text). The name is the kind, followed by output and value if an output is stuck."""
    reason: str = ""

    def of(self, kinds: Iterable[Stub]) -> dict[str, Files]:
        """Stubs of some kinds, in the order of the kinds."""
        names = [name for kind in kinds for name in self.files if kind_of(name) == kind]
        return {name: self.files[name] for name in names}


def kind_of(name: str) -> Stub:
    """Kind of a stub from its name."""
    return next(kind for kind in STUBS if name == kind or name.startswith(f"{kind} "))


def in_words(name: str) -> str:
    """Description of a stub from its name."""
    return (
        _WORDS.get(name) or f"output {name.removeprefix('stuck ')} for ever, the others right"
    )


def stubs(problem: Problem) -> Stubs:
    """Make the stubs of a problem. Other target files keep their golden or given text, or are omitted if
    they have none."""
    if problem.interface is None:
        return Stubs({}, "the interface of the top module is not known")
    interface = completed(problem.interface, problem)
    outputs, inputs = interface.outputs, interface.inputs
    files = {**problem.context, **(problem.golden or {})}
    rest: dict[str, str] = {}
    for path in problem.targets:
        if path.endswith(HDL):
            rest[path] = files.get(path, "// nothing\n")
    clock = _clock(problem, inputs)
    results: dict[str, Files] = {}
    for stub in WITHOUT_DESIGN:
        if stub in ("clock", "counter") and clock is None:
            continue
        body = _body(stub, outputs, inputs, clock)
        if (place := _in_place(rest, interface.module, body)) is None:
            if interface.source == "golden" or not rest:
                return Stubs(
                    {},
                    f"no target file holds module {interface.module} in a form that can be emptied",
                )
            place = _named_like(interface.module, rest), render_module(interface, body)
        path, text = place
        results[stub] = {**rest, path: _timed(text) if stub == "blip" else text}
    if problem.golden is not None:
        results |= _around_golden(problem, rest)
    return Stubs(results)


def _in_place(files: Files, module: str, body: str) -> tuple[str, str] | None:
    """(path, text) of the first file in which the module could get this body."""
    for path, text in files.items():
        if (emptied := _emptied(text, module, body)) is not None:
            return path, emptied
    return None


def _named_like(module: str, paths: Iterable[str]) -> str:
    """The path that is named after the module, else the first."""
    return max(paths, key=lambda path: basename(path).split(".")[0] == module)


class AroundGolden:
    """The golden answer's module inside another module with the same name and ports, where its output `q`
    is the wire `q__right`."""

    def __init__(self, problem: Problem, files: Files | None = None):
        """Wrap the golden answer's module. `files`: all files of the answers, by default the golden ones.
        Raises ValueError if it cannot be parsed."""
        interface, golden = problem.interface, problem.golden or {}
        if interface is None:
            raise ValueError("the interface of the top module is not known")
        self.inputs, self.outputs = interface.inputs, interface.outputs
        self.module, self._tree, self._path = self._read(problem.targets, golden, interface)
        self._files, self._top = files or golden, interface.module
        ports = ModuleText(self._tree, self.module).ports
        self.ranges: dict[str, str] = {}
        """Output -> its range; empty for a single bit."""
        for port in self.outputs:
            bounds = ports[port.name].bounds
            self.ranges[port.name] = self._tree.text(bounds) if bounds else ""
        self._inner = renamed(self._tree.text(self.module), {self._top: f"{self._top}{INNER}"})
        self._instance = _TEMPLATES.get_template("inner.sv.jinja").render(
            top=self._top,
            inner=INNER,
            ranges=self.ranges,
            parameters=[parameter.name for parameter in interface.parameters],
            inputs=[port.name for port in self.inputs],
        )

    def _read(
        self, targets: Iterable[str], golden: Files, interface: Interface
    ) -> tuple[Node, SourceTree, str]:
        """The module, the tree that keeps it alive, and its path."""
        is_driven = len(self.inputs) + len(self.outputs) == len(interface.ports)
        outputs = {port.name for port in self.outputs}
        for path in targets:
            if path not in golden or not path.endswith(HDL) or not is_driven:
                continue
            tree = SourceTree(golden[path])
            module = tree.module(interface.module)
            if module is not None and outputs <= ModuleText(tree, module).ports.keys():
                return module, tree, path
        raise ValueError(
            f"no target file holds module {interface.module} in a form that can be taken apart"
        )

    def answer(self, body: str) -> dict[str, str] | None:
        """Answer (path -> text) with this body around the golden answer; None if a macro defines the module."""
        around = _emptied(self._files[self._path], self._top, self._instance + body)
        if around is None:
            return None
        return {**self._files, self._path: f"{_timed(around)}\n{self._inner}\n"}

    def but_for(self, output: str, value: str) -> str:
        """Body that assigns `value` to one output, and the right values to the others."""
        others = {name: f"{name}{INNER}" for name in self.ranges if name != output}
        return _assigned({output: value, **others})


def _assigned(values: Mapping[str, str]) -> str:
    return "".join(f"  assign {name} = {value};\n" for name, value in values.items())


def _around_golden(problem: Problem, rest: Files) -> dict[str, Files]:
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
    active = []
    for name in resets:
        if name in used:
            active.append(f"!{name}" if is_active_low(module, name, edges) else name)
    template = _TEMPLATES.get_template("one_step.sv.jinja")
    return template.render(ranges=ranges, inner=INNER, active=active)


def _clock(problem: Problem, inputs: list[Port]) -> str | None:
    """Input whose edges the golden answer or the given files wait for, else one that is named like a clock."""
    bits = [port.name for port in inputs if port.width in (1, None)]
    clocks, _, _ = clocks_and_resets({**problem.context, **(problem.golden or {})}, bits)
    likely = (name for name in bits if CLOCK_LIKE.search(name))
    return next(iter(clocks), None) or next(likely, None)


def _body(stub: Stub, outputs: list[Port], inputs: list[Port], clock: str | None) -> str:
    """Body of a stub that contains no design."""
    data = [port for port in inputs if not _is_control(port.name)] or inputs
    copied: dict[str, str] = {}
    for output in outputs:
        of_same_width = [one.name for one in data if one.width == output.width]
        copied[output.name] = [*of_same_width, *(one.name for one in data), "0"][0]
    return _TEMPLATES.get_template("stub.sv.jinja").render(
        stub=stub, clock=clock, copied=copied
    )


def _is_control(name: str) -> bool:
    """Whether a name is that of a clock or reset."""
    return bool(CLOCK_LIKE.search(name) or RESET_LIKE.search(name))


def _timed(text: str) -> str:
    """The text with a time unit of 1 ns, unless it has one."""
    return text if "`timescale" in text or "timeunit" in text else f"`timescale 1ns/1ps\n{text}"


def _emptied(text: str, module: str, body: str) -> str | None:
    """`text` with another body for `module`; None if it lacks the module or a macro defines it."""
    tree = SourceTree(text)
    node = tree.module(module)
    if node is None:
        return None
    removed = [tree.span(member) for member in node.members if name_of(member) not in HEAD]
    end = tree.span(node.endmodule)
    if end is None or None in removed:
        return None
    ports = list(find(node.header, *_ANSI_PORTS))
    ports += [member for member in node.members if name_of(member) == "PortDeclaration"]
    edits = [edit for port in ports for edit in as_net(tree, port)]
    edits += [Edit(*span, "") for span in removed if span]
    start, _ = end
    edits.append(Edit(start, start, "\n" + body))
    return tree.edited(edits)
