"""Clocked words: counter, register with enable, shift register, toggle, accumulator."""

from __future__ import annotations

from typing import Any

from rtl_core.problems.starter.spec import Family, Signal, Spec, clocked


class Counter(Family):
    """Up or down counter with enable, wrapping."""

    name = "counter"
    difficulty = "medium"
    roles = ("en", "q")
    options = ("up", "down")
    textbook_option = "up"
    textbook_module = "counter"
    sequential = True

    def describe(self, spec: Spec) -> str:
        enable, q = spec.ports
        return f"{spec.option} counter. Enable {enable}. Output {q}, {spec.width} bits."

    def signals(self, spec: Spec) -> list[Signal]:
        enable, q = spec.ports
        return [Signal(enable, "input"), Signal(q, "output reg", spec.width)]

    def body(self, spec: Spec) -> str:
        enable, q = spec.ports
        return clocked(spec, q, f"if ({enable}) {q} <= {q} {'-' if spec.option == 'down' else '+'} 1;")

    def bursts(self, spec: Spec) -> list[tuple[tuple[int, ...], int]]:
        return [((1,), 1 << spec.width)]

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        step = inputs[0] if option == "up" else -inputs[0]
        return (state + step) & ((1 << width) - 1), (state,)


class EnabledRegister(Family):
    """A register that loads when enabled."""

    name = "register"
    difficulty = "medium"
    roles = ("en", "d", "q")
    textbook_module = "register"
    sequential = True

    def describe(self, spec: Spec) -> str:
        enable, d, q = spec.ports
        return f"register. Enable {enable}. Input {d}, {spec.width} bits. Output {q}."

    def signals(self, spec: Spec) -> list[Signal]:
        enable, d, q = spec.ports
        return [Signal(enable, "input"), Signal(d, "input", spec.width), Signal(q, "output reg", spec.width)]

    def body(self, spec: Spec) -> str:
        enable, d, q = spec.ports
        return clocked(spec, q, f"if ({enable}) {q} <= {d};")

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        enable, d = inputs
        return (d if enable else state), (state,)


class ShiftRegister(Family):
    """Serial in, parallel out; the new bit enters at the right (left shift) or at the left (right shift)."""

    name = "shift"
    difficulty = "medium"
    roles = ("din", "q")
    options = ("left", "right")
    textbook_option = "left"
    textbook_module = "shift_reg"
    sequential = True

    def describe(self, spec: Spec) -> str:
        serial, q = spec.ports
        return f"shift {spec.option} register. Serial input {serial}. Output {q}, {spec.width} bits."

    def signals(self, spec: Spec) -> list[Signal]:
        serial, q = spec.ports
        return [Signal(serial, "input"), Signal(q, "output reg", spec.width)]

    def body(self, spec: Spec) -> str:
        serial, q = spec.ports
        shifted = f"{{{q}, {serial}}}" if spec.option == "left" else f"{{{serial}, {q}}} >> 1"
        return clocked(spec, q, f"{q} <= {shifted};")

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        serial = inputs[0]
        if option == "left":
            return ((state << 1) | serial) & ((1 << width) - 1), (state,)
        return (state >> 1) | (serial << (width - 1)), (state,)


class Toggle(Family):
    """A register each bit of which flips when its input bit is high."""

    name = "toggle"
    difficulty = "easy"
    roles = ("t", "q")
    textbook_module = "toggle"
    sequential = True

    def describe(self, spec: Spec) -> str:
        t, q = spec.ports
        return f"toggle flip flops. Input {t}, {spec.width} bits. Output {q}."

    def signals(self, spec: Spec) -> list[Signal]:
        t, q = spec.ports
        return [Signal(t, "input", spec.width), Signal(q, "output reg", spec.width)]

    def body(self, spec: Spec) -> str:
        t, q = spec.ports
        return clocked(spec, q, f"{q} <= {q} ^ {t};")

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        return state ^ inputs[0], (state,)


class Accumulator(Family):
    """Adds its input when enabled, wrapping."""

    name = "accumulator"
    difficulty = "medium"
    roles = ("en", "d", "q")
    textbook_module = "accumulator"
    sequential = True

    def describe(self, spec: Spec) -> str:
        enable, d, q = spec.ports
        return f"accumulator. Enable {enable}. Input {d}, {spec.width} bits. Output {q}, {spec.width} bits."

    def signals(self, spec: Spec) -> list[Signal]:
        enable, d, q = spec.ports
        return [Signal(enable, "input"), Signal(d, "input", spec.width), Signal(q, "output reg", spec.width)]

    def body(self, spec: Spec) -> str:
        enable, d, q = spec.ports
        return clocked(spec, q, f"if ({enable}) {q} <= {q} + {d};")

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        enable, d = inputs
        return ((state + d) & ((1 << width) - 1) if enable else state), (state,)
