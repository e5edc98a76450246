"""Small clocked machines that watch their input: edge detector, bit-sequence detector."""

from __future__ import annotations

from typing import Any

from rtl_core.problems.starter.spec import Family, Signal, Spec, clocked


class EdgeDetector(Family):
    """Per bit, high as long as the input differs in the asked direction from what it was at the last rising clock edge."""

    name = "edge"
    difficulty = "medium"
    roles = ("d", "pulse")
    options = ("rising", "falling")
    textbook_option = "rising"
    textbook_module = "edge_detector"
    sequential = True

    def describe(self, spec: Spec) -> str:
        d, pulse = spec.ports
        return f"{spec.option} edge detector. Input {d}, {spec.width} bits. Output {pulse}."

    def signals(self, spec: Spec) -> list[Signal]:
        d, pulse = spec.ports
        return [Signal(d, "input", spec.width), Signal(pulse, "output", spec.width)]

    def body(self, spec: Spec) -> str:
        d, pulse = spec.ports
        found = f"~{d} & z" if spec.option == "falling" else f"{d} & ~z"
        return f"  reg [{spec.width - 1}:0] z;\n" + clocked(spec, "z", f"z <= {d};") + f"  assign {pulse} = {found};\n"

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        d = inputs[0]
        return d, (state & ~d if option == "falling" else d & ~state,)


class SequenceDetector(Family):
    """A state machine whose state is the last bits seen; its output is high while they are the pattern (overlaps count).

    Patterns start with a 1, so that the zeros of a reset never count as seen bits.
    """

    name = "sequence"
    difficulty = "hard"
    roles = ("d", "found")
    options = ("10", "11", "100", "101", "110", "111")
    textbook_option = "101"
    textbook_module = "seq_detector"
    widths = (1,)
    sequential = True

    def describe(self, spec: Spec) -> str:
        d, found = spec.ports
        return f"sequence detector of last bits {spec.option}. Input {d}. Output {found}."

    def signals(self, spec: Spec) -> list[Signal]:
        d, found = spec.ports
        return [Signal(d, "input"), Signal(found, "output")]

    def body(self, spec: Spec) -> str:
        d, found = spec.ports
        bits = len(spec.option)
        return (
            f"  reg [{bits - 1}:0] z;\n"
            + clocked(spec, "z", f"z <= {{z, {d}}};")
            + f"  assign {found} = z == {bits}'b{spec.option};\n"
        )

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        seen = ((state << 1) | inputs[0]) & ((1 << len(option)) - 1)
        return seen, (int(state == int(option, 2)),)
