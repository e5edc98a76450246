"""Golden answer against another answer, both in one simulation, over many inputs: can they be told apart at all?

A mutant that survives a harness says something of the harness only if it behaves differently, and a stub is no cheat where
a constant is what is asked. So both are simulated side by side by a test bench written from the interface: every input
pattern where there are few, random ones else; clocked designs through resets of both polarities, at both clock edges, with
inputs that change in between, and through long stretches without a reset in which inputs stay as they are, so that counters
get far. Where parameters may be set, a few other values that the golden answer accepts are tried as well (`parameters.py`).
Where the golden answer gives X anything is right, and an X of the other is only held against it when it is frequent: before
the first reset simulators are pessimists.

Not covered: inout ports, unpacked array ports, parameters that are no integers, states that lie deeper than the cycles
simulated. What was not told apart is called the same, with the number of inputs tried.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rtl_core.grading.design import as_graded
from rtl_core.grading.executors.base import Executor, Job, Step, StepResult
from rtl_core.grading.limits import Limits
from rtl_core.problems.testbench import renamed
from rtl_core.problems.tree import SourceTree, name_of, walk
from rtl_core.types.problem import Interface, Port, Problem
from rtl_core.validation.clocking import active_low, clocks_and_resets
from rtl_core.validation.parameters import Values, in_words, interface_with, other_values

PHASES = 12
STRETCHES = 8
_UNITS = {"ModuleDeclaration", "PackageDeclaration", "InterfaceDeclaration"}
_HDL = (".v", ".sv")
_NO_PARAMETER = re.compile(r"parameter .* not found", re.I)


@dataclass(frozen=True)
class Effort:
    """How long two designs are simulated side by side before they are called the same."""

    exhaustive_bits: int = 12
    """Combinational designs with at most so many input bits see every pattern."""
    vectors: int = 4000
    """Random patterns for the others."""
    cycles: int = 160
    """Clock cycles of each of the twelve phases with resets now and then."""
    stretch: int = 300
    """Clock cycles of each of the eight stretches without a reset, inputs mostly held."""
    run: int = 24_000
    """Clock cycles of each of two runs without a reset, single bits held at 1: a counter of 14 bits comes round."""
    parameter_sets: int = 4
    """How many other values of the parameters are tried."""
    cpu_s: float = 20.0
    """CPU time of each simulation."""

    @classmethod
    def of_cycles(cls, cycles: int, parameter_sets: int = 6) -> Effort:
        """Two runs of `cycles` clock cycles for each set of parameters, and half as many in the phases and stretches; or as
        many random patterns."""
        phase, stretch = max(8, cycles // (2 * PHASES)), max(8, cycles // (2 * STRETCHES))
        return cls(16, cycles, phase, stretch, cycles, parameter_sets, 20.0 + cycles / 200)


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
    effort: Effort = Effort(),
) -> Comparison:
    """Simulate `other` (path -> text) beside `golden`, first with the default parameters, then with other ones.

    Both are simulated as a grader would: without test benches that stand beside the design, the same for every tool.

    Raises InfrastructureError where the executor fails.
    """
    interface = problem.interface
    if interface is None:
        return Comparison("unknown", "the interface of the top module is not known")
    if bad := _unusable(interface):
        return Comparison("unknown", f"port {bad} has no known width or direction")
    golden, other = (as_graded(problem, files)[0] for files in (golden, other))
    hdl = {path: text for path, text in golden.items() if path.endswith(_HDL)}
    if not hdl:
        return Comparison("unknown", "the golden answer is no HDL")
    nonce = secrets.token_hex(8)  # so that no design can name the other, or write the bench's verdict
    names = {name: f"{name}__{nonce}" for text in hdl.values() for name in _units(text)}
    if interface.module not in names:
        return Comparison("unknown", f"the golden answer does not define {interface.module}")
    given = {p: t for p, t in problem.context.items() if p.startswith("rtl/") and p not in problem.targets}
    harness = {f"src/golden{i}.sv": renamed(text, names) for i, text in enumerate(hdl.values())}
    pair = _Pair(executor, interface.module, {**given, **hdl}, harness, {**given, **other}, limits, seed, effort, nonce)
    found = pair.simulate({}, interface)
    if found.result != "same":
        return found
    tried = []
    for values in other_values(problem, interface)[: effort.parameter_sets]:
        ports = interface_with(pair.golden, interface.module, values)
        if ports is None or _unusable(ports):
            continue
        told = pair.simulate(values, ports)
        if told.result == "different":
            return Comparison("different", f"with {in_words(values)} {told.detail}")
        if told.result == "same":
            tried.append(in_words(values))
    return Comparison("same", found.detail + (f"; also with {', '.join(tried)}" if tried else ""))


@dataclass
class _Pair:
    """Two designs and how they are simulated beside each other."""

    executor: Executor
    module: str
    """Name of the top module."""
    golden: Mapping[str, str]
    renamed: Mapping[str, str]
    """The golden answer's files, their modules under other names."""
    files: Mapping[str, str]
    limits: Limits
    seed: int
    effort: Effort
    nonce: str

    def simulate(self, values: Values, interface: Interface) -> Comparison:
        """Compare with the parameters set to `values`, which give the ports of `interface`."""
        steps = self._run(values, interface, self.files)
        if len(steps) < 2:
            return Comparison("unknown", f"the two do not compile side by side: {_first_line(steps[0].output)}")
        if values and _NO_PARAMETER.search(steps[0].output):
            return Comparison("unknown", "one of the two has no such parameter")
        if steps[1].overrun:
            return self._overrun(steps[1], values, interface)
        if match := re.search(rf"^{self.nonce} (same|different|unknown): (.*)$", steps[1].output, re.M):
            return Comparison(match[1], match[2])  # type: ignore[arg-type]
        return Comparison("unknown", f"the simulation ended early: {_first_line(steps[1].output)}")

    def _overrun(self, step: StepResult, values: Values, interface: Interface) -> Comparison:
        """What a simulation that did not end says: nothing, unless the golden answer beside itself does end."""
        again = self._run(values, interface, self.golden)
        if len(again) == 2 and not again[1].overrun:
            return Comparison("different", "it never settles, or takes far longer to simulate than the golden answer")
        return Comparison("unknown", "it takes too long to simulate")

    def _run(self, values: Values, interface: Interface, files: Mapping[str, str]) -> tuple[StepResult, ...]:
        clocks, resets = clocks_and_resets(self.golden, interface)
        text = bench(interface, clocks, resets, active_low(self.golden, resets), self.nonce, values, self.effort)
        harness = {**self.renamed, "src/side_by_side.sv": text}
        sources = [f"/code/{path}" for path in (*harness, *files) if path.endswith(_HDL)]
        compile_ = (
            "iverilog",
            "-g2012",
            "-Wno-timescale",
            "-I",
            "/code/rtl",
            "-s",
            f"bench__{self.nonce}",
            "-o",
            "both",
            *sources,
        )
        cpu_s = min(self.limits.cpu_s, self.effort.cpu_s)
        job = Job(
            files=files,
            harness=harness,
            steps=(Step("compile", compile_), Step("simulate", ("vvp", "-n", "both", "-none"))),
            limits=self.limits.model_copy(update={"cpu_s": cpu_s}),
            seed=self.seed,
            stop_at_failure=True,
        )
        return self.executor.run(job).steps


def _unusable(interface: Interface) -> str | None:
    """The first port that a bench cannot drive or watch."""
    return next((p.name for p in interface.ports if p.width is None or p.direction not in ("input", "output")), None)


def bench(
    interface: Interface,
    clocks: Sequence[str],
    resets: Sequence[str],
    low: Collection[str],
    nonce: str,
    values: Values | None = None,
    effort: Effort = Effort(),
) -> str:
    """The side-by-side test bench in SystemVerilog, for Icarus.

    Args:
        interface: the ports as they are with the parameters at `values`.
        low: those of `resets` that act at 0.
        nonce: ends the names of the bench and of the golden answer's modules, and begins the bench's verdict.
    """
    set_ = f" #({', '.join(f'.{name}({value})' for name, value in values.items())})" if values else ""
    inputs = [p for p in interface.ports if p.direction == "input"]
    outputs = [p for p in interface.ports if p.direction == "output"]
    data = [p for p in inputs if p.name not in clocks and p.name not in resets]
    lines = ["`timescale 1ns/1ps", f"module bench__{nonce};"]
    lines += [f"  reg {_range(p)} in_{p.name};" for p in inputs]
    lines += [f"  wire {_range(p)} good_{p.name}, got_{p.name};" for p in outputs]
    for module, name, prefix in ((f"{interface.module}__{nonce}", "good", "good_"), (interface.module, "got", "got_")):
        wires = [f".{p.name}(in_{p.name})" for p in inputs] + [f".{p.name}({prefix}{p.name})" for p in outputs]
        lines.append(f"  {module}{set_} {name} ({', '.join(wires)});")
    lines += [
        "  integer tried = 0, known = 0, unsure = 0, phase, cycle, density;",
        "  task check; begin",
        "    #1 tried = tried + 1;",
        f"    if (^{{{', '.join(f'good_{p.name}' for p in outputs)}}} !== 1'bx) known = known + 1;",
    ]
    shown = " ".join(f"{p.name}=%h" for p in inputs)
    given = "".join(f", in_{p.name}" for p in inputs)
    for p in outputs:
        good, got = f"good_{p.name}", f"got_{p.name}"
        lines += [
            f"    if (|({good} ^ {got}) === 1'b1) begin",
            f'      $display("{nonce} different: after %0d inputs {shown}: {p.name} is %h, golden %h", tried{given}, {got}, {good});',
            "      $finish;",
            "    end",
            f"    if ({good} !== ({good} ^ {got} ^ {good})) unsure = unsure + 1;",
        ]
    lines += ["  end endtask", "  task draw; begin"]
    lines += [f"    in_{p.name} = {_random(p)};" for p in data]
    # How each input is drawn in a stretch: held at 0 or all ones, held at a random value, or drawn anew.
    lines += ["  end endtask", "  integer way [0:999];", "  task choose; begin"]
    lines += [f"    way[{i}] = $urandom % 4; in_{p.name} = {_random(p)};" for i, p in enumerate(data)]
    # The first two single bits, often enable and direction, take turns.
    lines += [
        f"    way[{data.index(p)}] = !phase[{i + 1}];" for i, p in enumerate([p for p in data if p.width == 1][:2])
    ]
    lines += [f"    if (way[{i}] < 2) in_{p.name} = way[{i}] ? ~0 : 0;" for i, p in enumerate(data)]
    lines += ["  end endtask", "  task vary; begin"]
    lines += [f"    if (way[{i}] == 3) in_{p.name} = {_random(p)};" for i, p in enumerate(data)]
    lines += ["  end endtask", "  initial begin"]
    lines += _clocked(clocks, resets, low, data, effort) if clocks else _combinational(data, effort)
    lines += [
        "    if (4 * unsure > known && unsure > 0)",
        f'      $display("{nonce} different: %0d of %0d times X where the golden answer is known", unsure, known);',
        f'    else if (20 * known < tried) $display("{nonce} unknown: the golden answer gives X nearly always");',
        f'    else $display("{nonce} same: %0d inputs tried", tried);',
        "    $finish;", "  end", "endmodule", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _combinational(inputs: list[Port], effort: Effort) -> list[str]:
    bits = sum(p.width or 1 for p in inputs)
    every = "{" + ", ".join(f"in_{p.name}" for p in inputs) + "}"
    if not inputs:
        return ["    check;"]
    if bits <= effort.exhaustive_bits:
        return [f"    for (cycle = 0; cycle < {1 << bits}; cycle = cycle + 1) begin {every} = cycle; check; end"]
    lines = ["    density = 2;", f"    {every} = 0; check;", f"    {every} = ~0; check;"]
    rest = " ".join(f"in_{p.name} = {_random(p)};" for p in inputs)
    return [*lines, f"    repeat ({effort.vectors}) begin {rest} check; end"]


def _clocked(
    clocks: Sequence[str], resets: Sequence[str], low: Collection[str], data: list[Port], effort: Effort
) -> list[str]:
    def put(names: Sequence[str], value: str) -> str:
        return " ".join(f"in_{name} = {value};" for name in names)

    ticks = [
        f"      in_{clock} = 1; check; if ($urandom % 4 == 0) begin draw; check; end in_{clock} = 0; check;"
        for clock in clocks
    ]
    if len(clocks) > 1:
        ticks = [f"      if ($urandom % 2) begin in_{clock} = ~in_{clock}; check; end" for clock in clocks]
    turns = [f"      in_{clock} = 1; check; in_{clock} = 0; check;" for clock in clocks]
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
        f"      for (cycle = 0; cycle < {effort.cycles}; cycle = cycle + 1) begin",
        "      draw; check;",
        *jitter,
        *ticks,
        *back,
        "      end",
        "    end",
        f"    for (phase = 0; phase < {STRETCHES}; phase = phase + 1) begin",
        "      density = 2; choose;",
        f"      {put(resets, '!phase[0]')} check;",
        "      repeat (3) begin",
        *ticks,
        "      end",
        f"      {put(resets, 'phase[0]')} check;",
        f"      for (cycle = 0; cycle < {effort.stretch}; cycle = cycle + 1) begin",
        "      vary;",
        *turns,
        "      end",
        "    end",
        # Where resets are off, as far as the golden answer's text tells; inputs as they make most counters run.
        "    for (phase = 0; phase < 2; phase = phase + 1) begin",
        "      density = 2; draw;",
        *(
            f"      in_{p.name} = {'1' if i == 0 else '!phase[0]'};"
            for i, p in enumerate(p for p in data if p.width == 1)
        ),
        *(f"      way[{i}] = {2 if p.width == 1 else 3};" for i, p in enumerate(data)),
        *(f"      in_{r} = {'0' if r in low else '1'};" for r in resets),
        "      repeat (3) begin",
        *turns,
        "      end",
        *(f"      in_{r} = {'1' if r in low else '0'};" for r in resets),
        f"      for (cycle = 0; cycle < {effort.run}; cycle = cycle + 1) begin",
        "      vary;",
        *turns,
        "      end",
        "    end",
    ]


def _random(port: Port) -> str:
    """A random value; single bits are high in one of four, two or 1.3 cases by `density`, words now and then all 0 or 1."""
    if port.width == 1:
        return "($urandom % 4) < density"
    words = "{" + ", ".join(["$urandom"] * (((port.width or 1) + 31) // 32)) + "}"
    return f"($urandom % 8 == 0) ? {{{port.width}{{$urandom % 2 == 0}}}} : ($urandom % 8 == 0) ? 1 << ($urandom % {port.width}) : {words}"


def _units(text: str) -> list[str]:
    return [node.header.name.rawText for node in walk(SourceTree(text).root) if name_of(node) in _UNITS]


def _range(port: Port) -> str:
    return f"[{(port.width or 1) - 1}:0]"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no output")[:200]
