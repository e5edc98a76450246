"""Whether two designs have equal outputs in every clock cycle for all inputs. Runs in the sandbox: `python3
prover.py SPEC.json`.

Both designs are read by Yosys, flattened and encoded in three values (`xprop`): a register that nothing has
initialised is X, as in a simulator. A third module compares them: it is *bad* when, after the first whole
cycle of reset, an output bit of the golden design is 0 or 1 and the other design's bit differs or is X. ABC
then shows that no reachable state is bad (signal correspondence, then property directed reachability),
finds inputs that lead to one, or runs out of CPU time.

Where all registers of both have one clock and one edge, a step of the model is a cycle of that clock, and
asynchronous resets and latches are looked at once a cycle. Else a step is any change of the inputs, clocks
included (`clk2fflogic`).

Standard output gets one line of JSON: {outcome, depth, why, clock, trace}. What the tools print goes
elsewhere, because a design can make Yosys print (`$info`).
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyosys import libyosys as ys
from verilog_text import HIDDEN, code_of

_SLANG = (
    "read_slang --ignore-timing --ignore-assertions "
    "--allow-use-before-declare --relax-enum-conversions --allow-dup-initial-drivers"
)
_DIRECTIVE = re.compile(
    r"`(?!(?:timescale|default_nettype|resetall|(?:end)?celldefine|(?:no)?unconnected_drive"
    r"|(?:begin|end)_keywords)\b)\S*"
)
"""A directive that Icarus' preprocessor leaves and another tool may not ignore as Icarus does."""
_ATTRIBUTE = re.compile(r"\(\*(?!\s*\)).*?\*\)", re.S)
"""Attributes such as `full_case` or `anyconst`, which Yosys obeys and simulators ignore. `@(*)` is not one."""
_DIVIDE = """\
module \\$%s (A, B, Y);
  parameter A_SIGNED = 0, B_SIGNED = 0, A_WIDTH = 1, B_WIDTH = 1, Y_WIDTH = 1;
  input [A_WIDTH-1:0] A; input [B_WIDTH-1:0] B; output [Y_WIDTH-1:0] Y; wire [Y_WIDTH-1:0] known;
  \\$%s #(.A_SIGNED(A_SIGNED), .B_SIGNED(B_SIGNED), .A_WIDTH(A_WIDTH), .B_WIDTH(B_WIDTH), .Y_WIDTH(Y_WIDTH))
    divider (.A(A), .B(B), .Y(known));
  assign Y = |B ? known : {Y_WIDTH{1'bx}};
endmodule
"""
"""A division by zero is X."""
_AS_SIMULATED = (
    "setundef -undriven -undef",
    "chtype -set $eq t:$eqx",
    "chtype -set $ne t:$nex",
    "techmap -max_iter 1 -map divide.v",
)
"""What is not driven is X, and so is every comparison with X: where Yosys has X, a simulator may have 0 or 1."""
_REFUSED = {
    "multiple conflicting drivers": "several drivers of one signal",
    "found logic loop": "a combinational loop",
    "is used but has no driver": "a signal that nothing drives",
}
"""Yosys' warnings about what is not proved -> words."""
_CALLED = {"golden": "golden answer", "other": "answer"}
_NO_CLOCK = {("", True), ("", False)}
"""For registers without a clock: two entries, so that there is more than one clock."""
SHORTEST = 12
"""Up to this number of cycles the inputs that show a difference are the shortest possible."""
MAX_BITS = 60_000
"""Largest number of state bits, for both designs together in three values."""


class UndecidedError(Exception):
    """The reason why there is no result."""


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Read both designs, compare, and return the result."""
    try:
        return _compare(spec)
    except UndecidedError as error:
        return {"outcome": "undecided", "why": str(error)}


def _compare(spec: dict[str, Any]) -> dict[str, Any]:
    clocks = {tuple(clock) for name in ("golden", "other") for clock in read(spec, name)}
    clock = clocks.pop() if len(clocks) == 1 else None
    stepwise = bool(clocks)
    inputs = apart(lambda: _build(spec, stepwise), "Yosys cannot compare the two")
    found = _decide(spec["cpu_s"])
    if found["outcome"] == "different":
        found["trace"] = _by_port(found.pop("cex"), inputs)
    return {**found, "clock": clock}


def apart(work: Callable[[], Any], failed: str) -> Any:
    """What `work` returns, called in a process of its own: an error of Yosys ends the process. Raises
    UndecidedError."""
    with suppress(FileNotFoundError):
        os.remove("told.json")
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    child = os.fork()
    if not child:
        try:
            os.dup2(log, 1)
            os.dup2(log, 2)
            told = json.dumps(work())
            with open("told.json", "w") as file:
                file.write(told)
            os._exit(0)
        except BaseException as error:
            os.write(2, f"error: {error}\n".encode())
        finally:
            os._exit(1)
    os.close(log)
    _, status = os.waitpid(child, 0)
    if status == 0:
        with open("told.json") as file:
            return json.load(file)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        raise UndecidedError("out of CPU time")
    match = re.search(r"\b(?:error|ERROR): (.*)$", _logged(), re.M)
    raise UndecidedError(
        f"{failed}: {match[1].strip()[:300] if match else f'it ended with status {status}'}"
    )


def _logged() -> str:
    with open("log.txt", errors="replace") as file:
        return file.read()


def run(design: Any, *commands: str) -> None:
    """Run commands of Yosys on a design."""
    for command in commands:
        ys.run_pass(command, design)


def read(spec: dict[str, Any], name: str) -> list[tuple[str, bool]]:
    """Read one design and write it to NAME.il. Returns its clocks, see `_clocks`."""
    top, values = spec["top"], spec["values"]
    with open("divide.v", "w") as rules:
        rules.write(
            "".join(_DIVIDE % (kind, kind) for kind in ("div", "mod", "divfloor", "modfloor"))
        )
    with open(f"{name}.sv", "w") as copy:
        # In a simulator an incomplete `always_comb` keeps its value; Yosys' front ends refuse it.
        copy.write(re.sub(r"\balways_comb\b", "always @*", _as_simulated(spec, name)))
    set_ = " ".join(f"-G {key}={value}" for key, value in values.items())
    chosen = " ".join(f"-chparam {key} {value}" for key, value in values.items())
    ways = [
        (f"{_SLANG} --top {top} {set_} {name}.sv", f"hierarchy -check -top {top}"),
        # Accepts what Icarus accepts and slang does not.
        (f"read_verilog -sv {name}.sv", f"hierarchy -check -top {top} {chosen}"),
    ]
    first: UndecidedError | None = None
    for way in ways:

        def attempt(way: tuple[str, ...] = way) -> tuple[list[str], list[tuple[str, bool]]]:
            design = ys.Design()
            run(design, *way, "proc", "flatten", "opt_clean", "check", *_AS_SIMULATED)
            run(design, "memory_map", "setundef -undriven -undef", "opt_expr -keepdc", "opt_clean")
            run(design, "check", f"write_rtlil {name}.il")
            doubts = [words for warning, words in _REFUSED.items() if warning in _logged()]
            return doubts, sorted(_clocks(design))

        try:
            doubts, clocks = apart(attempt, f"Yosys cannot read the {_CALLED[name]}")
        except UndecidedError as error:
            first = first or error
            continue
        if not doubts:
            return [tuple(clock) for clock in clocks]
        first = first or UndecidedError(f"the {_CALLED[name]} has {doubts[0]}")
    assert first is not None
    raise first


def _as_simulated(spec: dict[str, Any], name: str) -> str:
    """The design as Icarus' preprocessor gives it to its compiler: no macro or comment means more to another tool.

    Comments and attributes are removed: simulators ignore both.
    """
    options = ("-g2012", "-E", "-I", "/code/rtl", "-o", f"{name}.i")
    if subprocess.run(
        ["iverilog", *options, *spec[name]], stdin=subprocess.DEVNULL, capture_output=True
    ).returncode:
        raise UndecidedError(f"Icarus cannot preprocess the {_CALLED[name]}")
    with open(f"{name}.i", errors="replace") as file:
        text = HIDDEN.sub(lambda hidden: " " if hidden[0][0] == "/" else hidden[0], file.read())
    code = code_of(text)
    if odd := _DIRECTIVE.search(code) or re.search('"""', text):
        raise UndecidedError(f"the {_CALLED[name]} has the directive {odd[0][:60]}")
    parts, at = [], 0
    for attribute in _ATTRIBUTE.finditer(code):
        parts += [text[at : attribute.start()], " "]
        at = attribute.end()
    return "".join([*parts, text[at:]])


def _build(spec: dict[str, Any], stepwise: bool) -> list[tuple[str, int]]:
    """Encode both designs; write their comparison to miter.aig and map.txt, and the coverage of the golden
    answer to covered.aig.

    Returns the inputs as (name, bits).
    """
    design = ys.Design()
    ports = {}
    for name in ("golden", "other"):
        _encode(design, name, stepwise)
        ports[name] = _ports(design)
        run(design, f"design -stash {name}")
    if ports["golden"] != ports["other"]:
        raise ValueError("their ports differ")
    inputs, outputs = ports["golden"]
    with open("miter.v", "w") as file:
        file.write(_miter(inputs, outputs, spec["resets"], spec["clocks"] if stepwise else []))
    for top, sides in (("covered", ("golden",)), ("miter", ("golden", "other"))):
        run(
            design,
            "design -reset",
            *(f"design -copy-from {side} {side}" for side in sides),
            "read_verilog -formal miter.v",
            f"hierarchy -check -top {top}",
            "proc",
            "flatten",
            "chformal -remove",
            "opt",
            "techmap",
            "opt -fast",
            "aigmap",
            "opt_clean",
            f"write_aiger -zinit -map map.txt {top}.aig",
        )
    return inputs


def _clocks(design: Any) -> set[tuple[str, bool]]:
    """The clocks of the current design: (input, whether the rising edge counts); `_NO_CLOCK` where not all
    registers have one."""
    found: set[tuple[str, bool]] = set()
    for cell in design.top_module().cells_.values():
        kind = str(cell.type)
        if "dlatch" in kind or kind == "$sr":
            return _NO_CLOCK
        if cell.hasPort(_id("\\CLK")):
            clock = cell.getPort(_id("\\CLK"))
            if not (clock.is_wire() and clock.as_wire().port_input):
                return _NO_CLOCK  # its source, perhaps a gate, is part of the comparison
            found.add(
                (str(clock.as_wire().name)[1:], cell.getParam(_id("\\CLK_POLARITY")).as_bool())
            )
    return found


def _id(name: str) -> Any:
    return ys.IdString(name)


def _encode(design: Any, name: str, stepwise: bool) -> None:
    """Make the saved design the current one, with each output split into value and X."""
    run(
        design,
        f"read_rtlil {name}.il",
        *(("clk2fflogic",) if stepwise else ("async2sync", "dffunmap", "formalff -clk2ff")),
        "xprop -split-outputs -assume-def-inputs -formal",
        "opt_clean",
    )
    top = str(design.top_module().name)[1:]
    run(design, f"rename {top} {name}")


def _ports(design: Any) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """(inputs, outputs) of the current design as (name, bits), sorted by name."""
    inputs, outputs = [], []
    for wire in design.top_module().wires_.values():
        name = str(wire.name)[1:]
        if wire.port_input and wire.port_output:
            raise ValueError(f"port {name} is inout")
        if wire.port_input:
            inputs.append((name, wire.width))
        elif wire.port_output and name.endswith("_d"):
            outputs.append((name[:-2], wire.width))
    return sorted(inputs), sorted(outputs)


def _seen(acts: str, ticks: list[str]) -> list[str]:
    """The signal `seen`: a reset has been active for a whole cycle; before that registers may have any value.

    If a step is any change of the inputs, a cycle is a rising and a falling edge of each clock (`ticks`).
    """
    if not acts:
        return ["  wire seen = 1;"]
    if not ticks:
        return ["  reg seen = 0;", f"  always @($global_clock) seen <= seen | {acts};"]
    clocks, wide = f"{{{', '.join(ticks)}}}", f"[{len(ticks) - 1}:0]"
    return [
        f"  reg {wide} before = 0, rose = 0, fell = 0; reg on = 0, seen = 0;",
        f"  wire {wide} hold = {{{len(ticks)}{{on & ({acts})}}}};",
        f"  always @($global_clock) begin before <= {clocks}; on <= {acts};",
        f"    rose <= rose | (hold & ~before & {clocks}); fell <= fell | (hold & before & "
        f"~{clocks}); seen <= seen | (&rose & &fell);",
        "  end",
    ]


def _miter(
    inputs: list[tuple[str, int]],
    outputs: list[tuple[str, int]],
    resets: list[list[Any]],
    clocks: list[str],
) -> str:
    """Two modules: `miter` outputs whether the designs differ, `covered` whether every output bit of the
    golden one has been 0 or 1.

    The inputs form one vector, in the order of `inputs`, with the first in the lowest bits.
    """
    at, place = 0, {}
    for name, bits in inputs:
        place[name] = f"in[{at + bits - 1}:{at}]"
        at += bits
    acts = " | ".join(f"{'~' if low else ''}{place[name]}" for name, low in resets if name in place)
    ticks = [place[name] for name in clocks if name in place]
    lines = []
    for module, output, sides in (("miter", "bad", "go"), ("covered", "every", "g")):
        lines += [f"module {module} (input [{max(at, 1) - 1}:0] in, output {output});"]
        for side in sides:
            for i, (_, bits) in enumerate(outputs):
                lines.append(f"  wire [{bits - 1}:0] {side}{i}d, {side}{i}x;")
            wires = [f".\\{name} ({where})" for name, where in place.items()]
            wires += [
                f".\\{name}_{part} ({side}{i}{part})"
                for i, (name, _) in enumerate(outputs)
                for part in "dx"
            ]
            lines.append(f"  {'golden' if side == 'g' else 'other'} {side} ({', '.join(wires)});")
        lines += _seen(acts, ticks)
        if module == "miter":
            wrong = [f"|(~g{i}x & (o{i}x | (g{i}d ^ o{i}d)))" for i in range(len(outputs))]
            lines.append(f"  assign bad = seen & ({' | '.join(wrong)});")
        else:
            last = sum(bits for _, bits in outputs) - 1
            unknown = ", ".join(f"g{i}x" for i in range(len(outputs)))
            lines += [
                f"  reg [{last}:0] known = 0;",
                f"  wire [{last}:0] now = seen ? known | ~{{{unknown}}} : known;",
            ]
            lines += ["  always @($global_clock) known <= now;", "  assign every = &now;"]
        lines.append("endmodule")
    return "\n".join(lines)


def _decide(cpu_s: float) -> dict[str, Any]:
    """Run ABC on miter.aig with at most `cpu_s` CPU seconds, and return the result."""
    latches, constant, _ = _header("miter.aig")
    if constant is None and latches > MAX_BITS:
        raise UndecidedError(f"{latches} bits of state in three values are too many")
    said = ""
    if constant is None and latches:
        reduced = _abc("read_aiger miter.aig; scorr; write_aiger small.aig", cpu_s / 3)
        small = "miter.aig" if reduced is None else "small.aig"
        latches, constant, _ = _header(small)
        if constant is None:
            # First the shortest difference; then all cycles, then as many as time allows.
            _abc(f"read_aiger {small}; bmc3 -F {SHORTEST}; write_cex -s cex.txt", cpu_s / 6)
            if not os.path.exists("cex.txt"):
                said = _abc(f"read_aiger {small}; pdr; write_cex -s cex.txt", cpu_s / 3) or ""
            if not os.path.exists("cex.txt") and "Property proved" not in said:
                _abc(f"read_aiger {small}; bmc3 -v; write_cex -s cex.txt", cpu_s / 6)
                said = _logged()
    elif constant is None:
        said = _abc("read_aiger miter.aig; dc2; iprove; write_cex -s cex.txt", cpu_s) or ""
    if constant:
        return {"outcome": "different", "depth": 1, "cex": ["0" * _header("miter.aig")[2]]}
    if os.path.exists("cex.txt"):
        return {"outcome": "different", "cex": (cex := _cex(latches)), "depth": len(cex)}
    frames = [int(frame) for frame in re.findall(r"^\s*(\d+) [+.] :", said, re.M)]
    proved = constant is False or "Property proved" in said or "UNSATISFIABLE" in said
    if not (proved or frames):
        raise UndecidedError("out of CPU time")
    if _header("covered.aig")[1] is None:
        _abc("read_aiger covered.aig; bmc3 -F 200; write_cex -s cover.txt", cpu_s / 6)
    if _header("covered.aig")[1] is False or not (
        _header("covered.aig")[1] or os.path.exists("cover.txt")
    ):
        raise UndecidedError(
            "an output of the golden answer is X for all that is known, because nothing initialises or drives it"
        )
    return (
        {"outcome": "equal", "depth": None}
        if proved
        else {"outcome": "bounded", "depth": max(frames) + 1}
    )


def _header(path: str) -> tuple[int, bool | None, int]:
    """(latches, value of the only output if it is constant, inputs)."""
    with open(path, "rb") as file:
        _, _, inputs, latches, outputs, *_ = file.readline().split()
        for _ in range(int(latches)):
            file.readline()
        literal = int(file.readline()) if int(outputs) else 0
    return int(latches), {0: False, 1: True}.get(literal), int(inputs)


def _abc(script: str, cpu_s: float) -> str | None:
    """Return ABC's output, which is also in log.txt; None if it ran out of CPU time, after which files may
    be truncated."""
    limit = (max(1, round(cpu_s)),) * 2
    program = os.path.join(os.path.dirname(ys.__file__), "yosys-abc")
    with open("log.txt", "w") as log:
        done = subprocess.run(
            [program, "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),
        )
    return None if done.returncode else _logged()


def _cex(latches: int) -> list[str]:
    """The bits of the vector `in` in each step, bit 0 first. In the file, `latches` bits of state come
    before the first step."""
    with open("map.txt") as file:
        order = [int(line.split()[2]) for line in file if line.startswith("input")]
    with open("cex.txt") as file:
        bits = "".join(re.findall(r"[01]", file.read().split("#")[0]))[latches:]
    steps = (
        [bits[at : at + len(order)] for at in range(0, len(bits), len(order))] if order else [""]
    )
    return ["".join(bit for _, bit in sorted(zip(order, step, strict=True))) for step in steps]


def _by_port(steps: list[str], inputs: list[tuple[str, int]]) -> list[dict[str, int]]:
    found = []
    for bits in steps:
        at, values = 0, {}
        for name, width in inputs:
            values[name] = int(bits[at : at + width][::-1] or "0", 2)
            at += width
        found.append(values)
    return found


if __name__ == "__main__":
    with open(sys.argv[1]) as spec_file:
        print(json.dumps(main(json.load(spec_file))))
