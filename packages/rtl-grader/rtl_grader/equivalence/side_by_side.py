"""Generate the Icarus test bench that runs a golden answer and another one side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from string import Template

from rtl_grader.types.problem import Interface, Port

Values = Mapping[str, int]
"""Parameter -> its value in an instance."""
Trace = Sequence[Mapping[str, int]]
"""Values of all inputs, by step."""
SETTLE = 100
"""Nanoseconds from a change of inputs to the comparison, so that nonblocking assignments with usual delays are done."""
PHASES = 12
STRETCHES = 8


class _Text(Template):
    """A part of a bench with words such as `@name`; a dollar sign begins Verilog's own tasks."""

    delimiter = "@"


_HEAD = _Text("""\
`timescale 1ns/1ps
module @bench;
    @inputs
    @outputs
    @good_module@values @good (@good_ports);
    @got_module@values @got (@got_ports);
    integer tried = 0, known = 0, unsure = 0, free = 0, is_known;
""")
_CHECK = _Text(r"""
`define COMPARE_SIDES(good, got, bits, name) \
  lost = (good ^ good) !== (good ^ good ^ got ^ got); \
  if (|(good ^ got) === 1'b1 || (strict && lost)) begin \
    tell; $display("%0s is %h, golden %h", name, got, good); $finish; \
  end else if (lost) unsure = unsure + 1; \
  if ((good ^ good) !== {bits{1'bx}} || (good === {bits{1'bz}} && got === {bits{1'bz}})) is_known = 1; \
  if (good === {bits{1'bz}} && ^got !== 1'bx) free = free + 1;

    reg lost, strict = @strict;
    task tell; $write("@nonce different: after %0d inputs @shown: ", tried@values); endtask
    task check; begin #@settle tried = tried + 1; is_known = 0;
    @outputs
    known = known + is_known;
    end endtask
`undef COMPARE_SIDES
""")
"""`lost`: X or Z where the golden answer is known. `free`: a value where the golden answer drives nothing."""
_IN_ORDER = _Text("""\
    reg [@top:0] queue_good [0:1023], queue_got [0:1023];
    integer n_good = 0, n_got = 0, at; reg was = 0;
    task check; begin
      #@settle;
      if (@reset) begin
        n_good = 0; n_got = 0;
        if (in_@clock === 1'b1 && !was && |({good_@valid, @good} ^ {got_@valid, @got}) === 1'b1) begin
          $display("@nonce different: in reset the outputs are %h, golden %h",
            {got_@valid, @got}, {good_@valid, @good}); $finish;
        end
      end else if (in_@clock === 1'b1 && !was) begin
@sides
        if (n_good > n_got + 64 || n_got > n_good + 64) begin
          $display("@nonce different: @valid is 1 in %0d cycles, golden %0d", n_got, n_good); $finish;
        end
      end
      was = in_@clock;
    end endtask
""")
_SIDE = _Text("""\
        if (@{side}_@valid === 1'b1) begin
          at = n_@side % 1024; queue_@side[at] = {@outputs}; n_@side = n_@side + 1;
          if (n_@side <= n_@other) begin
            tried = tried + 1; known = known + 1;
            if (queue_good[at] !== queue_got[at]) begin
              $display("@nonce different: value %0d while @valid is 1 is %h, golden %h",
                n_@side, queue_got[at], queue_good[at]); $finish;
            end
          end
        end
""")
_DRAW = _Text("""\
    integer phase, cycle, density;
    task draw; begin
    @drawn
    end endtask
    integer way [0:999];
    task choose; begin
    @chosen
    @alternating
    @steady
    end endtask
    task vary; begin
    @varied
    end endtask
    initial begin
""")
"""Tasks that draw inputs: all of them; or in a stretch each is held at 0 or all ones, held at a random
value, or drawn again."""
_CLOCKED = _Text("""\
    @zeros density = 2; draw; check;
    for (phase = 0; phase < @phases; phase = phase + 1) begin
      density = 1 + phase % 3;
      @off draw; check;
      repeat (3) begin @ticks end
      @on check;
      for (cycle = 0; cycle < @cycles; cycle = cycle + 1) begin
        draw; check;
        @flips
        @ticks
        @kept
      end
    end
    for (phase = 0; phase < @stretches; phase = phase + 1) begin
      density = 2; choose;
      @off check;
      repeat (3) begin @ticks end
      @on check;
      for (cycle = 0; cycle < @stretch; cycle = cycle + 1) begin vary; @turns end
    end
    for (phase = 0; phase < 2; phase = phase + 1) begin
      density = 2; draw;
      @counting
      @ways
      @active
      repeat (3) begin @turns end
      @inactive
      for (cycle = 0; cycle < @run; cycle = cycle + 1) begin vary; @turns end
    end
""")
"""Random inputs with occasional resets, with phases for both polarities of every reset in which it is
mostly inactive; stretches without a reset in which inputs are mostly held; and runs with inputs that make
most counters count."""
_VERDICT = _Text("""\
    if (4 * unsure > known && unsure > 0)
      $display("@nonce different: %0d of %0d times X where the golden answer is known", unsure, known);
    else if (20 * known < tried) $display("@nonce unknown: the golden answer gives X nearly always");
    else if (free > 0)
      $display("@nonce unknown: %0d of %0d times a value where the golden answer drives nothing (z)", free, tried);
    else $display("@nonce same: %0d inputs tried", tried);
    $finish;
  end
endmodule
""")
_SAME = _Text("""\
    $display("@nonce same: %0d inputs tried", tried);
    $finish;
  end
endmodule
""")


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
        """Two runs of `cycles` clock cycles for each set of parameters, and half as many in phases and in
        stretches; or as many random patterns."""
        phase, stretch = max(8, cycles // (2 * PHASES)), max(8, cycles // (2 * STRETCHES))
        return cls(
            16, cycles, phase, stretch, cycles, parameter_sets, 20.0 + cycles / 200, proof_cpu_s
        )


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
    ports = {port.name: port for port in _ports(interface, "input")}
    data = [port for name, port in ports.items() if name not in clocks and name not in resets]
    compared = (
        None
        if valid is None
        else _in_order(interface, clocks[0], {r: r in low for r in resets}, valid, nonce)
    )
    check = compared or _check(interface, nonce, strict=not clocks)
    if clocks:
        drive = _clocked(
            [ports[name] for name in clocks], [ports[name] for name in resets], low, data, effort
        )
    else:
        drive = _combinational(data, effort)
    return "".join(
        [
            _head(interface, nonce, values or {}),
            check,
            _draw(data),
            drive,
            _VERDICT.substitute(nonce=nonce),
        ]
    )


def hidden(name: str, nonce: str) -> str:
    """A name for a module that the other design cannot guess. It does not contain the nonce, because a
    design can print its path (`%m`)."""
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
        put = {
            port: f"in_{port} = {widths.get(port) or 1}'h{value:x};" for port, value in step.items()
        }
        if clock:
            name, rises = clock
            put[name] = f"in_{name} = {int(not rises)};"
            edge = f"in_{name} = {int(rises)}; check; in_{name} = {int(not rises)}; check;"
            drive.append(f"    {' '.join(put.values())} check; {edge}")
        else:
            first = [put.pop(name) for name in clocks if name in put]
            drive.append(f"    {' '.join([*first, '#1', *put.values()])} check;")
    head = _head(interface, nonce, values) + _check(interface, nonce, strict=not clocks)
    return "\n".join([head, "  initial begin", *drive, _SAME.substitute(nonce=nonce)])


def _ports(interface: Interface, direction: str) -> list[Port]:
    return [port for port in interface.ports if port.direction == direction]


def _each(ports: Sequence[Port], text: str, between: str = "\n    ") -> str:
    """The text for each port, with `@name`, `@width`, `@range`, a `@random` value, and `@at`, the port's place."""
    return between.join(
        _Text(text).substitute(
            name=port.name,
            width=port.width,
            range=f"[{(port.width or 1) - 1}:0]",
            random=_random(port),
            at=at,
        )
        for at, port in enumerate(ports)
    )


def _head(interface: Interface, nonce: str, values: Values) -> str:
    """The head of a bench: both designs with common inputs."""
    inputs, outputs = _ports(interface, "input"), _ports(interface, "output")
    driven = [_each(inputs, ".@name(in_@name)", ", ")] if inputs else []
    watched = {
        side: [_each(outputs, f".@name({side}_@name)", ", ")] if outputs else []
        for side in ("good", "got")
    }
    return _HEAD.substitute(
        bench=hidden("bench", nonce),
        inputs=_each(inputs, "reg @range in_@name;"),
        outputs=_each(outputs, "wire @range good_@name, got_@name;"),
        values=f" #({', '.join(f'.{name}({value})' for name, value in values.items())})"
        if values
        else "",
        good_module=hidden(interface.module, nonce),
        got_module=interface.module,
        good=hidden("good", nonce),
        got=hidden("got", nonce),
        good_ports=", ".join(driven + watched["good"]),
        got_ports=", ".join(driven + watched["got"]),
    )


def _check(interface: Interface, nonce: str, strict: bool) -> str:
    """The task that compares all outputs. With `strict`, an X where the golden answer is known is a difference."""
    inputs = _ports(interface, "input")
    return _CHECK.substitute(
        strict=int(strict),
        nonce=nonce,
        shown=_each(inputs, "@name=%h", " "),
        values=_each(inputs, ", in_@name", ""),
        settle=SETTLE,
        outputs=_each(
            _ports(interface, "output"), '`COMPARE_SIDES(good_@name, got_@name, @width, "@name")'
        ),
    )


def _in_order(
    interface: Interface, clock: str, resets: Mapping[str, bool], valid: str, nonce: str
) -> str:
    """The task that compares the other outputs in the cycles in which each design's `valid` is 1: the first
    with the first, and so on.

    So latency, and outputs in other cycles, do not count. In a reset all outputs must be equal, and both
    queues restart. `resets`: name -> whether it is active low.
    """
    others = [port for port in _ports(interface, "output") if port.name != valid]
    reset = " || ".join(f"in_{name} === 1'b{int(not low)}" for name, low in resets.items()) or "0"
    outputs = {side: _each(others, f"{side}_@name", ", ") for side in ("good", "got")}
    sides = (
        _SIDE.substitute(side=side, other=other, outputs=outputs[side], valid=valid, nonce=nonce)
        for side, other in (("good", "got"), ("got", "good"))
    )
    top = sum(port.width or 1 for port in others) - 1
    words = {
        "top": top,
        "settle": SETTLE,
        "reset": reset,
        "clock": clock,
        "valid": valid,
        "nonce": nonce,
    }
    return _IN_ORDER.substitute(words, **outputs, sides="".join(sides))


def _draw(data: list[Port]) -> str:
    # The first two single bits, often enable and direction, alternate.
    bits = [at for at, port in enumerate(data) if port.width == 1]
    return _DRAW.substitute(
        drawn=_each(data, "in_@name = @random;"),
        chosen=_each(data, "way[@at] = $urandom % 4; in_@name = @random;"),
        alternating=" ".join(f"way[{at}] = !phase[{bit}];" for bit, at in enumerate(bits[:2], 1)),
        steady=_each(data, "if (way[@at] < 2) in_@name = way[@at] ? ~0 : 0;"),
        varied=_each(data, "if (way[@at] == 3) in_@name = @random;"),
    )


def _combinational(inputs: list[Port], effort: Effort) -> str:
    bits = sum(port.width or 1 for port in inputs)
    every = f"{{{_each(inputs, 'in_@name', ', ')}}}"
    if not inputs:
        return "    check;\n"
    if bits <= effort.exhaustive_bits:
        return f"    for (cycle = 0; cycle < {1 << bits}; cycle = cycle + 1) begin {every} = cycle; check; end\n"
    start = f"    density = 2; {every} = 0; check; {every} = ~0; check;\n"
    return f"{start}    repeat ({effort.vectors}) begin {_each(inputs, 'in_@name = @random;')} check; end\n"


def _clocked(
    clocks: Sequence[Port],
    resets: Sequence[Port],
    low: Collection[str],
    data: Sequence[Port],
    effort: Effort,
) -> str:
    """The stimulus of a bench with clocks, whose inputs also change between their edges."""
    bits = [port for port in data if port.width == 1]
    tick = "in_@name = 1; check; if ($urandom % 4 == 0) begin draw; check; end in_@name = 0; check;"
    if len(clocks) > 1:
        tick = "if ($urandom % 2) begin in_@name = ~in_@name; check; end"
    return _CLOCKED.substitute(
        zeros=_each([*clocks, *resets], "in_@name = 0;"),
        off=_each(resets, "in_@name = !phase[0];"),
        on=_each(resets, "in_@name = phase[0];"),
        flips=_each(resets, "if ($urandom % 24 == 0) begin in_@name = ~in_@name; check; end"),
        kept=_each(resets, "if (cycle % 8 == 7) begin in_@name = phase[0]; check; end"),
        ticks=_each(clocks, tick),
        turns=_each(clocks, "in_@name = 1; check; in_@name = 0; check;"),
        counting=_each(bits[:1], "in_@name = 1;") + _each(bits[1:], " in_@name = !phase[0];"),
        ways=" ".join(
            f"way[{at}] = {2 if port.width == 1 else 3};" for at, port in enumerate(data)
        ),
        active=" ".join(f"in_{reset.name} = {int(reset.name not in low)};" for reset in resets),
        inactive=" ".join(f"in_{reset.name} = {int(reset.name in low)};" for reset in resets),
        phases=PHASES,
        stretches=STRETCHES,
        cycles=effort.cycles,
        stretch=effort.stretch,
        run=effort.run,
    )


def _random(port: Port) -> str:
    """A random value: a single bit is 1 in `density` of 4 cases, a word is sometimes all 0, all 1, or one-hot."""
    if port.width == 1:
        return "($urandom % 4) < density"
    words = "{" + ", ".join(["$urandom"] * (((port.width or 1) + 31) // 32)) + "}"
    return f"($urandom % 8 == 0) ? {{{port.width}{{$urandom % 2 == 0}}}} : ($urandom % 8 == 0) ? 1 << ($urandom % {port.width}) : {words}"
