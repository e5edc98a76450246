"""Combinational bit patterns: bitwise logic, parity, Gray code."""

from __future__ import annotations

from typing import Any

from rtl_core.problems.starter.spec import Family, Signal, Spec

OPERATORS = {"and": "&", "or": "|", "xor": "^"}


class BitwiseLogic(Family):
    """One bitwise operation on two words."""

    name = "logic"
    difficulty = "easy"
    roles = ("a", "b", "y")
    options = ("and", "or", "xor")
    textbook_module = "gates"

    def describe(self, spec: Spec) -> str:
        a, b, y = spec.ports
        return f"bitwise {spec.option}. Inputs {a}, {b}, {spec.width} bits. Output {y}."

    def signals(self, spec: Spec) -> list[Signal]:
        a, b, y = spec.ports
        return [Signal(a, "input", spec.width), Signal(b, "input", spec.width), Signal(y, "output", spec.width)]

    def body(self, spec: Spec) -> str:
        a, b, y = spec.ports
        return f"  assign {y} = {a} {OPERATORS[spec.option]} {b};\n"

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        a, b = inputs
        return state, ({"and": a & b, "or": a | b, "xor": a ^ b}[option],)


class Parity(Family):
    """The bit that makes the number of ones even or odd."""

    name = "parity"
    difficulty = "easy"
    roles = ("data", "p")
    options = ("even", "odd")
    textbook_option = "even"
    textbook_module = "parity"

    def describe(self, spec: Spec) -> str:
        data, y = spec.ports
        return f"{spec.option} parity bit. Input {data}, {spec.width} bits. Output {y}."

    def signals(self, spec: Spec) -> list[Signal]:
        data, y = spec.ports
        return [Signal(data, "input", spec.width), Signal(y, "output")]

    def body(self, spec: Spec) -> str:
        data, y = spec.ports
        return f"  assign {y} = {'~^' if spec.option == 'odd' else '^'}{data};\n"

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        return state, ((inputs[0].bit_count() + (option == "odd")) % 2,)


class Gray(Family):
    """Binary to Gray code, or back."""

    name = "gray"
    difficulty = "medium"
    roles = ("bin", "gray")
    options = ("binary to gray", "gray to binary")
    textbook_option = "binary to gray"
    textbook_module = "gray"

    def describe(self, spec: Spec) -> str:
        word, y = spec.ports
        return f"{spec.option}. Input {word}, {spec.width} bits. Output {y}."

    def signals(self, spec: Spec) -> list[Signal]:
        word, y = spec.ports
        output = Signal(y, "output" if spec.option == "binary to gray" else "output reg", spec.width)
        return [Signal(word, "input", spec.width), output]

    def body(self, spec: Spec) -> str:
        word, y = spec.ports
        if spec.option == "binary to gray":
            return f"  assign {y} = {word} ^ ({word} >> 1);\n"
        loop = f"for (k = 0; k < {spec.width}; k = k + 1)"
        return f"  integer k;\n  always @(*) begin\n    {loop} {y}[k] = ^({word} >> k);\n  end\n"

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        word = inputs[0]
        if option == "binary to gray":
            return state, (word ^ (word >> 1),)
        binary = 0
        for shift in range(width):
            binary ^= word >> shift
        return state, (binary,)
