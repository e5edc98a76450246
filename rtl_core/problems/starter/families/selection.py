"""Combinational choice: multiplexer, decoder, priority encoder, fixed-priority arbiter."""

from __future__ import annotations

from typing import Any

from rtl_core.problems.starter.spec import WIDTHS, Family, Signal, Spec, clog2


class Mux(Family):
    """Two-way multiplexer; which input a high select picks is part of the specification."""

    name = "mux"
    difficulty = "easy"
    roles = ("a", "b", "sel", "y")
    options = ("second", "first")
    textbook_option = "second"
    textbook_module = "mux"

    def describe(self, spec: Spec) -> str:
        a, b, select, y = spec.ports
        return f"mux. Inputs {a}, {b}, {spec.width} bits. Select {select}, high picks {spec.option}. Output {y}."

    def signals(self, spec: Spec) -> list[Signal]:
        a, b, select, y = spec.ports
        data = [Signal(a, "input", spec.width), Signal(b, "input", spec.width)]
        return [*data, Signal(select, "input"), Signal(y, "output", spec.width)]

    def body(self, spec: Spec) -> str:
        a, b, select, y = spec.ports
        high, low = (b, a) if spec.option == "second" else (a, b)
        return f"  assign {y} = {select} ? {high} : {low};\n"

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        a, b, select = inputs
        return state, (b if bool(select) == (option == "second") else a,)


class Decoder(Family):
    """Number to one-hot (or one-cold); numbers beyond the last output select none."""

    name = "decoder"
    difficulty = "medium"
    roles = ("in", "out")
    options = ("high", "low")
    textbook_option = "high"
    textbook_module = "decoder"
    widths = WIDTHS[1:]

    def describe(self, spec: Spec) -> str:
        number, y = spec.ports
        bits = clog2(spec.width)
        return f"decoder, active {spec.option}. Input {number}, {bits} bits. Output {y}, {spec.width} bits."

    def signals(self, spec: Spec) -> list[Signal]:
        number, y = spec.ports
        return [Signal(number, "input", clog2(spec.width)), Signal(y, "output", spec.width)]

    def body(self, spec: Spec) -> str:
        number, y = spec.ports
        return f"  assign {y} = " + (f"~(1 << {number});\n" if spec.option == "low" else f"1 << {number};\n")

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        ones = (1 << width) - 1
        hot = (1 << inputs[0]) & ones
        return state, (hot ^ ones if option == "low" else hot,)


class PriorityEncoder(Family):
    """Number of the highest or lowest bit that is set; 0 when none is."""

    name = "priority_encoder"
    difficulty = "hard"
    roles = ("in", "out")
    options = ("highest", "lowest")
    textbook_option = "highest"
    textbook_module = "priority_encoder"
    widths = WIDTHS[1:]

    def describe(self, spec: Spec) -> str:
        word, y = spec.ports
        return (
            f"priority encoder, {spec.option} bit first. Input {word}, {spec.width} bits. "
            f"Output {y}, {clog2(spec.width)} bits, 0 if none."
        )

    def signals(self, spec: Spec) -> list[Signal]:
        word, y = spec.ports
        return [Signal(word, "input", spec.width), Signal(y, "output reg", clog2(spec.width))]

    def body(self, spec: Spec) -> str:
        word, y = spec.ports
        return priority_loop(spec.width, spec.option, f"{y} = 0;", f"if ({word}[k]) {y} = k;")

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        word = inputs[0]
        hot = word if option == "highest" else word & -word
        return state, (max(hot.bit_length() - 1, 0),)


class FixedPriorityArbiter(Family):
    """One-hot grant to the highest or lowest request; none without a request."""

    name = "arbiter"
    difficulty = "hard"
    roles = ("req", "grant")
    options = ("highest", "lowest")
    textbook_option = "highest"
    textbook_module = "arbiter"

    def describe(self, spec: Spec) -> str:
        request, grant = spec.ports
        return f"priority arbiter, {spec.option} bit first. Requests {request}, {spec.width} bits. Grant {grant}."

    def signals(self, spec: Spec) -> list[Signal]:
        request, grant = spec.ports
        return [Signal(request, "input", spec.width), Signal(grant, "output reg", spec.width)]

    def body(self, spec: Spec) -> str:
        request, grant = spec.ports
        return priority_loop(spec.width, spec.option, f"{grant} = 0;", f"if ({request}[k]) {grant} = 1 << k;")

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        word = inputs[0]
        hot = word if option == "highest" else word & -word
        return state, ((1 << hot.bit_length()) >> 1,)


def priority_loop(width: int, first: str, default: str, step: str) -> str:
    """A combinational loop over bit numbers k in which the last assignment, that of the `first` bit, wins."""
    up = f"k = 0; k < {width}; k = k + 1"
    down = f"k = {width - 1}; k >= 0; k = k - 1"
    loop = up if first == "highest" else down
    return f"  integer k;\n  always @(*) begin\n    {default}\n    for ({loop}) {step}\n  end\n"
