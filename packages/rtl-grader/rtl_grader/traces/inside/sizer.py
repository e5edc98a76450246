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

import prover

_REGISTER = re.compile(r"\$_(?:\w*DFF|DLATCH|SR_|FF_)")
_PATH = re.compile(r"^Longest topological path in .* \(length=(\d+)\):$", re.M)


def main(spec: prover.Spec) -> prover.Spec:
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
        "tee -q -o path.txt ltp -noff",
    )
    kinds = [str(cell.type) for cell in design.top_module().cells_.values()]
    with open("path.txt", errors="replace") as file:
        path = _PATH.search(file.read())
    return {
        "cells": len(kinds),
        "flip_flops": len(list(filter(_REGISTER.match, kinds))),
        "levels": int(path[1]) if path else 0,
    }


if __name__ == "__main__":
    with open(sys.argv[1]) as spec_file:
        print(json.dumps(main(json.load(spec_file))))
