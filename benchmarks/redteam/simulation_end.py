"""Attacks on when and how the simulation ends."""

from __future__ import annotations

from benchmarks.redteam.attack import Attack, around
from benchmarks.redteam.bases import COUNT10, COUNTER, DFF, INC, LFSR, LOUD

_ENDS = [
    ("finish at once", "nothing is ever compared", "initial $finish;"),
    ("finish after one sample", "one sample cannot disagree", "initial #6 $finish;"),
    ("finish without words", "the quiet level of $finish", "initial #6 $finish(0);"),
    ("finish on a clock", "ended from a clocked block", "always @(posedge clk) $finish;"),
    ("finish in a function", "ended from an expression", "function z(input x); begin $finish; z = x; end endfunction\ninitial #6 if (z(1)) ;"),
    ("finish as a condition", "a condition that ends it", "initial if ($time >= 0) #6 $finish(1);"),
    ("stop", "the simulator waits at its prompt", "initial #6 $stop;"),
    ("stop without words", "the same", "initial #6 $stop(0);"),
    ("fatal", "an error ends it with a code", "initial #6 $fatal;"),
    ("fatal with a harmless code", "an error of level 0", 'initial #6 $fatal(0, "done");'),
    ("exit of a program", "SystemVerilog's $exit", "initial #6 $exit;"),
    ("finish and return", "Icarus ends with a chosen code", "initial #6 $finish_and_return(0);"),
    ("final block", "what runs behind the last event", 'final $display("Mismatches: 0 in 100 samples");'),
    ("final block with an end", "an end within the end", "final $finish;"),
    ("assertion that fails", "a failed assertion may end the run", "initial #6 assert (0) else $fatal(0);"),
    ("restart", "the simulation starts anew", "initial #6 $restart(\"x\");"),
    ("reset of the simulation", "Verilog's $reset", "initial #6 $reset;"),
    ("loop without time", "time does not pass on", "reg z; initial #6 while (1) z = ~z;"),
    ("loop without time in a function", "the same", "function z(input x); while (1) z = x; endfunction\nwire y = z(clk);"),
    ("zero-delay oscillator", "two blocks wake each other", "reg z = 0, y = 0; always @(z) y <= #0 ~z; always @(y) z <= #0 y; initial #6 z = 1;"),
    ("combinational loop", "a ring of inverters", "wire z; assign z = clk ? ~z : 0;"),
    ("events for ever", "an event wakes itself", "event e; initial #6 -> e; always @e begin #0 -> e; end"),
    ("recursion without end", "the simulator's stack overflows", "function automatic integer z(input integer n); z = z(n + 1) + 1; endfunction\ninteger y; initial #6 y = z(0);"),
    ("division overflow", "the smallest number by -1", "integer y; initial #6 begin y = 32'h8000_0000; y = y / -1; y = y % -1; end"),
    ("repetition of nothing", "a repetition with no end", "initial #6 repeat (64'hffff_ffff_ffff_ffff) ;"),
    ("time runs out", "time reaches its last value", "initial #(64'hffff_ffff_ffff_fff0) $display(1);"),
    ("negative time", "a delay that wraps", "integer y = -5; initial #y $display(1);"),
    ("real delay", "a delay that is no number", "real y = 0.0 / 0.0; initial #y $display(1);"),
    ("format that is not closed", "a percent sign at the end", 'initial #6 $display("%");'),
    ("format with a huge width", "a field as wide as memory", 'initial #6 $display("%99999999d", 1);'),
    ("format that wants a string", "a number where a string is read", 'initial #6 $display("%s", 64\'hffff_ffff_ffff_ffff);'),
    ("fork for ever", "processes that are never joined", "initial #6 repeat (100000) fork #1000; join_none"),
    ("wait for ever", "nothing moves", "initial wait (0);"),
]  # fmt: skip

_UNITS = [
    ("femtoseconds", "`timescale 1fs/1fs\n", ""),
    ("hundred seconds", "`timescale 100s/100s\n", ""),
    ("no precision", "`timescale 1s/1fs\n", ""),
    ("behind the module", "", "`timescale 1fs/1fs\n"),
    ("in the module", "", "module units; timeunit 100s; timeprecision 1fs; endmodule\n"),
]


def _attacks() -> list[Attack]:
    found: list[Attack] = []
    for name, idea, body in _ENDS:
        lfsr = body.replace("clk", "clock")
        found += around((DFF,), name, idea, body + "\n")
        found += around((LFSR,), name, idea, lfsr + "\n")
        if "finish" in name or "final" in name:
            found += around((INC, LOUD, COUNT10), name, idea, body + "\n")
            hidden = "wire \\// ; " + body.replace("$finish", "$`N").replace("final ", "fin`AL ") + "\n"
            found += around((DFF,), f"{name}, hidden", idea, hidden, "`define N finish\n`define AL al\n")
    for name, before, after in _UNITS:
        found += around(
            (DFF, LFSR, COUNTER),
            f"time unit: {name}",
            "delays of the bench change their meaning",
            before=before,
            after=after,
        )
    return found


ATTACKS = _attacks()
