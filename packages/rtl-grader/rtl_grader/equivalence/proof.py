"""Proof that an answer equals the golden one: model checking by Yosys and ABC in the sandbox (`inside/prover.py`).

It covers every sequence of inputs, in three values, cycle by cycle, after the first reset.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from rtl_grader.equivalence.pair import Pair, places
from rtl_grader.grading.executors.base import Message
from rtl_grader.hdl.interface import hdl_files
from rtl_grader.traces.bench import PROVER, sandbox_scripts
from rtl_grader.traces.driving import Clock, Driven
from rtl_grader.traces.stimuli import Trace
from rtl_grader.types.files import Files
from rtl_grader.types.netlist import Netlist

YOSYS_CPU_S = 10.0
"""CPU time for reading and encoding both designs, before ABC starts."""
_PLAIN = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Proof:
    """Result of model checking. `different` counts only after a simulator has confirmed it (`trace`)."""

    outcome: Literal["equal", "bounded", "different", "undecided"]
    depth: int | None = None
    """Cycles for which equality is proved (`bounded`), or after which the designs differ."""
    why: str = ""
    trace: Trace = ()
    clock: Clock | None = None
    """The only clock of both designs, and whether its rising edge counts; if None, a step of the trace is
    any change of inputs."""


_PROOF = TypeAdapter(Proof)


def prove(pair: Pair, design: Driven, cpu_s: float) -> Proof:
    """Prove that both designs are equal, with the parameters of `design` (`Pair.driven`). ABC gets `cpu_s`
    seconds.

    Raises InfrastructureError if the executor fails.
    """
    if not pair.executor.has_module("pyosys"):
        return Proof("undecided", why="pyosys is not installed where answers are graded")
    names = [pair.interface.module, *design.values]
    if odd := next((name for name in names if not _PLAIN.fullmatch(name)), None):
        return Proof("undecided", why=f"{odd} is no plain identifier")
    # In a path that the other design cannot guess: otherwise it could include the golden answer and be equal.
    golden = {}
    for number, text in enumerate(pair.golden_for_proof().values()):
        golden[f"src/{pair.nonce}/golden{number}.sv"] = text
    spec = {
        "values": dict(design.values),
        "golden": places(pair.context, golden),
        "golden_has_data": hdl_files(pair.golden) != pair.golden,
        "clocks": list(design.clocks),
        "resets": design.levels,
        "cpu_s": cpu_s,
    }
    result = _run_script(pair, "prover.py", spec, cpu_s + YOSYS_CPU_S, golden)
    return _PROOF.validate_python({"outcome": "undecided", **result})


def netlist(pair: Pair) -> Netlist | None:
    """Size of the pair's other design after synthesis with its default parameters; None if Yosys fails or is missing.

    Raises InfrastructureError if the executor fails.
    """
    if not pair.executor.has_module("pyosys") or not _PLAIN.fullmatch(pair.interface.module):
        return None
    size = _run_script(pair, "sizer.py", {"values": {}}, YOSYS_CPU_S)
    return Netlist(**size) if "cells" in size else None


def _run_script(
    pair: Pair,
    script: str,
    spec: Message,
    cpu_s: float,
    golden: Files | None = None,
) -> Message:
    """Run a script of `inside` on the pair and return its line of JSON, or {why} if it gives none."""
    other = places(pair.context, pair.other)
    spec = {**spec, "top": pair.interface.module, "other": other}
    place = f"src/{pair.nonce}/spec.json"
    command = ("python3", f"/code/src/{script}", f"/code/{place}")
    harness = {
        **(golden or {}),
        **sandbox_scripts("sizer.py", *PROVER),
        place: json.dumps(spec),
    }
    result = pair.run(harness, command, cpu_s, pair.other)
    if result.overrun:
        return {"why": "out of memory" if result.overrun == "memory" else "out of CPU time"}
    return result.record or {"why": f"{script} ended with {result.exit_code}"}
