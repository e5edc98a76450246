"""Whether two designs have equal outputs in every clock cycle for all inputs. Runs in the sandbox: `python3
prover.py SPEC.json`.

Both designs are read by Yosys and flattened. Netlists of one structure (`structure.py`) are equal. Others are
encoded in three values (`xprop`): a register that nothing has initialised is X, as in a simulator. A third
module compares them: it is *bad* when, after the first whole cycle of reset, an output bit of the golden
design is 0 or 1 and the other design's bit differs or is X. ABC then shows that no reachable state is bad
(signal correspondence, then property directed reachability), finds inputs that lead to one, or runs out of
CPU time.

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
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from deciding import UndecidedError, decide, log_text
from miter import Ports, miter
from pyosys import libyosys as ys
from structure import Netlist, same_structure
from tracing import Design
from verilog_text import HIDDEN, code_of

Spec = dict[str, Any]
"""An object of JSON: what to prove, or what was proved."""
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
_LOADED = re.compile(r'\$readmem[bh]\s*\(\s*"([^"\n]*)"[^;]*')
"""The load of a data file. Those of a golden answer with data files of its own are not all here."""
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
_STEPS = ("clk2fflogic",)
_CYCLES = ("async2sync", "dffunmap", "formalff -clk2ff")
"""Commands that turn registers into steps of the model."""
_REFUSED = {
    "multiple conflicting drivers": "several drivers of one signal",
    "found logic loop": "a combinational loop",
}
"""Yosys' warnings about what is not proved -> words."""
_CALLED = {"golden": "golden answer", "other": "answer"}
_NO_CLOCK = {("", True), ("", False)}
"""For registers without a clock: two entries, so that there is more than one clock."""


def main(spec: Spec) -> Spec:
    """Read both designs, compare, and return the result."""
    try:
        return _compare(spec)
    except UndecidedError as error:
        return {"outcome": "undecided", "why": str(error)}


def _compare(spec: Spec) -> Spec:
    for name in _CALLED:
        read(spec, name)
    idle, floats, same = apart(_structure, "the netlists cannot be compared")
    if not any("0" in mask for mask in idle.values()):
        raise UndecidedError("the golden answer drives none of its outputs")
    if same:
        return {"outcome": "equal"}
    if floats:
        raise UndecidedError(f"the {_CALLED[floats[0]]} has a signal that nothing drives")
    clocks = set[tuple[str, bool]]()
    for name, called in _CALLED.items():
        own = apart(partial(_map, name), f"Yosys cannot encode the {called}")
        clocks.update(map(tuple, own))
    clock = clocks.pop() if len(clocks) == 1 else None
    stepwise = bool(clocks)
    inputs = apart(lambda: _build(spec, stepwise, idle), "Yosys cannot compare the two")
    result = decide(spec["cpu_s"])
    if result["outcome"] == "different":
        result["trace"] = _by_port(result.pop("cex"), inputs)
    return {**result, "clock": clock}


def apart(work: Callable[[], Any], failed: str) -> Any:
    """What `work` returns, called in a process of its own: an error of Yosys ends the process. Raises
    UndecidedError."""
    with suppress(FileNotFoundError):
        os.remove("result.json")
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    child = os.fork()
    if not child:
        try:
            os.dup2(log, 1)
            os.dup2(log, 2)
            result = json.dumps(work())
            with open("result.json", "w") as file:
                file.write(result)
            os._exit(0)
        except BaseException as error:
            os.write(2, f"error: {error}\n".encode())
        finally:
            os._exit(1)
    os.close(log)
    _, status = os.waitpid(child, 0)
    if status == 0:
        with open("result.json") as file:
            return json.load(file)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        raise UndecidedError("out of CPU time")
    why = f"it ended with status {status}"
    if message := re.search(r"\b(?:error|ERROR): (.*)$", log_text(), re.M):
        why = message[1].strip()[:300]
    raise UndecidedError(f"{failed}: {why}")


def run(design: Any, *commands: str) -> None:
    """Run commands of Yosys on a design."""
    for command in commands:
        ys.run_pass(command, design)


def _structure() -> tuple[dict[str, str], list[str], bool]:
    """The bits that the golden answer never drives (`Netlist.idle`), the designs that read a bit without a
    driver, and whether both are the same netlist."""
    golden, other = Netlist("golden.json", 0), Netlist("other.json", 1)
    both = {"golden": golden, "other": other}
    floats = [name for name, netlist in both.items() if netlist.reads_nothing()]
    return golden.idle(), floats, same_structure(golden, other)


def read(spec: Spec, name: str) -> None:
    """Read one design and write it to NAME.json, and as simulators see it to NAME.il."""
    with open("divide.v", "w") as rules:
        for kind in ("div", "mod", "divfloor", "modfloor"):
            rules.write(_DIVIDE % (kind, kind))
    design = Design(spec[name], ())
    design.prepare()
    folder = design.word
    # In a simulator an incomplete `always_comb` keeps its value; Yosys' front ends refuse it.
    text = re.sub(r"\balways_comb\b", "always @*", _as_simulated(spec, name))
    if name == "other" or not spec["golden_has_data"]:
        text = _LOADED.sub(partial(_if_there, folder), text)
    path = os.path.abspath(f"{name}.sv")
    with open(path, "w") as copy:
        copy.write(text)
    reasons: list[str] = []
    called = _CALLED[name]
    ways = list(_ways(spec["top"], spec["values"], path))
    if name == "other" and spec.get("by_slang"):
        ways = ways[:1]
    for commands in ways:
        try:
            work = partial(_read, name, commands, folder)
            doubts = apart(work, f"Yosys cannot read the {called}")
        except UndecidedError as error:
            reasons.append(str(error))
            continue
        if not doubts:
            return
        reasons.append(f"the {called} has {doubts[0]}")
    raise UndecidedError(reasons[0])


def _if_there(folder: str, load: re.Match[str]) -> str:
    """The load of a data file; nothing where the file is missing, as in a simulator, which goes on with X."""
    return load[0] if os.path.exists(os.path.join(folder, load[1])) else ""


def _ways(top: str, values: dict[str, int], path: str) -> Iterator[tuple[str, str]]:
    """Commands that read a design in different ways, the best first."""
    slang, chosen = "", ""
    for key, value in values.items():
        slang += f" -G {key}={value}"
        chosen += f" -chparam {key} {value}"
    hierarchy = f"hierarchy -check -top {top}"
    yield f"{_SLANG} --top {top}{slang} {path}", hierarchy
    # Accepts what Icarus accepts and slang does not.
    yield f"read_verilog -sv {path}", f"{hierarchy}{chosen}"


def _read(name: str, commands: tuple[str, str], folder: str) -> list[str]:
    """Read a design in the folder that has its data files, and return why it is not proved, in words."""
    design = ys.Design()
    here = os.getcwd()
    os.chdir(folder)
    run(design, *commands)
    os.chdir(here)
    run(design, "proc", "flatten", "memory_collect", "opt_clean", "check")
    run(design, f"write_json {name}.json", *_AS_SIMULATED, f"write_rtlil {name}.il")
    return [words for warning, words in _REFUSED.items() if warning in log_text()]


def _map(name: str) -> list[tuple[str, bool]]:
    """Replace the memories of a design by registers, and return its clocks, see `_clocks`."""
    design = ys.Design()
    run(design, f"read_rtlil {name}.il", "memory_map", "setundef -undriven -undef")
    run(design, "opt_expr -keepdc", "opt_clean", f"write_rtlil {name}.il")
    return sorted(_clocks(design))


def _as_simulated(spec: Spec, name: str) -> str:
    """The design as Icarus' preprocessor gives it to its compiler: no macro or comment means more to another tool.

    Comments and attributes are removed: simulators ignore both.
    """
    options = ("-g2012", "-E", "-I", "/code/rtl", "-o", f"{name}.i")
    command = ["iverilog", *options, *spec[name]]
    if subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode:
        raise UndecidedError(f"Icarus cannot preprocess the {_CALLED[name]}")
    with open(f"{name}.i", errors="replace") as file:
        text = HIDDEN.sub(_without_comment, file.read())
    code = code_of(text)
    if odd := _DIRECTIVE.search(code) or re.search('"""', text):
        raise UndecidedError(f"the {_CALLED[name]} has the directive {odd[0][:60]}")
    parts, start = [], 0
    for attribute in _ATTRIBUTE.finditer(code):
        parts.append(text[start : attribute.start()])
        start = attribute.end()
    parts.append(text[start:])
    return " ".join(parts)


def _without_comment(hidden: re.Match[str]) -> str:
    """A blank for a comment; a string stays."""
    return " " if hidden[0].startswith("/") else hidden[0]


def _build(spec: Spec, stepwise: bool, idle: dict[str, str]) -> Ports:
    """Encode both designs; write their comparison to miter.aig and map.txt, and the coverage of the golden
    answer to covered.aig.

    Returns the inputs as (name, bits).
    """
    design = ys.Design()
    ports = {}
    for name in _CALLED:
        _encode(design, name, stepwise)
        ports[name] = _ports(design)
        run(design, f"design -stash {name}")
    if ports["golden"] != ports["other"]:
        raise ValueError("their ports differ")
    inputs, outputs = ports["golden"]
    clocks = spec["clocks"] if stepwise else []
    with open("miter.v", "w") as file:
        file.write(miter(inputs, outputs, spec["resets"], clocks, idle))
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
    clocks: set[tuple[str, bool]] = set()
    for cell in design.top_module().cells_.values():
        kind = str(cell.type)
        if "dlatch" in kind or kind == "$sr":
            return _NO_CLOCK
        if cell.hasPort(_id("\\CLK")):
            clock = cell.getPort(_id("\\CLK"))
            if not (clock.is_wire() and clock.as_wire().port_input):
                return _NO_CLOCK  # its source, perhaps a gate, is part of the comparison
            rises = cell.getParam(_id("\\CLK_POLARITY")).as_bool()
            clocks.add((_plain(clock.as_wire().name), rises))
    return clocks


def _id(name: str) -> Any:
    return ys.IdString(name)


def _plain(name: Any) -> str:
    """A name without Yosys' leading backslash."""
    return str(name)[1:]


def _encode(design: Any, name: str, stepwise: bool) -> None:
    """Make the saved design the current one, with each output split into value and X."""
    run(
        design,
        f"read_rtlil {name}.il",
        *(_STEPS if stepwise else _CYCLES),
        "xprop -split-outputs -assume-def-inputs -formal",
        "opt_clean",
    )
    top = _plain(design.top_module().name)
    run(design, f"rename {top} {name}")


def _ports(design: Any) -> tuple[Ports, Ports]:
    """(inputs, outputs) of the current design as (name, bits), sorted by name."""
    inputs, outputs = [], []
    for wire in design.top_module().wires_.values():
        name = _plain(wire.name)
        if wire.port_input and wire.port_output:
            raise ValueError(f"port {name} is inout")
        if wire.port_input:
            inputs.append((name, wire.width))
        elif wire.port_output and name.endswith("_d"):
            outputs.append((name.removesuffix("_d"), wire.width))
    return sorted(inputs), sorted(outputs)


def _by_port(steps: list[str], inputs: Ports) -> list[dict[str, int]]:
    """The value of each input in each step."""
    trace = []
    for bits in steps:
        start, values = 0, {}
        for name, width in inputs:
            end = start + width
            digits = bits[start:end]
            values[name] = int(digits[::-1] or "0", 2)
            start = end
        trace.append(values)
    return trace


if __name__ == "__main__":
    with open(sys.argv[1]) as spec_file:
        print(json.dumps(main(json.load(spec_file))))
