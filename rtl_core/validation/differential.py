"""Golden answer against another answer, both in one simulation, over many inputs: can they be told apart at all?

A mutant that survives a harness says something of the harness only if it behaves differently, and a stub is no cheat where
a constant is what is asked. So both are simulated side by side by a test bench written from the interface: every input
pattern where there are few, random ones else; clocked designs through resets of both polarities, at both clock edges, with
inputs that change in between. Where the golden answer gives X anything is right, and an X of the other is only held against
it when it is frequent: before the first reset simulators are pessimists.

Not covered: parameters other than the defaults, inout ports, unpacked array ports, states that lie deeper than the cycles
simulated. What was not told apart is called the same, with the number of inputs tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rtl_core.grading.executors.base import Executor, Job, Step
from rtl_core.grading.limits import Limits
from rtl_core.problems.problem import Interface, Port, Problem
from rtl_core.problems.testbench import renamed
from rtl_core.problems.tree import SourceTree, name_of, tokens, walk
from rtl_core.validation.stubs import CLOCK_LIKE, RESET_LIKE

EXHAUSTIVE_BITS = 12
RANDOM_VECTORS = 4000
PHASES = 12
CYCLES = 160
_UNITS = {"ModuleDeclaration", "PackageDeclaration", "InterfaceDeclaration"}
_HDL = (".v", ".sv")


@dataclass(frozen=True)
class Comparison:
    """What a side-by-side simulation found. `unknown` where none could be made; `detail` says what, where or why."""

    result: Literal["same", "different", "unknown"]
    detail: str


def compare(
    executor: Executor,
    problem: Problem,
    golden: Mapping[str, str],
    other: Mapping[str, str],
    limits: Limits,
    seed: int = 0,
) -> Comparison:
    """Simulate `other` (path -> text) beside `golden`. Raises InfrastructureError where the executor fails."""
    interface = problem.interface
    if interface is None:
        return Comparison("unknown", "the interface of the top module is not known")
    if bad := [p.name for p in interface.ports if p.width is None or p.direction not in ("input", "output")]:
        return Comparison("unknown", f"port {bad[0]} has no known width or direction")
    hdl = {path: text for path, text in golden.items() if path.endswith(_HDL)}
    if not hdl:
        return Comparison("unknown", "the golden answer is no HDL")
    names = {name: f"{name}__golden" for text in hdl.values() for name in _units(text)}
    if interface.module not in names:
        return Comparison("unknown", f"the golden answer does not define {interface.module}")
    harness = {f"src/golden{i}.sv": renamed(text, names) for i, text in enumerate(hdl.values())}
    given = {p: t for p, t in problem.context.items() if p.startswith("rtl/") and p not in problem.targets}
    clocks, resets = _clocks_and_resets({**given, **hdl}, interface)
    harness["src/side_by_side.sv"] = bench(interface, names[interface.module], clocks, resets)
    files = {**given, **other}
    sources = [f"/code/{path}" for path in harness if path.startswith("src/")]
    sources += [f"/code/{path}" for path in files if path.endswith(_HDL)]
    compile_ = ("iverilog", "-g2012", "-Wno-timescale", "-I", "/code/rtl", "-s", "side_by_side", "-o", "both", *sources)
    job = Job(
        files=files,
        harness=harness,
        steps=(Step("compile", compile_), Step("simulate", ("vvp", "-n", "both", "-none"))),
        limits=limits.model_copy(update={"wall_s": min(limits.wall_s, 20.0)}),
        seed=seed,
        stop_at_failure=True,
    )
    steps = executor.run(job).steps
    if len(steps) < 2:
        return Comparison("unknown", f"the two do not compile side by side: {_first_line(steps[0].output)}")
    if steps[1].overrun:
        return (
            Comparison("different", "one of the two never settles")
            if clocks
            else Comparison("unknown", "it takes too long")
        )
    if match := re.search(r"^SIDE-BY-SIDE (same|different|unknown): (.*)$", steps[1].output, re.M):
        return Comparison(match[1], match[2])  # type: ignore[arg-type]
    return Comparison("unknown", f"the simulation ended early: {_first_line(steps[1].output)}")


def bench(interface: Interface, golden: str, clocks: Sequence[str], resets: Sequence[str]) -> str:
    """The side-by-side test bench in SystemVerilog, for Icarus."""
    inputs = [p for p in interface.ports if p.direction == "input"]
    outputs = [p for p in interface.ports if p.direction == "output"]
    data = [p for p in inputs if p.name not in clocks and p.name not in resets]
    lines = ["`timescale 1ns/1ps", "module side_by_side;"]
    lines += [f"  reg {_range(p)} in_{p.name};" for p in inputs]
    lines += [f"  wire {_range(p)} good_{p.name}, got_{p.name};" for p in outputs]
    for module, name, prefix in ((golden, "good", "good_"), (interface.module, "got", "got_")):
        wires = [f".{p.name}(in_{p.name})" for p in inputs] + [f".{p.name}({prefix}{p.name})" for p in outputs]
        lines.append(f"  {module} {name} ({', '.join(wires)});")
    lines += [
        "  integer tried = 0, known = 0, unsure = 0, phase, cycle, density;",
        "  task check; begin",
        "    #1 tried = tried + 1;",
        f"    if (^{{{', '.join(f'good_{p.name}' for p in outputs)}}} !== 1'bx) known = known + 1;",
    ]
    shown = " ".join(f"{p.name}=%h" for p in inputs)
    values = "".join(f", in_{p.name}" for p in inputs)
    for p in outputs:
        good, got = f"good_{p.name}", f"got_{p.name}"
        lines += [
            f"    if (|({good} ^ {got}) === 1'b1) begin",
            f'      $display("SIDE-BY-SIDE different: after %0d inputs {shown}: {p.name} is %h, golden %h", tried{values}, {got}, {good});',
            "      $finish;",
            "    end",
            f"    if ({good} !== ({good} ^ {got} ^ {good})) unsure = unsure + 1;",
        ]
    lines += ["  end endtask", "  task draw; begin"]
    lines += [f"    in_{p.name} = {_random(p)};" for p in data]
    lines += ["  end endtask", "  initial begin"]
    lines += _clocked(clocks, resets) if clocks else _combinational([*data, *(p for p in inputs if p.name in resets)])
    lines += [
        "    if (4 * unsure > known && unsure > 0)",
        '      $display("SIDE-BY-SIDE different: %0d of %0d times X where the golden answer is known", unsure, known);',
        '    else if (20 * known < tried) $display("SIDE-BY-SIDE unknown: the golden answer gives X nearly always");',
        '    else $display("SIDE-BY-SIDE same: %0d inputs tried", tried);',
        "    $finish;", "  end", "endmodule", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _combinational(inputs: list[Port]) -> list[str]:
    bits = sum(p.width or 1 for p in inputs)
    every = "{" + ", ".join(f"in_{p.name}" for p in inputs) + "}"
    if not inputs:
        return ["    check;"]
    if bits <= EXHAUSTIVE_BITS:
        return [f"    for (cycle = 0; cycle < {1 << bits}; cycle = cycle + 1) begin {every} = cycle; check; end"]
    lines = ["    density = 2;", f"    {every} = 0; check;", f"    {every} = ~0; check;"]
    rest = " ".join(f"in_{p.name} = {_random(p)};" for p in inputs)
    return [*lines, f"    repeat ({RANDOM_VECTORS}) begin {rest} check; end"]


def _clocked(clocks: Sequence[str], resets: Sequence[str]) -> list[str]:
    def put(names: Sequence[str], value: str) -> str:
        return " ".join(f"in_{name} = {value};" for name in names)

    ticks = [
        f"      in_{clock} = 1; check; if ($urandom % 4 == 0) begin draw; check; end in_{clock} = 0; check;"
        for clock in clocks
    ]
    if len(clocks) > 1:
        ticks = [f"      if ($urandom % 2) begin in_{clock} = ~in_{clock}; check; end" for clock in clocks]
    jitter = [f"      if ($urandom % 24 == 0) begin in_{r} = ~in_{r}; check; end" for r in resets]
    # Both polarities of every reset get phases in which they are mostly off.
    back = [f"      if (cycle % 8 == 7) begin in_{r} = phase[0]; check; end" for r in resets]
    return [
        f"    {put([*clocks, *resets], '0')} density = 2; draw; check;",
        f"    for (phase = 0; phase < {PHASES}; phase = phase + 1) begin",
        "      density = 1 + phase % 3;",
        f"      {put(resets, '!phase[0]')} draw; check;",
        "      repeat (3) begin",
        *ticks,
        "      end",
        f"      {put(resets, 'phase[0]')} check;",
        f"      for (cycle = 0; cycle < {CYCLES}; cycle = cycle + 1) begin",
        "      draw; check;",
        *jitter,
        *ticks,
        *back,
        "      end",
        "    end",
    ]


def _random(port: Port) -> str:
    """A random value; single bits are high in one of four, two or 1.3 cases by `density`, words now and then all 0 or 1."""
    if port.width == 1:
        return "($urandom % 4) < density"
    words = "{" + ", ".join(["$urandom"] * (((port.width or 1) + 31) // 32)) + "}"
    return f"($urandom % 8 == 0) ? {{{port.width}{{$urandom % 2 == 0}}}} : ($urandom % 8 == 0) ? 1 << ($urandom % {port.width}) : {words}"


def _clocks_and_resets(files: Mapping[str, str], interface: Interface) -> tuple[list[str], list[str]]:
    """Input ports that only ever stand behind `posedge` or `negedge`, and those that reset: by use, or by name."""
    edges: set[str] = set()
    used: set[str] = set()
    for path, text in files.items():
        if not path.endswith(_HDL):
            continue
        tree = SourceTree(text)
        skip = frozenset({"SignalEventExpression", "HierarchyInstantiation", "ModuleHeader", "PortDeclaration"})
        for node in walk(tree.root):
            if name_of(node) == "SignalEventExpression" and node.edge.rawText:
                edges.update(token.rawText for token in tokens(node.expr))
        used.update(node.identifier.rawText for node in walk(tree.root, skip) if name_of(node) == "IdentifierName")
    bits = [p.name for p in interface.ports if p.direction == "input" and p.width == 1]
    resets = [name for name in bits if (name in edges and name in used) or RESET_LIKE.search(name)]
    clocks = [name for name in bits if name in edges and name not in resets]
    if edges and not clocks:
        clocks = [name for name in bits if CLOCK_LIKE.search(name) and name not in resets]
    return clocks, resets if clocks else []


def _units(text: str) -> list[str]:
    return [node.header.name.rawText for node in walk(SourceTree(text).root) if name_of(node) in _UNITS]


def _range(port: Port) -> str:
    return f"[{(port.width or 1) - 1}:0]"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no output")[:200]
