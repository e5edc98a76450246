"""A module between a harness that knows one interface and an answer that has another: other names, a reset of the other polarity, a bus
with its bits the other way round. The harness stays as it is, down to the byte, and so does what it checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rtl_core.errors import ProblemError
from rtl_core.types.problem import Interface, Port


@dataclass(frozen=True)
class Change:
    """How a new interface differs from an old one. Port names are the old ones."""

    module: str
    """Name of the module with the new interface."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Old port name -> new one, for those that change."""
    inverted: frozenset[str] = frozenset()
    """One-bit ports whose level means the opposite."""
    reversed: frozenset[str] = frozenset()
    """Buses whose bit 0 is the other's highest."""

    def name(self, port: str) -> str:
        return self.names.get(port, port)


def adapter(old: Interface, change: Change, outer: str, inner: str, *, outer_is_old: bool) -> str:
    """Verilog of module `outer`, which holds `inner`, one of them with the old interface and the other with the new.

    Raises:
        ProblemError: the old interface has parameters, inout ports, or ports of unknown direction or width.
    """
    for port in old.ports:
        if port.direction not in ("input", "output") or port.width is None:
            raise ProblemError(
                f"port {port.name} of {old.module} cannot be adapted: {port.direction}, {port.width} bits"
            )
    if old.parameters or not old.exact:
        raise ProblemError(f"{old.module} has parameters, or ports that are not known: it cannot be adapted")
    header = ", ".join(_declared(port, port.name if outer_is_old else change.name(port.name)) for port in old.ports)
    lines = [f"module {outer}({header});"]
    connections = []
    for number, port in enumerate(old.ports):
        outside = port.name if outer_is_old else change.name(port.name)
        inside = change.name(port.name) if outer_is_old else port.name
        wire = f"adapted_{number}"
        lines.append(f"  wire {port.packed}{wire};")
        source, target = (outside, wire) if port.direction == "input" else (wire, outside)
        lines += [f"  assign {to} = {what};" for to, what in _assigned(port, source, target, change)]
        connections.append(f".{inside}({wire})")
    lines += [f"  {inner} core({', '.join(connections)});", "endmodule"]
    return "\n".join(lines) + "\n"


def _assigned(port: Port, source: str, target: str, change: Change) -> list[tuple[str, str]]:
    sign = "~" if port.name in change.inverted else ""
    width = port.width or 1
    if port.name not in change.reversed or width == 1:
        return [(target, f"{sign}{source}")]
    return [(f"{target}[{bit}]", f"{sign}{source}[{width - 1 - bit}]") for bit in range(width)]


def _declared(port: Port, name: str) -> str:
    return f"{port.direction} {port.packed}{name}"
