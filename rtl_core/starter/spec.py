"""Specifications of starter problems (`Spec`), their ports (`Signal`), and families of them (`Family`).

Widths and module names are assigned to splits by hash, so no two splits share a specification. Of a
family's widths (except the textbook's 8, which is in train), the first three by hash are held out and the
next three are for the test split; three in five module names are for train. A held-out problem has a module
name *and*, if its family has widths, a (family, width) that train never shows.
"""

from __future__ import annotations

import hashlib
import random
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from rtl_core.starter import names
from rtl_grader.types.problem import Difficulty

Split = Literal["train", "heldout", "test"]
Tier = Literal["starter", "hard"]

WIDTHS = tuple(range(2, 17))
TEXTBOOK_WIDTH = 8
WIDTHS_PER_SPLIT = 3
Words = tuple[int, ...]
Template = str | Mapping[str, str]
"""Text with `{names}` of roles, of the variant and of `terms_of`, or such a text for each option."""
NO_TERMS: Mapping[str, str] = {}
Step = tuple[Any, Words]
"""State after the next rising clock edge, and current outputs."""
Reference = Callable[[int, str, Any, Words], Step]
DOCUMENT = "docs/specification.md"
"""Path of the specification, for problems whose prompt does not contain it."""


@dataclass(frozen=True)
class Signal:
    """A port. `kind` is as in the header; `reg` is how the golden answer drives the output."""

    name: str
    kind: Literal["input", "output", "output reg"]
    width: int = 1

    @property
    def is_input(self) -> bool:
        return self.kind == "input"

    def __str__(self) -> str:
        bits = f"[{self.width - 1}:0] " if self.width > 1 else ""
        return f"{self.kind} {bits}{self.name}"


@dataclass(frozen=True)
class Spec:
    """Everything that can differ between two problems of a family.

    `ports` are names in the order of the family's roles, without clock and reset. `asynchronous`,
    `active_low`, `clock` and `reset` are unused in a combinational family.
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
    """Description of clock and reset in a prompt."""
    kind = "async" if spec.asynchronous else "sync"
    level = "low" if spec.active_low else "high"
    return f"Clock {spec.clock}. Reset {spec.reset}, {kind}, active {level}."


def terms_of(spec: Spec) -> dict[str, object]:
    """Return what every template may name besides ports: widths, last bits, clock edges.

    `index_bits` bits hold the numbers below the width, `count_bits` also the width itself. `edge` is the
    sensitivity list of a register, and `in_reset` the condition in which it is cleared.
    """
    index_bits, count_bits = clog2(spec.width), clog2(spec.width + 1)
    edge = f"posedge {spec.clock}"
    if spec.asynchronous:
        edge += f" or {'negedge' if spec.active_low else 'posedge'} {spec.reset}"
    return {
        "width": spec.width,
        "msb": spec.width - 1,
        "index_bits": index_bits,
        "index_msb": index_bits - 1,
        "count_bits": count_bits,
        "count_msb": count_bits - 1,
        "states": 1 << spec.width,
        "sum_bits": spec.width + 1,
        "product_bits": 2 * spec.width,
        "option": spec.option,
        "clock": spec.clock,
        "reset": spec.reset,
        "edge": edge,
        "in_reset": f"!{spec.reset}" if spec.active_low else spec.reset,
    }


@dataclass(frozen=True, eq=False)
class Family:
    """A kind of design from which specifications are drawn. To add one, write a reference model and a table of its
    name in the TOML file beside it."""

    reference: Reference
    """The design in Python: (width, option, state, inputs) -> (state after the next rising edge, current
    outputs), inputs and outputs in header order. Its source text becomes part of the harness, so it may use
    only its arguments and builtins.
    """
    difficulty: Difficulty
    roles: tuple[str, ...]
    """Textbook port names in header order, without clock and reset."""
    textbook: tuple[str, ...]
    """Module name that a textbook would show, and its option, unless all are equally common."""
    sizes: Template
    """Widths in bits of the data inputs, `->`, and those of the outputs, in header order."""
    describe: Template
    """Specification in English, without module name, clock and reset."""
    body: Template
    """Golden answer between header and `endmodule`; lines are indented by two spaces and end with a newline."""
    variants: Mapping[str, Mapping[str, str]]
    """Variants of behaviour (bit order, operator, ...): option -> further names of the templates, with
    their text, which may name ports."""
    widths: tuple[int, ...] = WIDTHS
    """Data widths in bits: they include 8, the textbook's, or are `(1,)` for a family without a width."""
    reset_state: Any = None
    """State of the reference model after reset; None for a combinational family."""
    bursts: Template = ""
    """Inputs, `->`, and for how many clock cycles they are held to take the design through all its states, if random
    inputs do not reach these in a thousand cycles."""
    parameterised: Template | None = None
    """Module header with a parameter, the last role, that sets the width; None without a parameter."""

    @classmethod
    def of(
        cls,
        reference: Reference,
        options: Sequence[str] | Mapping[str, Mapping[str, str]] = ("",),
        widths: Sequence[int] = (WIDTHS[0], WIDTHS[-1]),
        **facts: Any,
    ) -> Family:
        """The family of a reference model from its table. `options`: its variants; `widths`: first and last one."""
        variants = options if isinstance(options, Mapping) else dict.fromkeys(options, NO_TERMS)
        first, last = widths
        fields: dict[str, Any] = {
            name: tuple(fact) if isinstance(fact, list) else fact
            for name, fact in facts.items()
        }
        every = tuple(range(first, last + 1))
        return cls(reference, variants=variants, widths=every, **fields)

    @property
    def name(self) -> str:
        return self.reference.__name__

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(self.variants)

    @property
    def sequential(self) -> bool:
        """Whether the design has a clock and a reset."""
        return self.reset_state is not None

    def _fill(self, template: Template, spec: Spec) -> str:
        """Return the text of a template for a specification."""
        text = template if isinstance(template, str) else template[spec.option]
        terms = terms_of(spec) | dict(zip(self.roles, spec.ports, strict=True))
        for name, term in self.variants[spec.option].items():
            terms[name] = term.format_map(terms)
        return text.format_map(terms)

    def parameter(self, spec: Spec) -> str | None:
        """Name of the module parameter that sets the width, if any."""
        return spec.ports[-1] if self.parameterised else None

    def prompt(self, spec: Spec) -> str:
        """The whole prompt: module, behaviour, ports with widths, clock and reset."""
        text = f"Module {spec.module}: {self._fill(self.describe, spec)}"
        return f"{text} {clocking(spec)}" if self.sequential else text

    def pointer(self, spec: Spec) -> str:
        """Prompt for a specification in a document: the kind of design, and the file to write."""
        return f"Write rtl/{spec.module}.sv, a {self.textbook[0]} as {DOCUMENT} says."

    def signals(self, spec: Spec) -> list[Signal]:
        """Data ports in header order, without clock and reset. An output without a continuous assignment is a `reg`."""
        inputs, _, outputs = self._fill(self.sizes, spec).partition("->")
        assigned = re.findall(r"\bassign ([^=]*)=", self._fill(self.body, spec))
        wires = set(re.findall(r"\w+", " ".join(assigned)))
        ports = iter(spec.ports)
        signals = [Signal(next(ports), "input", int(width)) for width in inputs.split()]
        for width in outputs.split():
            name = next(ports)
            signals.append(
                Signal(name, "output" if name in wires else "output reg", int(width))
            )
        return signals

    def bursts_of(self, spec: Spec) -> list[tuple[Words, int]]:
        """(inputs, clock cycles) of each burst."""
        if not self.bursts:
            return []
        inputs, _, cycles = self._fill(self.bursts, spec).partition("->")
        return [(tuple(map(int, inputs.split())), int(cycles))]

    def header(self, spec: Spec) -> list[Signal]:
        """All ports in header order."""
        signals = self.signals(spec)
        if self.sequential:
            signals = [Signal(spec.clock, "input"), Signal(spec.reset, "input"), *signals]
        return signals

    def code(self, spec: Spec) -> str:
        """The golden answer, one Verilog module."""
        if self.parameterised:
            header = f" {self._fill(self.parameterised, spec)}"
        else:
            header = f"({', '.join(map(str, self.header(spec)))})"
        return f"module {spec.module}{header};\n{self._fill(self.body, spec)}endmodule\n"

    def textbook_spec(self, spec: Spec) -> Spec:
        """The specification that a textbook answer fits: its names, 8 bits, `rst_n` asynchronous active low."""
        module, option, *_ = (*self.textbook, spec.option)
        width = TEXTBOOK_WIDTH if TEXTBOOK_WIDTH in self.widths else spec.width
        return Spec(self.name, module, self.roles, width, option)

    def widths_of(self, split: Split) -> tuple[int, ...]:
        """Widths of a split; all widths for a family with fewer than eight."""
        if len(self.widths) < 2 + 2 * WIDTHS_PER_SPLIT:
            return self.widths
        ranked = sorted(
            set(self.widths) - {TEXTBOOK_WIDTH}, key=lambda width: _hash(f"{self.name}/{width}")
        )
        chosen = {
            "heldout": ranked[:WIDTHS_PER_SPLIT],
            "test": ranked[WIDTHS_PER_SPLIT : 2 * WIDTHS_PER_SPLIT],
            "train": [TEXTBOOK_WIDTH, *ranked[2 * WIDTHS_PER_SPLIT :]],
        }
        return tuple(sorted(chosen[split]))

    def draw(self, rng: random.Random, split: Split) -> Spec:
        """Draw a random specification of a split."""
        active_low = rng.random() < 0.5
        spec = Spec(
            family=self.name,
            module=rng.choice(modules_of(split)),
            ports=names.draw_ports(rng, len(self.roles)),
            width=rng.choice(self.widths_of(split)),
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


def families_in(models: ModuleType) -> list[Family]:
    """The families of a module's reference models, from the TOML file beside it, in its order."""
    text = Path(str(models.__file__)).with_suffix(".toml").read_text(encoding="utf-8")
    return [
        Family.of(getattr(models, name), **table) for name, table in tomllib.loads(text).items()
    ]


@cache
def modules_of(split: Split) -> tuple[str, ...]:
    """Module names of a split."""
    residues = {"heldout": (0,), "test": (1,), "train": (2, 3, 4)}[split]
    return tuple(name for name in names.MODULES if _hash(f"module/{name}") % 5 in residues)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def clog2(value: int) -> int:
    """Number of bits that can count `value` things, at least 1."""
    return max(1, (value - 1).bit_length())
