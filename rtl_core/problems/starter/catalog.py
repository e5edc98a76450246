"""The list of starter families, by tier, easy ones first. A new family is one class and one line here."""

from __future__ import annotations

from rtl_core.problems.starter.families import (
    arbitration,
    arithmetic,
    bitwise,
    buffers,
    detectors,
    machines,
    parameterised,
    registers,
    selection,
)
from rtl_core.problems.starter.spec import Family, Tier

FAMILIES: dict[Tier, tuple[Family, ...]] = {
    "starter": (
        bitwise.BitwiseLogic(),
        arithmetic.Adder(),
        selection.Mux(),
        arithmetic.Comparator(),
        arithmetic.MinMax(),
        bitwise.Parity(),
        registers.Toggle(),
        bitwise.Gray(),
        arithmetic.SaturatingAdder(),
        selection.Decoder(),
        registers.Counter(),
        registers.EnabledRegister(),
        registers.ShiftRegister(),
        registers.Accumulator(),
        detectors.EdgeDetector(),
        detectors.SequenceDetector(),
        selection.PriorityEncoder(),
        selection.FixedPriorityArbiter(),
    ),
    "hard": (
        machines.Divider(),
        machines.PulseStretcher(),
        machines.Handshake(),
        parameterised.ScaledArithmetic(),
        buffers.Pipeline(),
        arbitration.RoundRobin(),
        buffers.Fifo(),
    ),
}

BY_NAME: dict[str, Family] = {family.name: family for tier in FAMILIES.values() for family in tier}
