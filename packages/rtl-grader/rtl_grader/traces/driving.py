"""How a test bench drives a golden answer: its ports with given parameters, its clocks and its resets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rtl_grader.hdl.clocking import clocks_and_resets
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.traces.unseen import Words
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Interface, InterfaceSource, Port

Values = Mapping[str, int]
"""Parameter -> its value in an instance."""
Widths = list[tuple[str, int]]
"""(name, bits) of each port."""
Clock = tuple[str, bool]
"""(input, whether its rising edge counts)."""


@dataclass(frozen=True)
class Driven:
    """What a test bench must know of a design to drive it."""

    interface: Interface
    """The ports as they are with the parameters at `values`; all widths are known."""
    clocks: Sequence[str]
    resets: Sequence[str]
    low: Collection[str]
    """Those of `resets` that are active low."""
    values: Values

    @property
    def levels(self) -> list[tuple[str, bool]]:
        """(reset, whether it is active low)."""
        return [(name, name in self.low) for name in self.resets]

    @property
    def inputs(self) -> Widths:
        return widths(self.interface.inputs)

    @property
    def outputs(self) -> Widths:
        return widths(self.interface.outputs)


def widths(ports: Sequence[Port]) -> Widths:
    return [(port.name, port.width or 1) for port in ports]


def undrivable(interface: Interface) -> str:
    """Why a test bench cannot drive or watch a design with this interface; empty if it can."""
    for port in interface.ports:
        if not port.name:
            return "one of its ports has no name"
        if port.direction not in ("input", "output"):
            return f"its port {port.name} is {port.direction or port.form}"
        if port.width is None:
            return f"the width of its port {port.name} is not known"
    return ""


def driven(golden: Files, context: Files, default: Interface, values: Values) -> Driven | None:
    """How to drive a golden answer (path -> text) with its parameters at `values`; None if its ports cannot be
    read or driven. `default` is its interface without `values`; `context` holds what it is compiled with."""
    interface: Interface | None = default
    if values:
        sources = {**context, **golden}
        interface = parse_interface(sources, default.module, InterfaceSource.GOLDEN, values)
    if interface is None or undrivable(interface):
        return None
    bits = [port.name for port in interface.inputs if port.width == 1]
    return Driven(interface, *clocks_and_resets(golden, bits), values)


def constructs_words(who: str, constructs: Words) -> str:
    """Why a design is not proved, from what a proof does not see of it (`unseen`); empty without such constructs."""
    if not constructs:
        return ""
    words = [f"{kind} {name}".strip() for kind, name in constructs.items()]
    listed = ", ".join(words)
    return f"the {who} has {listed}"
