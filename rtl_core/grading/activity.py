"""Checks that a design does anything, if its harness changed no output and so cannot tell the design from a constant."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rtl_core.grading.executors.base import Step
from rtl_core.types.problem import Port

ACTIVITY_TEST = '''\
"""Drives every input at random and passes when an output took two values; with a clock, at its rising edges."""

import json
import random

import cocotb
from cocotb.triggers import ReadOnly, Timer

PORTS = json.loads({ports!r})
CYCLES = 600
APART = 1_000_000


@cocotb.test()
async def moves(dut):
    rng = random.Random(1)
    inputs = [(getattr(dut, name), width) for name, width in PORTS["inputs"]]
    outputs = [(name, getattr(dut, name)) for name in PORTS["outputs"]]
    clock = getattr(dut, PORTS["clock"]) if PORTS["clock"] else None
    seen = {{}}

    def look(kind):
        """Whether an output has had another value at an earlier look of this kind."""
        for name, handle in outputs:
            value = str(handle.value)
            if set(value) <= {{"0", "1"}} and seen.setdefault((kind, name), value) != value:
                return True
        return False

    density = [0.5] * len(inputs)
    await Timer(APART)
    for cycle in range(CYCLES):
        if cycle % 50 == 0:
            # For a while each single bit is mostly high or mostly low: resets of either level are let go, enables stay.
            density = [rng.choice((0.05, 0.5, 0.95)) for _ in inputs]
        for (handle, width), high in zip(inputs, density):
            handle.value = rng.getrandbits(width) if width > 1 else int(rng.random() < high)
        if clock is not None:
            clock.value = 0
            await Timer(APART)
            if look("before the edge"):
                return
            clock.value = 1
        # At the end of this very time step: what a design does between the edges is not looked at.
        await ReadOnly()
        if look("after it"):
            return
        await Timer(APART)
    raise AssertionError("no output moves")
'''
ACTIVITY_RUNNER = '''\
"""Builds the design with Icarus and runs the test beside it."""

import json

from cocotb_tools.runner import get_runner

settings = json.loads({settings!r})
runner = get_runner("icarus")
runner.build(sources=settings["sources"], hdl_toplevel=settings["top"], includes=["/code/rtl"], always=True)
runner.test(hdl_toplevel=settings["top"], test_module="activity")
'''


def activity_check(
    top: str, sources: Sequence[str], ports: Sequence[Port], pacer: str
) -> tuple[dict[str, str], Step] | None:
    """Return the harness files and the command of the activity check; None if no output or no input's width is known.

    `sources` are absolute paths inside the workspace; `pacer` is the input that the harness changed most, or empty.
    """
    inputs = [(port.name, port.width) for port in ports if port.direction == "input" and port.width]
    clock = pacer if (pacer, 1) in inputs else ""
    outputs = [port.name for port in ports if port.direction == "output"]
    if not inputs or not outputs:
        return None
    given = {"inputs": [entry for entry in inputs if entry[0] != clock], "outputs": outputs, "clock": clock}
    files = {
        "src/activity.py": ACTIVITY_TEST.format(ports=json.dumps(given)),
        "src/run_activity.py": ACTIVITY_RUNNER.format(settings=json.dumps({"sources": list(sources), "top": top})),
    }
    return files, Step("activity", ("python3", "/code/src/run_activity.py"), env={"PYTHONPATH": "/code/src"})
