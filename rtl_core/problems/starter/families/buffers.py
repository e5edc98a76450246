"""Hard tier: words that wait. Two-stage pipeline, synchronous FIFO."""

from __future__ import annotations

from typing import Any

from rtl_core.problems.starter.spec import Family, Signal, Spec, clocked_block, clog2

OPERATORS = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}


class Pipeline(Family):
    """Two registered stages: the first combines a and b, the second the result with c of the same cycle."""

    name = "pipeline"
    difficulty = "hard"
    roles = ("a", "b", "c", "y")
    options = ("add then sub", "add then and", "add then xor", "sub then add", "sub then or", "xor then add")
    textbook_option = "add then sub"
    textbook_module = "pipeline"
    sequential = True
    reset_state = (0, 0, 0)

    def describe(self, spec: Spec) -> str:
        a, b, c, y = spec.ports
        return f"two stage pipeline, {spec.option}. Inputs {a}, {b}, {c}, {spec.width} bits. Output {y}."

    def signals(self, spec: Spec) -> list[Signal]:
        a, b, c, y = spec.ports
        return [*(Signal(name, "input", spec.width) for name in (a, b, c)), Signal(y, "output reg", spec.width)]

    def body(self, spec: Spec) -> str:
        a, b, c, y = spec.ports
        first, second = (OPERATORS[word] for word in spec.option.split(" then "))
        updates = (f"s <= {a} {first} {b};", f"z <= {c};", f"{y} <= s {second} z;")
        return f"  reg [{spec.width - 1}:0] s, z;\n" + clocked_block(spec, ("s", "z", y), updates)

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        def apply(word: str, left: int, right: int) -> int:
            results = {"add": left + right, "sub": left - right, "and": left & right, "or": left | right}
            return results.get(word, left ^ right) & ((1 << width) - 1)

        first, second = option.split(" then ")
        a, b, c = inputs
        partial, waiting, result = state
        return (apply(first, a, b), c, apply(second, partial, waiting)), (result,)


class Fifo(Family):
    """First in, first out, with full and empty flags; a push when full and a pop when empty are ignored.

    The option is the depth. The oldest word shows at the output, which is 0 when empty.
    """

    name = "fifo"
    difficulty = "hard"
    roles = ("push", "pop", "din", "dout", "full", "empty")
    options = ("2", "4", "8")
    textbook_option = "8"
    textbook_module = "sync_fifo"
    sequential = True
    reset_state = ()

    def describe(self, spec: Spec) -> str:
        push, pop, data, y, full, empty = spec.ports
        return (
            f"fifo, depth {spec.option}. Push {push}. Pop {pop}. Input {data}, {spec.width} bits. "
            f"Output {y}, 0 if empty. Full {full}. Empty {empty}."
        )

    def signals(self, spec: Spec) -> list[Signal]:
        push, pop, data, y, full, empty = spec.ports
        return [
            Signal(push, "input"),
            Signal(pop, "input"),
            Signal(data, "input", spec.width),
            Signal(y, "output", spec.width),
            Signal(full, "output"),
            Signal(empty, "output"),
        ]

    def body(self, spec: Spec) -> str:
        push, pop, data, y, full, empty = spec.ports
        depth = int(spec.option)
        pointer = f"[{clog2(depth) - 1}:0] " if depth > 2 else ""
        updates = (
            f"if (i) m[w] <= {data};",
            "w <= w + i;",
            "r <= r + o;",
            "c <= c + i - o;",
        )
        return (
            f"  reg [{spec.width - 1}:0] m [0:{depth - 1}];\n"
            f"  reg {pointer}w, r;\n"
            f"  reg [{clog2(depth)}:0] c;\n"
            f"  wire i = {push} & !{full};\n"
            f"  wire o = {pop} & !{empty};\n"
            f"  assign {full} = c == {depth};\n"
            f"  assign {empty} = c == 0;\n"
            f"  assign {y} = {empty} ? 0 : m[r];\n"
        ) + clocked_block(spec, ("w", "r", "c"), updates)

    @staticmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        push, pop, data = inputs
        full, empty = len(state) == int(option), not state
        words = state[1:] if pop and not empty else state
        words = (*words, data) if push and not full else words
        return words, (0 if empty else state[0], int(full), int(empty))
