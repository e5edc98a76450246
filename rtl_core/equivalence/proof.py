"""A proof that an answer equals the golden one: model checking by Yosys and ABC, in the sandbox (`inside/prover.py` says how).

What is proved is equality for every sequence of inputs, in three values, cycle by cycle, after the first reset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from rtl_core.equivalence.pair import HDL, Pair
from rtl_core.equivalence.side_by_side import Trace, Values
from rtl_core.grading.executors.base import Step
from rtl_core.types.problem import Interface

YOSYS_CPU_S = 10.0
"""CPU time for reading and encoding both designs, before ABC begins."""
_PLAIN = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Proof:
    """What model checking found. `different` is believed once a simulator shows it (`trace`)."""

    outcome: Literal["equal", "bounded", "different", "undecided"]
    depth: int | None = None
    """Cycles for which equality is proved (`bounded`), or after which the two differ."""
    why: str = ""
    trace: Trace = ()
    clock: tuple[str, bool] | None = None
    """The one clock of both, and whether its rising edge counts; without one a step of the trace is any change of inputs."""


def prove(pair: Pair, values: Values, interface: Interface, cpu_s: float) -> Proof:
    """Prove that both are equal with the parameters set to `values`, which give the ports of `interface`, in `cpu_s` seconds of ABC.

    Raises InfrastructureError where the executor fails.
    """
    if not pair.executor.has_module("pyosys"):
        return Proof("undecided", why="pyosys is not installed where answers are graded")
    names = [interface.module, *values]
    if odd := next((name for name in names if not _PLAIN.fullmatch(name)), None):
        return Proof("undecided", why=f"{odd} is no plain identifier")
    clocks, resets, low = pair.clocking(interface)
    given = [f"/code/{path}" for path in pair.given if path.endswith(HDL)]
    # Under a name that the other design cannot guess: it could include the golden answer, and be equal.
    golden = {f"src/{pair.nonce}/golden{i}.sv": text for i, text in enumerate(pair.golden.values())}
    spec = {
        "top": interface.module,
        "values": dict(values),
        "golden": [*given, *(f"/code/{path}" for path in golden)],
        "other": [*given, *(f"/code/{path}" for path in pair.other if path.endswith(HDL))],
        "clocks": clocks,
        "resets": [[name, name in low] for name in resets],
        "cpu_s": cpu_s,
    }
    harness = {**golden, "src/prover.py": _prover(), f"src/{pair.nonce}/spec.json": json.dumps(spec)}
    step = Step("prove", ("python3", "/code/src/prover.py", f"/code/src/{pair.nonce}/spec.json"))
    (done,) = pair.run(harness, [step], cpu_s + YOSYS_CPU_S, pair.other)
    if done.overrun:
        return Proof("undecided", why="out of memory" if done.overrun == "memory" else "out of CPU time")
    try:
        return _read(json.loads(done.output.splitlines()[-1]))
    except (IndexError, ValueError, KeyError, TypeError):
        return Proof("undecided", why=f"the prover ended with {done.exit_code}")


def _read(told: Mapping[str, object]) -> Proof:
    clock = told.get("clock")
    return Proof(
        told["outcome"],  # type: ignore[arg-type]
        told.get("depth"),  # type: ignore[arg-type]
        str(told.get("why") or ""),
        told.get("trace") or (),  # type: ignore[arg-type]
        (str(clock[0]), bool(clock[1])) if isinstance(clock, list) else None,
    )


@cache
def _prover() -> str:
    return (Path(__file__).parent / "inside" / "prover.py").read_text()
