"""Proof that an answer equals the golden one: model checking by Yosys and ABC in the sandbox (`inside/prover.py`).

It covers every sequence of inputs, in three values, cycle by cycle, after the first reset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from rtl_grader.equivalence.pair import HDL, Pair
from rtl_grader.grading.executors.base import Step
from rtl_grader.traces.bench import PROVER, sandbox_scripts
from rtl_grader.traces.stimuli import Trace, Values
from rtl_grader.types.netlist import Netlist
from rtl_grader.types.problem import Interface

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
    clock: tuple[str, bool] | None = None
    """The only clock of both designs, and whether its rising edge counts; if None, a step of the trace is
    any change of inputs."""


def prove(pair: Pair, values: Values, interface: Interface, cpu_s: float) -> Proof:
    """Prove that both designs are equal, with the parameters set to `values`, which give the ports of
    `interface`. ABC gets `cpu_s` seconds.

    Raises InfrastructureError if the executor fails.
    """
    if not pair.executor.has_module("pyosys"):
        return Proof("undecided", why="pyosys is not installed where answers are graded")
    names = [interface.module, *values]
    if odd := next((name for name in names if not _PLAIN.fullmatch(name)), None):
        return Proof("undecided", why=f"{odd} is no plain identifier")
    clocks, resets, low = pair.clocking(interface)
    # In a path that the other design cannot guess: otherwise it could include the golden answer and be equal.
    golden = {}
    for number, text in enumerate(pair.golden_for_proof().values()):
        golden[f"src/{pair.nonce}/golden{number}.sv"] = text
    spec = {
        "values": dict(values),
        "golden": _hdl_of(pair.context, golden),
        "clocks": clocks,
        "resets": [[name, name in low] for name in resets],
        "cpu_s": cpu_s,
    }
    result = _run_script(pair, "prover.py", spec, cpu_s + YOSYS_CPU_S, golden)
    clock = result.get("clock")
    return Proof(
        outcome=result.get("outcome", "undecided"),
        depth=result.get("depth"),
        why=result.get("why") or "",
        trace=result.get("trace") or (),
        clock=tuple(clock) if clock else None,
    )


def _hdl_of(*answers: Mapping[str, str]) -> list[str]:
    """Places of HDL files in the sandbox."""
    return [f"/code/{path}" for files in answers for path in files if path.endswith(HDL)]


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
    spec: Mapping[str, Any],
    cpu_s: float,
    golden: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run a script of `inside` on the pair and return its line of JSON, or {why} if it gives none."""
    spec = {**spec, "top": pair.interface.module, "other": _hdl_of(pair.context, pair.other)}
    place = f"src/{pair.nonce}/spec.json"
    step = Step("yosys", ("python3", f"/code/src/{script}", f"/code/{place}"))
    harness = {**(golden or {}), **_scripts(), place: json.dumps(spec)}
    (result,) = pair.run(harness, [step], cpu_s, pair.other)
    if result.overrun:
        return {"why": "out of memory" if result.overrun == "memory" else "out of CPU time"}
    try:
        return dict(json.loads(result.output.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        return {"why": f"{script} ended with {result.exit_code}"}


@cache
def _scripts() -> dict[str, str]:
    sizer = (Path(__file__).parent / "inside" / "sizer.py").read_text()
    scripts = {f"src/{name}": text for name, text in sandbox_scripts(*PROVER).items()}
    return {**scripts, "src/sizer.py": sizer}
