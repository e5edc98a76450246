"""What one starter problem asks (`Spec`), what its ports are (`Signal`), and what a family of them must know (`Family`)."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from rtl_core.problems.starter import names
from rtl_core.types.problem import Difficulty

Split = Literal["train", "heldout", "test"]
Tier = Literal["starter", "hard"]

WIDTHS = tuple(range(2, 17))
TEXTBOOK_WIDTH = 8
DOCUMENT = "docs/specification.md"
"""Where the specification stands, of problems whose prompt does not hold it."""


@dataclass(frozen=True)
class Signal:
    """One port. `kind` is as it stands in the header; `reg` only says how the golden answer drives the output."""

    name: str
    kind: Literal["input", "output", "output reg"]
    width: int = 1

    @property
    def is_input(self) -> bool:
        return self.kind == "input"

    def __str__(self) -> str:
        return f"{self.kind} [{self.width - 1}:0] {self.name}" if self.width > 1 else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Spec:
    """One specification: all that can differ between two problems of one family.

    `ports` are names by the family's roles, without clock and reset. `asynchronous`, `active_low`, `clock` and `reset`
    mean nothing for a combinational family.
    """

    family: str
    module: str
    ports: tuple[str, ...]
    width: int
    option: str
    clock: str = "clk"
    reset: str = "rst_n"
    active_low: bool = True
    asynchronous: bool = True


def clocking(spec: Spec) -> str:
    """What a prompt says of clock and reset."""
    kind = "async" if spec.asynchronous else "sync"
    level = "low" if spec.active_low else "high"
    return f"Clock {spec.clock}. Reset {spec.reset}, {kind}, active {level}."


class Family(ABC):
    """A kind of design from which specifications are drawn. A new family is one subclass and one line in `catalog.py`.

    A subclass gives the class variables and `describe`, `signals`, `body` and `reference`. `reference` is the design
    once more, in Python: the harness carries its source text, so it may use nothing but its arguments and builtins.
    """

    name: ClassVar[str]
    difficulty: ClassVar[Difficulty]
    roles: ClassVar[tuple[str, ...]]
    """Textbook port names in the order of the header, without clock and reset."""
    options: ClassVar[tuple[str, ...]] = ("",)
    """The variants of behaviour (bit order, operator, ...)."""
    textbook_option: ClassVar[str | None] = None
    """The option that a textbook would show, or None where every option is as common."""
    textbook_module: ClassVar[str]
    widths: ClassVar[tuple[int, ...]] = WIDTHS
    """Data widths in bits. Always holds 8, the textbook's, or is `(1,)` for a family without a width."""
    sequential: ClassVar[bool] = False
    """Whether the design has a clock and a reset."""
    reset_state: ClassVar[Any] = 0
    """State of the reference model after a reset."""

    @abstractmethod
    def describe(self, spec: Spec) -> str:
        """The specification in short English, without module name, clock and reset."""

    @abstractmethod
    def signals(self, spec: Spec) -> list[Signal]:
        """Data ports in the order of the header, without clock and reset."""

    @abstractmethod
    def body(self, spec: Spec) -> str:
        """The golden answer between header and `endmodule`, lines indented by two and ended by a newline."""

    @staticmethod
    @abstractmethod
    def reference(width: int, option: str, state: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
        """(state after the next rising edge, outputs now), from the state and the inputs now, both in header order."""

    def bursts(self, spec: Spec) -> list[tuple[tuple[int, ...], int]]:
        """(inputs, clock cycles) by which the design goes through all its states once while these inputs are held.

        For states that a thousand cycles with random inputs do not reach.
        """
        return []

    def parameter(self, spec: Spec) -> str | None:
        """The module parameter that sets the width, where the specification asks for one."""
        return None

    def prompt(self, spec: Spec) -> str:
        """The whole prompt: module, behaviour, ports with widths, clock and reset."""
        text = f"Module {spec.module}: {self.describe(spec)}"
        return f"{text} {clocking(spec)}" if self.sequential else text

    def pointer(self, spec: Spec) -> str:
        """The prompt where the specification stands in a document: the kind of design, and the file to write."""
        return f"Write rtl/{spec.module}.sv, a {self.textbook_module} as {DOCUMENT} says."

    def header(self, spec: Spec) -> list[Signal]:
        """All ports in the order of the header."""
        clocking = [Signal(spec.clock, "input"), Signal(spec.reset, "input")] if self.sequential else []
        return clocking + self.signals(spec)

    def code(self, spec: Spec) -> str:
        """The golden answer, one Verilog module."""
        header = ", ".join(str(signal) for signal in self.header(spec))
        return f"module {spec.module}({header});\n{self.body(spec)}endmodule\n"

    def textbook(self, spec: Spec) -> Spec:
        """The specification that a textbook would answer instead: its names, 8 bits, `rst_n` asynchronous active low."""
        option = spec.option if self.textbook_option is None else self.textbook_option
        width = TEXTBOOK_WIDTH if TEXTBOOK_WIDTH in self.widths else spec.width
        return Spec(self.name, self.textbook_module, self.roles, width, option)

    def draw(self, rng: random.Random, widths: Sequence[int], modules: Sequence[str]) -> Spec:
        """A random specification with one of the given widths and module names."""
        active_low = rng.random() < 0.5
        spec = Spec(
            family=self.name,
            module=rng.choice(modules),
            ports=names.draw_ports(rng, len(self.roles)),
            width=rng.choice(widths),
            option=rng.choice(self.options),
        )
        if not self.sequential:
            return spec
        return replace(
            spec,
            clock=rng.choice(names.CLOCKS),
            reset=rng.choice(names.RESETS_LOW if active_low else names.RESETS_HIGH),
            active_low=active_low,
            asynchronous=rng.random() < 0.5,
        )


def clog2(value: int) -> int:
    """Bits that number `value` things, at least 1."""
    return max(1, (value - 1).bit_length())


def clocked(spec: Spec, register: str, update: str) -> str:
    """An always block that clears `register` on the reset that the specification asks for, else runs `update`."""
    return _always(spec, f"{register} <= 0;", update)


def clocked_block(spec: Spec, registers: Sequence[str], updates: Sequence[str]) -> str:
    """The same for several registers: all cleared on reset, else all updates run."""
    clear = "begin " + " ".join(f"{register} <= 0;" for register in registers) + " end"
    return _always(spec, clear, "begin\n" + "".join(f"      {update}\n" for update in updates) + "    end")


def _always(spec: Spec, clear: str, update: str) -> str:
    sensitivity = f"posedge {spec.clock}"
    if spec.asynchronous:
        sensitivity += f" or {'negedge' if spec.active_low else 'posedge'} {spec.reset}"
    condition = f"!{spec.reset}" if spec.active_low else spec.reset
    return f"  always @({sensitivity}) begin\n    if ({condition}) {clear}\n    else {update}\n  end\n"
