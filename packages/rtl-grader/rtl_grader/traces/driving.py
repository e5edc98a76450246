"""How a test bench drives a golden answer: its ports with given parameters, its clocks and its resets."""

from __future__ import annotations

from rtl_grader.hdl.clocking import clocks_and_resets
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.traces.stimuli import Driven, Values
from rtl_grader.traces.unseen import Words
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Interface, InterfaceSource


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
