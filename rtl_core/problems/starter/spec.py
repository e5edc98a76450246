"""What one starter problem asks (`Spec`), what its ports are (`Signal`), and what a family of them must know (`Family`)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from rtl_core.problems.starter import names
from rtl_core.types.problem import Difficulty

Split = Literal["train", "heldout", "test"]
Tier = Literal["starter", "hard"]

WIDTHS = tuple(range(2, 17))
TEXTBOOK_WIDTH = 8
Words = tuple[int, ...]
Reference = TypeVar("Reference", bound=Callable[..., Any])
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


@dataclass(frozen=True, eq=False)
class Family:
    """A kind of design from which specifications are drawn. A new one is a reference model below `@easy`, `@medium` or `@hard`.

    `describe`, `body` and `parameterised` are called with the specification and its port names.
    """

    reference: Callable[[int, str, Any, Words], tuple[Any, Words]]
    """The design once more, in Python: (width, option, state, inputs) -> (state after the next rising edge, outputs now), inputs and
    outputs in header order. The harness carries its source text, so it may use nothing but its arguments and builtins.
    """
    difficulty: Difficulty
    roles: tuple[str, ...]
    """Textbook port names in the order of the header, without clock and reset."""
    textbook: tuple[str, str | None]
    """The module name and the option that a textbook would show; None where every option is as common."""
    sizes: Callable[[Spec], tuple[Words, Words]]
    """Widths in bits of the data inputs and of the outputs, both in header order."""
    describe: Callable[..., str]
    """The specification in short English, without module name, clock and reset."""
    body: Callable[..., str]
    """The golden answer between header and `endmodule`, lines indented by two and ended by a newline."""
    options: tuple[str, ...] = ("",)
    """The variants of behaviour (bit order, operator, ...)."""
    widths: tuple[int, ...] = WIDTHS
    """Data widths in bits. Always holds 8, the textbook's, or is `(1,)` for a family without a width."""
    reset_state: Any = None
    """State of the reference model after a reset; None for a combinational family."""
    bursts: Callable[[Spec], list[tuple[Words, int]]] = lambda spec: []
    """(inputs, clock cycles) by which the design goes through all its states once while these inputs are held: for states that a
    thousand cycles with random inputs do not reach.
    """
    parameterised: Callable[..., str] | None = None
    """The header of a module whose parameter, the last role, sets the width; None without one."""

    @classmethod
    def of(cls, families: list[Family], **facts: Any) -> Callable[[Reference], Reference]:
        """Adds the family of the decorated reference model to `families`."""

        def add(reference: Reference) -> Reference:
            families.append(cls(reference, **facts))
            return reference

        return add

    @property
    def name(self) -> str:
        return self.reference.__name__

    @property
    def sequential(self) -> bool:
        """Whether the design has a clock and a reset."""
        return self.reset_state is not None

    def parameter(self, spec: Spec) -> str | None:
        """The module parameter that sets the width, where the specification asks for one."""
        return spec.ports[-1] if self.parameterised else None

    def prompt(self, spec: Spec) -> str:
        """The whole prompt: module, behaviour, ports with widths, clock and reset."""
        text = f"Module {spec.module}: {self.describe(spec, *spec.ports)}"
        return f"{text} {clocking(spec)}" if self.sequential else text

    def pointer(self, spec: Spec) -> str:
        """The prompt where the specification stands in a document: the kind of design, and the file to write."""
        return f"Write rtl/{spec.module}.sv, a {self.textbook[0]} as {DOCUMENT} says."

    def signals(self, spec: Spec) -> list[Signal]:
        """Data ports in the order of the header, without clock and reset. An output that nothing assigns continuously is a `reg`."""
        inputs, outputs = self.sizes(spec)
        assigned = re.findall(r"\bassign ([^=]*)=", self.body(spec, *spec.ports))
        wires = set(re.findall(r"\w+", " ".join(assigned)))
        found = [Signal(name, "input", width) for name, width in zip(spec.ports, inputs, strict=False)]
        for name, width in zip(spec.ports[len(inputs) :], outputs, strict=False):
            found.append(Signal(name, "output" if name in wires else "output reg", width))
        return found

    def header(self, spec: Spec) -> list[Signal]:
        """All ports in the order of the header."""
        clocking = [Signal(spec.clock, "input"), Signal(spec.reset, "input")] if self.sequential else []
        return clocking + self.signals(spec)

    def code(self, spec: Spec) -> str:
        """The golden answer, one Verilog module."""
        if self.parameterised:
            header = f" {self.parameterised(spec, *spec.ports)}"
        else:
            header = f"({', '.join(map(str, self.header(spec)))})"
        return f"module {spec.module}{header};\n{self.body(spec, *spec.ports)}endmodule\n"

    def textbook_spec(self, spec: Spec) -> Spec:
        """The specification that a textbook would answer instead: its names, 8 bits, `rst_n` asynchronous active low."""
        module, option = self.textbook
        width = TEXTBOOK_WIDTH if TEXTBOOK_WIDTH in self.widths else spec.width
        return Spec(self.name, module, self.roles, width, spec.option if option is None else option)

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
        if self.parameterised:
            spec = replace(spec, ports=(*spec.ports[:-1], rng.choice(names.PARAMETERS)))
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
