"""Hard tier: arithmetic whose widths follow from a module parameter."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rtl_core.problems.starter import names
from rtl_core.problems.starter.spec import Family, Signal, Spec


class ScaledArithmetic(Family):
    """Full-precision unsigned sum, product, or product plus sum, with a parameter for the width of the inputs.

    The parameter's name is the last role; its default is the width.
    """

    name = "scaled"
    difficulty = "hard"
    roles = ("a", "b", "y", "WIDTH")
    options = ("sum", "product", "square sum")
    textbook_option = "product"
    textbook_module = "multiplier"
    widths = tuple(range(2, 13))

    def describe(self, spec: Spec) -> str:
        a, b, y, parameter = spec.ports
        bits = f"{parameter} + 1" if spec.option == "sum" else f"2 * {parameter}"
        return (
            f"full precision {self._value(spec)}. Parameter {parameter}, default {spec.width}. "
            f"Inputs {a}, {b}, {parameter} bits. Output {y}, {bits} bits."
        )

    def signals(self, spec: Spec) -> list[Signal]:
        a, b, y, _ = spec.ports
        bits = spec.width + 1 if spec.option == "sum" else 2 * spec.width
        return [Signal(a, "input", spec.width), Signal(b, "input", spec.width), Signal(y, "output", bits)]

    def code(self, spec: Spec) -> str:
        a, b, y, parameter = spec.ports
        top = parameter if spec.option == "sum" else f"2 * {parameter} - 1"
        return (
            f"module {spec.module} #(parameter {parameter} = {spec.width})"
            f"(input [{parameter} - 1:0] {a}, input [{parameter} - 1:0] {b}, output [{top}:0] {y});\n"
            f"{self.body(spec)}endmodule\n"
        )

    def body(self, spec: Spec) -> str:
        return f"  assign {spec.ports[2]} = {self._value(spec)};\n"

    def parameter(self, spec: Spec) -> str:
        return spec.ports[3]

    def _value(self, spec: Spec) -> str:
        a, b, _, _ = spec.ports
        return {"sum": f"{a} + {b}", "product": f"{a} * {b}", "square sum": f"{a} * {a} + {b}"}[spec.option]

    def draw(self, rng: random.Random, widths: Sequence[int], modules: Sequence[str]) -> Spec:
        spec = super().draw(rng, widths, modules)
        return replace(spec, ports=(*spec.ports[:3], rng.choice(names.PARAMETERS)))

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        a, b = inputs
        return state, ({"sum": a + b, "product": a * b, "square sum": a * a + b}[option],)
