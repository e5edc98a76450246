"""Drills: minimal designs with a number in them, used in pre-training only.

Since some widths of every family are held out, a family has few numbers, and a model would learn which
number belongs to which design instead of copying it. Drills use every number, in every position where
answers of the hard tier have one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from rtl_core.starter import names
from rtl_core.starter.spec import WIDTHS, Spec, clocking, terms_of


def draw_drill(rng: random.Random, modules: Sequence[str]) -> tuple[str, str]:
    """Return (prompt, Verilog module) of a random drill with one of the given module names."""
    low = rng.random() < 0.5
    spec = Spec(
        family="drill",
        module=rng.choice(modules),
        ports=names.draw_ports(rng, 3),
        width=rng.choice(WIDTHS),
        option="",
        clock=rng.choice(names.CLOCKS),
        reset=rng.choice(names.RESETS_LOW if low else names.RESETS_HIGH),
        active_low=low,
        asynchronous=rng.random() < 0.5,
    )
    drill = rng.choice(_DRILLS)
    terms = terms_of(spec) | dict(zip(("x", "y", "z"), spec.ports, strict=True))
    if drill.parameter:
        terms["parameter"] = rng.choice(names.PARAMETERS)
    terms["clocking"] = clocking(spec)
    prompt, code = (text.format_map(terms) for text in (drill.prompt, drill.code))
    return f"Module {spec.module}: {prompt}", f"module {spec.module}{code}endmodule\n"


class Drill(NamedTuple):
    """Templates of a drill (`terms_of` in starter/spec.py), with its ports `x`, `y` and `z`."""

    prompt: str
    """The description after the module's name."""
    code: str
    """The design between the module's name and `endmodule`."""
    parameter: bool = False
    """Whether the module has a `parameter`, whose name is drawn."""


_DRILLS = (
    Drill(
        "{y} high if {x} is {width}. Input {x}, {count_bits} bits. Output {y}.",
        """\
(input [{count_msb}:0] {x}, output {y});
  assign {y} = {x} == {width};
""",
    ),
    Drill(
        "not {x}. Parameter {parameter}, default {width}. Input {x}, {parameter} bits. "
        "Output {y}, {parameter} bits.",
        """\
 #(parameter {parameter} = {width})(input [{parameter} - 1:0] {x}, output [{parameter} - 1:0] {y});
  assign {y} = ~{x};
""",
        parameter=True,
    ),
    Drill(
        "register {width} when {x}. Trigger {x}. Output {y}. {clocking}",
        """\
(input {clock}, input {reset}, input {x}, output {y});
  reg [{count_msb}:0] c;
  always @({edge}) begin
    if ({in_reset}) c <= 0;
    else if ({x}) c <= {width};
  end
  assign {y} = c != 0;
""",
    ),
    Drill(
        "bit of {x} at {y} modulo {width}. Requests {x}, {width} bits. Input {y}, {index_bits} bits. "
        "Output {z}.",
        """\
(input [{msb}:0] {x}, input [{index_msb}:0] {y}, output {z});
  assign {z} = {x}[({y} + 1) % {width}];
""",
    ),
    Drill(
        "last bit of {x}. Requests {x}, {width} bits. Output {y}, {index_bits} bits.",
        """\
(input [{msb}:0] {x}, output reg [{index_msb}:0] {y});
  integer k;
  always @(*) begin
    {y} = 0;
    for (k = {width}; k > 0; k = k - 1) if ({x}[k % {width}]) {y} = k % {width};
  end
""",
    ),
)
