"""Drills: minimal designs with a number in them, used in pre-training only.

Since some widths of every family are held out, a family has few numbers, and a model would learn which
number belongs to which design instead of copying it. Drills use every number, in every position where
answers of the hard tier have one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from rtl_core.starter import names
from rtl_core.starter.spec import WIDTHS, Spec, clocked, clocking, clog2


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
    described, header, body = rng.choice(_DRILLS)(spec, rng)
    return f"Module {spec.module}: {described}", f"module {spec.module}{header};\n{body}endmodule\n"


Parts = tuple[str, str, str]
"""Description, module header after the name, and body."""


def _match(spec: Spec, rng: random.Random) -> Parts:
    d, y, _ = spec.ports
    n = clog2(spec.width + 1)
    return (
        f"{y} high if {d} is {spec.width}. Input {d}, {n} bits. Output {y}.",
        f"(input [{n - 1}:0] {d}, output {y})",
        f"  assign {y} = {d} == {spec.width};\n",
    )


def _parameter(spec: Spec, rng: random.Random) -> Parts:
    d, y, _ = spec.ports
    name = rng.choice(names.PARAMETERS)
    return (
        f"not {d}. Parameter {name}, default {spec.width}. Input {d}, {name} bits. Output {y}, {name} bits.",
        f" #(parameter {name} = {spec.width})(input [{name} - 1:0] {d}, output [{name} - 1:0] {y})",
        f"  assign {y} = ~{d};\n",
    )


def _load(spec: Spec, rng: random.Random) -> Parts:
    d, y, _ = spec.ports
    n = clog2(spec.width + 1)
    return (
        f"register {spec.width} when {d}. Trigger {d}. Output {y}. {clocking(spec)}",
        f"(input {spec.clock}, input {spec.reset}, input {d}, output {y})",
        f"  reg [{n - 1}:0] c;\n"
        + clocked(spec, "c", f"if ({d}) c <= {spec.width};")
        + f"  assign {y} = c != 0;\n",
    )


def _modulo(spec: Spec, rng: random.Random) -> Parts:
    d, k, y = spec.ports
    n = clog2(spec.width)
    return (
        f"bit of {d} at {k} modulo {spec.width}. Requests {d}, {spec.width} bits. Input {k}, {n} bits. Output {y}.",
        f"(input [{spec.width - 1}:0] {d}, input [{n - 1}:0] {k}, output {y})",
        f"  assign {y} = {d}[({k} + 1) % {spec.width}];\n",
    )


def _loop(spec: Spec, rng: random.Random) -> Parts:
    d, y, _ = spec.ports
    n = clog2(spec.width)
    return (
        f"last bit of {d}. Requests {d}, {spec.width} bits. Output {y}, {n} bits.",
        f"(input [{spec.width - 1}:0] {d}, output reg [{n - 1}:0] {y})",
        f"  integer k;\n  always @(*) begin\n    {y} = 0;\n"
        f"    for (k = {spec.width}; k > 0; k = k - 1) if ({d}[k % {spec.width}]) {y} = k % {spec.width};\n  end\n",
    )


_DRILLS: tuple[Callable[[Spec, random.Random], Parts], ...] = (
    _match,
    _parameter,
    _load,
    _modulo,
    _loop,
)
