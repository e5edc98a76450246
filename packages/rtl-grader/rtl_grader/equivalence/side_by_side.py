"""Generate the Icarus test bench that runs a golden answer and another one side by side.

The benches are templates in `benches/`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rtl_grader.types.problem import Interface
from rtl_grader.verilog_templates import verilog_templates

Values = Mapping[str, int]
"""Parameter -> its value in an instance."""
Trace = Sequence[Mapping[str, int]]
"""Values of all inputs, by step."""
SETTLE = 100
"""Nanoseconds from a change of inputs to the comparison, so that nonblocking assignments with usual delays are done."""
PHASES = 12
STRETCHES = 8

_TEMPLATES = verilog_templates(Path(__file__).parent / "benches")


@dataclass(frozen=True)
class Effort:
    """How much is tried before two designs are called the same."""

    exhaustive_bits: int = 12
    """Combinational designs with at most this many input bits are tested exhaustively."""
    vectors: int = 4000
    """Random patterns for the others."""
    cycles: int = 160
    """Clock cycles of each of the twelve phases with resets now and then."""
    stretch: int = 300
    """Clock cycles of each of the eight stretches without a reset, inputs mostly held."""
    run: int = 24_000
    """Clock cycles of each of two runs without a reset, with single bits held at 1: a counter of 14 bits wraps."""
    parameter_sets: int = 4
    """Number of other parameter values to try."""
    cpu_s: float = 20.0
    """CPU time of each simulation."""
    proof_cpu_s: float = 0.0
    """CPU time of each proof for designs that were not told apart; 0 means none."""
    proof_first: bool = False
    """Prove before simulating, and simulate only what is not decided."""

    @classmethod
    def of_cycles(
        cls, cycles: int, parameter_sets: int = 6, proof_cpu_s: float = 0.0
    ) -> Effort:
        """Two runs of `cycles` clock cycles for each set of parameters, and half as many in phases and in
        stretches; or as many random patterns."""
        return cls(
            exhaustive_bits=16,
            vectors=cycles,
            cycles=max(8, cycles // (2 * PHASES)),
            stretch=max(8, cycles // (2 * STRETCHES)),
            run=cycles,
            parameter_sets=parameter_sets,
            cpu_s=20.0 + cycles / 200,
            proof_cpu_s=proof_cpu_s,
        )


USUAL = Effort()


def bench(
    interface: Interface,
    clocks: Sequence[str],
    resets: Sequence[str],
    low: Collection[str],
    nonce: str,
    values: Values | None = None,
    effort: Effort = USUAL,
    valid: str | None = None,
) -> str:
    """The side-by-side test bench in SystemVerilog.

    Args:
        interface: the ports as they are with the parameters at `values`; all widths are known.
        low: those of `resets` that are active low.
        valid: compare the values of outputs while this one is 1, in order, regardless of time.
        nonce: prefix of the bench's verdict.
    """
    ports = {port.name: port for port in interface.ports if port.direction == "input"}
    data = [port for name, port in ports.items() if name not in clocks and name not in resets]
    return _TEMPLATES.get_template("random.sv.jinja").render(
        _sides(interface, nonce, values or {}),
        clocks=[ports[name] for name in clocks],
        resets=[ports[name] for name in resets],
        low=low,
        data=data,
        single_bits=[at for at, port in enumerate(data) if port.width == 1],
        effort=effort,
        phases=PHASES,
        stretches=STRETCHES,
        valid=valid,
    )


def hidden(name: str, nonce: str) -> str:
    """A name for a module that the other design cannot guess. It does not contain the nonce, because a
    design can print its path (`%m`)."""
    return f"{name}__{hashlib.sha256(nonce.encode()).hexdigest()[:16]}"


def replay(
    interface: Interface,
    nonce: str,
    values: Values,
    trace: Trace,
    clocks: Sequence[str],
    clock: tuple[str, bool] | None,
) -> str:
    """The bench that drives only the inputs of `trace`. Only different values count; with `clocks` an X does not.

    Args:
        clocks: possible clocks. A register samples the inputs before the step in which its clock changes.
        clock: the only clock of both designs, and whether its rising edge counts; then each step is a cycle of it.
    """
    if clock:
        name, rises = clock
        trace = [{**step, name: int(not rises)} for step in trace]
    return _TEMPLATES.get_template("replay.sv.jinja").render(
        _sides(interface, nonce, values),
        clocks=clocks,
        cycle_of=clock,
        trace=trace,
        widths={port.name: port.width for port in interface.ports},
        valid=None,
    )


def _sides(interface: Interface, nonce: str, values: Values) -> dict[str, Any]:
    """What both kinds of bench need to instantiate the two designs."""
    return {
        "module": interface.module,
        "inputs": [port for port in interface.ports if port.direction == "input"],
        "outputs": [port for port in interface.ports if port.direction == "output"],
        "values": values,
        "nonce": nonce,
        "hidden": partial(hidden, nonce=nonce),
        "settle": SETTLE,
    }
