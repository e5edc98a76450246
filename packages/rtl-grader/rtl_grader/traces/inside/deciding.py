"""Whether a comparison of two designs, miter.aig, can become bad: ABC searches its states. Runs in the sandbox."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from typing import Any

from pyosys import libyosys as ys

SHORTEST = 12
"""Up to this number of cycles the inputs that show a difference are the shortest possible."""
MAX_BITS = 60_000
"""Largest number of state bits, for both designs together in three values."""


class UndecidedError(Exception):
    """The reason why there is no result."""


def log_text() -> str:
    """What the latest tool printed."""
    with open("log.txt", errors="replace") as file:
        return file.read()


def decide(cpu_s: float) -> dict[str, Any]:
    """Run ABC on miter.aig with at most `cpu_s` CPU seconds, and return the result."""
    latches, constant, inputs = _header("miter.aig")
    log = ""
    if constant is None and latches > MAX_BITS:
        raise UndecidedError(f"{latches} bits of state in three values are too many")
    if constant is None and latches:
        latches, constant, log = _search(cpu_s)
    elif constant is None:
        log = _run_engine("miter.aig", "dc2; iprove", cpu_s) or ""
    if constant:
        return {"outcome": "different", "depth": 1, "cex": ["0" * inputs]}
    if os.path.exists("cex.txt"):
        steps = _cex(latches)
        return {"outcome": "different", "cex": steps, "depth": len(steps)}
    frames = re.findall(r"^\s*(\d+) [+.] :", log, re.M)
    proved = constant is False or "Property proved" in log or "UNSATISFIABLE" in log
    if not (proved or frames):
        raise UndecidedError("out of CPU time")
    if not _is_covered(cpu_s / 6):
        raise UndecidedError(
            "an output of the golden answer is X for all that is known, because nothing initialises or drives it"
        )
    if proved:
        return {"outcome": "equal", "depth": None}
    return {"outcome": "bounded", "depth": max(map(int, frames)) + 1}


def _search(cpu_s: float) -> tuple[int, bool | None, str]:
    """Reduce miter.aig, and search its states for a bad one; inputs that lead to it are in cex.txt.

    Returns (latches, value of the output if it is constant, ABC's last output).
    """
    small = "small.aig"
    if _abc("read_aiger miter.aig; scorr; write_aiger small.aig", cpu_s / 3) is None:
        small = "miter.aig"
    latches, constant, _ = _header(small)
    if constant is not None:
        return latches, constant, ""
    # First the shortest difference; then all cycles, then as many as time allows.
    _run_engine(small, f"bmc3 -F {SHORTEST}", cpu_s / 6)
    if os.path.exists("cex.txt"):
        return latches, None, ""
    log = _run_engine(small, "pdr", cpu_s / 3) or ""
    if not os.path.exists("cex.txt") and "Property proved" not in log:
        _run_engine(small, "bmc3 -v", cpu_s / 6)
        log = log_text()
    return latches, None, log


def _run_engine(model: str, engine: str, cpu_s: float) -> str | None:
    """See `_abc`; inputs that show a difference are in cex.txt."""
    return _abc(f"read_aiger {model}; {engine}; write_cex -s cex.txt", cpu_s)


def _is_covered(cpu_s: float) -> bool:
    """Whether every output bit of the golden answer can be 0 or 1 (covered.aig)."""
    _, constant, _ = _header("covered.aig")
    if constant is None:
        _abc("read_aiger covered.aig; bmc3 -F 200; write_cex -s cover.txt", cpu_s)
        return os.path.exists("cover.txt")
    return constant


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
    most = max(1, round(cpu_s))
    program = os.path.join(os.path.dirname(ys.__file__), "yosys-abc")
    with open("log.txt", "w") as log:
        done = subprocess.run(
            [program, "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (most, most)),
        )
    return None if done.returncode else log_text()


def _cex(latches: int) -> list[str]:
    """The bits of the vector `in` in each step, bit 0 first. In the file, `latches` bits of state come
    before the first step."""
    with open("map.txt") as file:
        order = list(map(int, re.findall(r"^input \S+ (\d+)", file.read(), re.M)))
    with open("cex.txt") as file:
        values, _, _ = file.read().partition("#")
    if not order:
        return [""]
    bits = re.findall(r"[01]", values)[latches:]
    steps = []
    size = len(order)
    for start in range(0, len(bits), size):
        step = zip(order, bits[start : start + size], strict=True)
        steps.append("".join(bit for _, bit in sorted(step)))
    return steps
