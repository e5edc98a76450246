"""Hard tier: arbiters that remember. Round robin in either direction."""

from __future__ import annotations

from typing import Any

from rtl_core.problems.starter.spec import Family, Signal, Spec, clocked, clog2


class RoundRobin(Family):
    """One-hot grant to the next request after the last granted one, going up or down; combinational in the requests."""

    name = "round_robin"
    difficulty = "hard"
    roles = ("req", "grant")
    options = ("up", "down")
    textbook_option = "up"
    textbook_module = "rr_arbiter"
    widths = tuple(range(3, 17))
    sequential = True

    def describe(self, spec: Spec) -> str:
        request, grant = spec.ports
        return (
            f"round robin arbiter going {spec.option} from last grant, at reset bit 0. "
            f"Requests {request}, {spec.width} bits. Grant {grant}."
        )

    def signals(self, spec: Spec) -> list[Signal]:
        request, grant = spec.ports
        return [Signal(request, "input", spec.width), Signal(grant, "output reg", spec.width)]

    def body(self, spec: Spec) -> str:
        request, grant = spec.ports
        n = spec.width
        bit = f"(z + k) % {n}" if spec.option == "up" else f"(z + {n} - k) % {n}"
        return (
            f"  reg [{clog2(n) - 1}:0] z, i;\n  integer k;\n  always @(*) begin\n    {grant} = 0;\n    i = z;\n"
            f"    for (k = {n}; k > 0; k = k - 1) if ({request}[{bit}]) i = {bit};\n"
            f"    {grant}[i] = {request}[i];\n  end\n"
        ) + clocked(spec, "z", "z <= i;")

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        step = 1 if option == "up" else -1
        for distance in range(1, width + 1):
            bit = (state + step * distance) % width
            if inputs[0] >> bit & 1:
                return bit, (1 << bit,)
        return state, (0,)
