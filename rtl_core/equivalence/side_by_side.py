"""Generate the Icarus test bench that runs a golden answer and another one side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rtl_core.types.problem import Interface, Port

Values = Mapping[str, int]
"""Parameter -> its value in an instance."""
Trace = Sequence[Mapping[str, int]]
"""Values of all inputs, by step."""
SETTLE = 100
"""Nanoseconds from a change of inputs to the comparison, so that nonblocking assignments with usual delays are done."""
PHASES = 12
STRETCHES = 8
_COMPARE = r"""
`define COMPARE_SIDES(good, got, bits, name) \
  lost = (good ^ good) !== (good ^ good ^ got ^ got); \
  if (|(good ^ got) === 1'b1 || (strict && lost)) begin \
    tell; $display("%0s is %h, golden %h", name, got, good); $finish; \
  end else if (lost) unsure = unsure + 1; \
  if ((good ^ good) !== {bits{1'bx}} || (good === {bits{1'bz}} && got === {bits{1'bz}})) is_known = 1; \
  if (good === {bits{1'bz}} && ^got !== 1'bx) free = free + 1;
""".splitlines()
"""`lost`: X or Z where the golden answer is known. `free`: a value where the golden answer drives nothing."""


@dataclass(frozen=True)
class Effort:
    """How much is tried before two designs are called the same."""

    exhaustive_bits: int = 12
    """Combinational designs with at most this many input bits are tested exhaustively."""
    vectors: int = 4000
    """Random patterns for the others."""
    cycles: int = 160
    """Clock cycles of each of the twelve phases with resets now and then."""
    stretch: int = 300
    """Clock cycles of each of the eight stretches without a reset, inputs mostly held."""
    run: int = 24_000
    """Clock cycles of each of two runs without a reset, with single bits held at 1: a counter of 14 bits wraps."""
    parameter_sets: int = 4
    """Number of other parameter values to try."""
    cpu_s: float = 20.0
    """CPU time of each simulation."""
    proof_cpu_s: float = 0.0
    """CPU time of each proof for designs that were not told apart; 0 means none."""
    proof_first: bool = False
    """Prove before simulating, and simulate only what is not decided."""

    @classmethod
    def of_cycles(cls, cycles: int, parameter_sets: int = 6, proof_cpu_s: float = 0.0) -> Effort:
        """Two runs of `cycles` clock cycles for each set of parameters, and half as many in phases and in stretches; or as many random
        patterns."""
        phase, stretch = max(8, cycles // (2 * PHASES)), max(8, cycles // (2 * STRETCHES))
        return cls(16, cycles, phase, stretch, cycles, parameter_sets, 20.0 + cycles / 200, proof_cpu_s)


USUAL = Effort()


def bench(
    interface: Interface,
    clocks: Sequence[str],
    resets: Sequence[str],
    low: Collection[str],
    nonce: str,
    values: Values | None = None,
    effort: Effort = USUAL,
    valid: str | None = None,
) -> str:
    """The side-by-side test bench in SystemVerilog.

    Args:
        interface: the ports as they are with the parameters at `values`.
        low: those of `resets` that are active low.
        valid: compare the values of outputs while this one is 1, in order, regardless of time; see `_in_order`.
        nonce: prefix of the bench's verdict.
    """
    inputs = [p for p in interface.ports if p.direction == "input"]
    data = [p for p in inputs if p.name not in clocks and p.name not in resets]
    drive = _Clocked(clocks, resets, low, data, effort).lines() if clocks else _combinational(data, effort)
    compared = None if valid is None else _in_order(interface, clocks[0], {r: r in low for r in resets}, valid, nonce)
    check = compared or _check(interface, nonce, strict=not clocks)
    lines = [*_declared(interface, nonce, values or {}), *check, "  integer phase, cycle, density;", *_draw(data)]
    return "\n".join([*lines, "  initial begin", *drive, *_verdict_lines(nonce), ""])


def hidden(name: str, nonce: str) -> str:
    """A name for a module that the other design cannot guess. It does not contain the nonce, because a design can print its path (`%m`)."""
    return f"{name}__{hashlib.sha256(nonce.encode()).hexdigest()[:16]}"


def replay(
    interface: Interface,
    nonce: str,
    values: Values,
    trace: Trace,
    clocks: Sequence[str],
    clock: tuple[str, bool] | None,
) -> str:
    """The bench that drives only the inputs of `trace`. Only different values count; with `clocks` an X does not.

    Args:
        clocks: possible clocks. A register samples the inputs before the step in which its clock changes.
        clock: the only clock of both designs, and whether its rising edge counts; then each step is a cycle of it.
    """
    drive, widths = [], {port.name: port.width for port in interface.ports}
    for step in trace:
        put = {port: f"in_{port} = {widths.get(port) or 1}'h{value:x};" for port, value in step.items()}
        if clock:
            name, rises = clock
            put[name] = f"in_{name} = {int(not rises)};"
            edge = f"in_{name} = {int(rises)}; check; in_{name} = {int(not rises)}; check;"
            drive.append(f"    {' '.join(put.values())} check; {edge}")
        else:
            first = [put.pop(name) for name in clocks if name in put]
            drive.append(f"    {' '.join([*first, '#1', *put.values()])} check;")
    end = [f'    $display("{nonce} same: %0d inputs tried", tried);', "    $finish;", "  end", "endmodule"]
    head = [*_declared(interface, nonce, values), *_check(interface, nonce, strict=not clocks)]
    return "\n".join([*head, "  initial begin", *drive, *end, ""])


def _declared(interface: Interface, nonce: str, values: Values) -> list[str]:
    """The head of a bench: both designs with common inputs."""
    set_ = f" #({', '.join(f'.{name}({value})' for name, value in values.items())})" if values else ""
    inputs = [p for p in interface.ports if p.direction == "input"]
    outputs = [p for p in interface.ports if p.direction == "output"]
    lines = ["`timescale 1ns/1ps", f"module {hidden('bench', nonce)};"]
    lines += [f"  reg {_range(p)} in_{p.name};" for p in inputs]
    lines += [f"  wire {_range(p)} good_{p.name}, got_{p.name};" for p in outputs]
    for module, name in ((hidden(interface.module, nonce), "good"), (interface.module, "got")):
        wires = [f".{p.name}(in_{p.name})" for p in inputs] + [f".{p.name}({name}_{p.name})" for p in outputs]
        lines.append(f"  {module}{set_} {hidden(name, nonce)} ({', '.join(wires)});")
    return [*lines, "  integer tried = 0, known = 0, unsure = 0, free = 0, is_known;"]


def _verdict_lines(nonce: str) -> list[str]:
    """The end of a bench: its verdict."""
    return [
        "    if (4 * unsure > known && unsure > 0)",
        f'      $display("{nonce} different: %0d of %0d times X where the golden answer is known", unsure, known);',
        f'    else if (20 * known < tried) $display("{nonce} unknown: the golden answer gives X nearly always");',
        "    else if (free > 0)",
        f'      $display("{nonce} unknown: %0d of %0d times a value where the golden answer drives nothing (z)", free, tried);',
        f'    else $display("{nonce} same: %0d inputs tried", tried);',
        "    $finish;", "  end", "endmodule",
    ]  # fmt: skip


def _check(interface: Interface, nonce: str, strict: bool) -> list[str]:
    """The task that compares all outputs. With `strict`, an X where the golden answer is known is a difference."""
    inputs = [p for p in interface.ports if p.direction == "input"]
    shown = " ".join(f"{p.name}=%h" for p in inputs)
    given = "".join(f", in_{p.name}" for p in inputs)
    outputs = [p for p in interface.ports if p.direction == "output"]
    return [
        *_COMPARE,
        f"  reg lost, strict = {int(strict)};",
        f'  task tell; $write("{nonce} different: after %0d inputs {shown}: ", tried{given}); endtask',
        f"  task check; begin #{SETTLE} tried = tried + 1; is_known = 0;",
        *(f'    `COMPARE_SIDES(good_{p.name}, got_{p.name}, {p.width}, "{p.name}")' for p in outputs),
        "    known = known + is_known;",
        "  end endtask",
        "`undef COMPARE_SIDES",
    ]


def _in_order(interface: Interface, clock: str, resets: Mapping[str, bool], valid: str, nonce: str) -> list[str]:
    """The task that compares the other outputs in the cycles in which each design's `valid` is 1: the first with the first, and so on.

    So latency, and outputs in other cycles, do not count. In a reset all outputs must be equal, and both queues restart.
    `resets`: name -> whether it is active low.
    """
    others = [p for p in interface.ports if p.direction == "output" and p.name != valid]
    width = sum(p.width or 1 for p in others)
    reset = " || ".join(f"in_{name} === 1'b{int(not low)}" for name, low in resets.items()) or "0"
    lines = [
        f"  reg [{width - 1}:0] queue_good [0:1023], queue_got [0:1023];",
        "  integer n_good = 0, n_got = 0, at; reg was = 0;",
    ]
    every = {side: f"{{{side}_{valid}, {', '.join(f'{side}_{p.name}' for p in others)}}}" for side in ("good", "got")}
    lines += [
        "  task check; begin", f"    #{SETTLE};", f"    if ({reset}) begin", "      n_good = 0; n_got = 0;",
        f"      if (in_{clock} === 1'b1 && !was && |({every['good']} ^ {every['got']}) === 1'b1) begin",
        f'        $display("{nonce} different: in reset the outputs are %h, golden %h", {every["got"]}, {every["good"]}); $finish;',
        "      end", f"    end else if (in_{clock} === 1'b1 && !was) begin",
    ]  # fmt: skip
    for side, other in (("good", "got"), ("got", "good")):
        outputs = ", ".join(f"{side}_{p.name}" for p in others)
        lines += [
            f"      if ({side}_{valid} === 1'b1) begin",
            f"        at = n_{side} % 1024; queue_{side}[at] = {{{outputs}}}; n_{side} = n_{side} + 1;",
            f"        if (n_{side} <= n_{other}) begin",
            "          tried = tried + 1; known = known + 1;",
            "          if (queue_good[at] !== queue_got[at]) begin",
            f'            $display("{nonce} different: value %0d while {valid} is 1 is %h, golden %h", n_{side}, queue_got[at], queue_good[at]); $finish;',
            "          end", "        end", "      end",
        ]  # fmt: skip
    lines += [
        "      if (n_good > n_got + 64 || n_got > n_good + 64) begin",
        f'        $display("{nonce} different: {valid} is 1 in %0d cycles, golden %0d", n_got, n_good); $finish;',
        "      end", "    end", f"    was = in_{clock};", "  end endtask",
    ]  # fmt: skip
    return lines


def _draw(data: list[Port]) -> list[str]:
    """The tasks that draw inputs: all of them; or in a stretch each is held at 0 or all ones, held at a random value, or drawn again."""
    bits = [p for p in data if p.width == 1]
    return [
        "  task draw; begin",
        *(f"    in_{p.name} = {_random(p)};" for p in data),
        "  end endtask",
        "  integer way [0:999];",
        "  task choose; begin",
        *(f"    way[{i}] = $urandom % 4; in_{p.name} = {_random(p)};" for i, p in enumerate(data)),
        # The first two single bits, often enable and direction, alternate.
        *(f"    way[{data.index(p)}] = !phase[{i + 1}];" for i, p in enumerate(bits[:2])),
        *(f"    if (way[{i}] < 2) in_{p.name} = way[{i}] ? ~0 : 0;" for i, p in enumerate(data)),
        "  end endtask",
        "  task vary; begin",
        *(f"    if (way[{i}] == 3) in_{p.name} = {_random(p)};" for i, p in enumerate(data)),
        "  end endtask",
    ]


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


@dataclass(frozen=True)
class _Clocked:
    """The stimulus of a bench with clocks."""

    clocks: Sequence[str]
    resets: Sequence[str]
    low: Collection[str]
    data: list[Port]
    effort: Effort

    def lines(self) -> list[str]:
        start = f"    {_put([*self.clocks, *self.resets], '0')} density = 2; draw; check;"
        return [start, *self._phases(), *self._stretches(), *self._runs()]

    def _turns(self) -> list[str]:
        return [f"      in_{clock} = 1; check; in_{clock} = 0; check;" for clock in self.clocks]

    def _ticks(self) -> list[str]:
        """Cycles of the clocks, with inputs that change in between."""
        if len(self.clocks) > 1:
            return [f"      if ($urandom % 2) begin in_{clock} = ~in_{clock}; check; end" for clock in self.clocks]
        drawn = "if ($urandom % 4 == 0) begin draw; check; end"
        return [f"      in_{clock} = 1; check; {drawn} in_{clock} = 0; check;" for clock in self.clocks]

    def _phases(self) -> list[str]:
        """Random inputs with occasional resets. For both polarities of every reset there are phases in which it is mostly inactive."""
        return [
            f"    for (phase = 0; phase < {PHASES}; phase = phase + 1) begin",
            "      density = 1 + phase % 3;",
            f"      {_put(self.resets, '!phase[0]')} draw; check;",
            *_repeated("repeat (3)", self._ticks()),
            f"      {_put(self.resets, 'phase[0]')} check;",
            *_repeated(
                f"for (cycle = 0; cycle < {self.effort.cycles}; cycle = cycle + 1)",
                [
                    "      draw; check;",
                    *(f"      if ($urandom % 24 == 0) begin in_{r} = ~in_{r}; check; end" for r in self.resets),
                    *self._ticks(),
                    *(f"      if (cycle % 8 == 7) begin in_{r} = phase[0]; check; end" for r in self.resets),
                ],
            ),
            "    end",
        ]

    def _stretches(self) -> list[str]:
        """No reset, inputs mostly held."""
        return [
            f"    for (phase = 0; phase < {STRETCHES}; phase = phase + 1) begin",
            "      density = 2; choose;",
            f"      {_put(self.resets, '!phase[0]')} check;",
            *_repeated("repeat (3)", self._ticks()),
            f"      {_put(self.resets, 'phase[0]')} check;",
            *self._varied(self.effort.stretch),
            "    end",
        ]

    def _runs(self) -> list[str]:
        """Resets inactive, according to the golden answer's text; inputs that make most counters run."""
        bits = [p for p in self.data if p.width == 1]
        return [
            "    for (phase = 0; phase < 2; phase = phase + 1) begin",
            "      density = 2; draw;",
            *(f"      in_{p.name} = {'1' if i == 0 else '!phase[0]'};" for i, p in enumerate(bits)),
            *(f"      way[{i}] = {2 if p.width == 1 else 3};" for i, p in enumerate(self.data)),
            *(f"      in_{r} = {'0' if r in self.low else '1'};" for r in self.resets),
            *_repeated("repeat (3)", self._turns()),
            *(f"      in_{r} = {'1' if r in self.low else '0'};" for r in self.resets),
            *self._varied(self.effort.run),
            "    end",
        ]

    def _varied(self, cycles: int) -> list[str]:
        return _repeated(f"for (cycle = 0; cycle < {cycles}; cycle = cycle + 1)", ["      vary;", *self._turns()])


def _put(names: Sequence[str], value: str) -> str:
    return " ".join(f"in_{name} = {value};" for name in names)


def _repeated(loop: str, lines: list[str]) -> list[str]:
    return [f"      {loop} begin", *lines, "      end"]


def _random(port: Port) -> str:
    """A random value: a single bit is 1 in `density` of 4 cases, a word is sometimes all 0, all 1, or one-hot."""
    if port.width == 1:
        return "($urandom % 4) < density"
    words = "{" + ", ".join(["$urandom"] * (((port.width or 1) + 31) // 32)) + "}"
    return f"($urandom % 8 == 0) ? {{{port.width}{{$urandom % 2 == 0}}}} : ($urandom % 8 == 0) ? 1 << ($urandom % {port.width}) : {words}"


def _range(port: Port) -> str:
    return f"[{(port.width or 1) - 1}:0]"
