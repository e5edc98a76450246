"""Combinational arithmetic: adder, saturating adder, comparator, minimum and maximum."""

from __future__ import annotations

from typing import Any

from rtl_core.problems.starter.spec import Family, Signal, Spec

RELATIONS = {"<": "less than", ">": "greater than", "==": "equal", "<=": "less or equal", ">=": "greater or equal"}


class Adder(Family):
    """Unsigned sum, with or without a carry output."""

    name = "adder"
    difficulty = "easy"
    roles = ("a", "b", "sum", "cout")
    options = ("carry", "plain")
    textbook_option = "carry"
    textbook_module = "adder"

    def describe(self, spec: Spec) -> str:
        a, b, y, carry = spec.ports
        text = f"adder. Inputs {a}, {b}, {spec.width} bits. Output {y}, {spec.width} bits."
        return text + (f" Carry {carry}." if spec.option == "carry" else "")

    def signals(self, spec: Spec) -> list[Signal]:
        a, b, y, carry = spec.ports
        ports = [Signal(a, "input", spec.width), Signal(b, "input", spec.width), Signal(y, "output", spec.width)]
        return ports + ([Signal(carry, "output")] if spec.option == "carry" else [])

    def body(self, spec: Spec) -> str:
        a, b, y, carry = spec.ports
        left = f"{{{carry}, {y}}}" if spec.option == "carry" else y
        return f"  assign {left} = {a} + {b};\n"

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        total = inputs[0] + inputs[1]
        low = total & ((1 << width) - 1)
        return state, (low, total >> width) if option == "carry" else (low,)


class SaturatingAdder(Family):
    """Unsigned sum or difference that stays at the largest or smallest value instead of wrapping."""

    name = "saturating"
    difficulty = "medium"
    roles = ("a", "b", "y")
    options = ("adder", "subtractor")
    textbook_option = "adder"
    textbook_module = "sat_add"

    def describe(self, spec: Spec) -> str:
        a, b, y = spec.ports
        return f"saturating {spec.option}. Inputs {a}, {b}, {spec.width} bits. Output {y}."

    def signals(self, spec: Spec) -> list[Signal]:
        a, b, y = spec.ports
        return [Signal(a, "input", spec.width), Signal(b, "input", spec.width), Signal(y, "output", spec.width)]

    def body(self, spec: Spec) -> str:
        a, b, y = spec.ports
        if spec.option == "subtractor":
            return f"  assign {y} = ({a} > {b}) ? {a} - {b} : 0;\n"
        return (
            f"  wire [{spec.width - 1}:0] s;\n  wire c;\n  assign {{c, s}} = {a} + {b};\n  assign {y} = c ? ~0 : s;\n"
        )

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        a, b = inputs
        return state, (max(a - b, 0) if option == "subtractor" else min(a + b, (1 << width) - 1),)


class Comparator(Family):
    """One relation between two unsigned numbers."""

    name = "comparator"
    difficulty = "easy"
    roles = ("a", "b", "y")
    options = ("<", ">", "==", "<=", ">=")
    textbook_module = "comparator"

    def describe(self, spec: Spec) -> str:
        a, b, y = spec.ports
        return f"compare {RELATIONS[spec.option]}. Inputs {a}, {b}, {spec.width} bits. Output {y}."

    def signals(self, spec: Spec) -> list[Signal]:
        a, b, y = spec.ports
        return [Signal(a, "input", spec.width), Signal(b, "input", spec.width), Signal(y, "output")]

    def body(self, spec: Spec) -> str:
        a, b, y = spec.ports
        return f"  assign {y} = {a} {spec.option} {b};\n"

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        a, b = inputs
        return state, (int({"<": a < b, ">": a > b, "==": a == b, "<=": a <= b, ">=": a >= b}[option]),)


class MinMax(Family):
    """The smaller or the larger of two unsigned numbers."""

    name = "minmax"
    difficulty = "easy"
    roles = ("a", "b", "y")
    options = ("minimum", "maximum")
    textbook_module = "minmax"

    def describe(self, spec: Spec) -> str:
        a, b, y = spec.ports
        return f"{spec.option}. Inputs {a}, {b}, {spec.width} bits. Output {y}."

    def signals(self, spec: Spec) -> list[Signal]:
        a, b, y = spec.ports
        return [Signal(a, "input", spec.width), Signal(b, "input", spec.width), Signal(y, "output", spec.width)]

    def body(self, spec: Spec) -> str:
        a, b, y = spec.ports
        return f"  assign {y} = ({a} {'<' if spec.option == 'minimum' else '>'} {b}) ? {a} : {b};\n"

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        return state, (min(inputs) if option == "minimum" else max(inputs),)
