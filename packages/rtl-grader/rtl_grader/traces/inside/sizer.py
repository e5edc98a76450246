"""How large a design is: cells, flip-flops, longest path. Runs in the sandbox: `python3 sizer.py
SPEC.json`, see `prover.py`.

Yosys maps the design to gates of two inputs, multiplexers and inverters (`synth`, `abc`); registers stay as
they are, memories become registers. Standard output gets one line of JSON: {cells, flip_flops, levels} or
{why}.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import prover

_REGISTER = re.compile(r"\$_(?:\w*DFF|DLATCH|SR_|FF_)")


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Read the design and return its size."""
    try:
        prover.read(spec, "other")
        return dict(prover.apart(_size, "Yosys cannot synthesise the answer"))
    except prover.UndecidedError as error:
        return {"why": str(error)}


def _size() -> dict[str, int]:
    design = prover.ys.Design()
    prover.run(
        design,
        "read_rtlil other.il",
        "synth -flatten -noabc",
        "abc -g AND,OR,XOR,MUX",
        "opt_clean",
        "write_json netlist.json",
    )
    with open("netlist.json") as file:
        modules = json.load(file)["modules"]
    top = str(design.top_module().name)[1:]
    cells = list(modules[top]["cells"].values())
    gates = [cell for cell in cells if not _REGISTER.match(cell["type"])]
    return {
        "cells": len(cells),
        "flip_flops": len(cells) - len(gates),
        "levels": _levels(gates),
    }


def _bits_by_direction(cell: dict[str, Any]) -> dict[str, list[Any]]:
    """The bits at a cell's inputs (`input`) and outputs (`output`)."""
    bits: dict[str, list[Any]] = {"input": [], "output": []}
    for port, direction in cell["port_directions"].items():
        bits[direction] += cell["connections"][port]
    return bits


def _levels(gates: list[dict[str, Any]]) -> int:
    """Gates on the longest path from a bit that no gate drives. There is no loop: `prover.read` refuses one."""
    ports = [_bits_by_direction(cell) for cell in gates]
    driver = {bit: place for place, port in enumerate(ports) for bit in port["output"]}
    level: dict[int, int] = {}
    for start in range(len(gates)):
        waiting = [start]
        while waiting:
            gate = waiting[-1]
            before = {driver[bit] for bit in ports[gate]["input"] if bit in driver}
            if missing := before - level.keys():
                waiting += missing
            else:
                level[gate] = 1 + max((level[one] for one in before), default=0)
                waiting.pop()
    return max(level.values(), default=0)


if __name__ == "__main__":
    with open(sys.argv[1]) as spec_file:
        print(json.dumps(main(json.load(spec_file))))
