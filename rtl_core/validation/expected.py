"""The expected interface of a problem, in words: where it was read, and how far it can be trusted."""

from __future__ import annotations

from typing import Any, Literal

from rtl_core.types.problem import InterfaceSource, Problem

Confidence = Literal["certain", "high", "medium", "low", "none"]


def confidence(problem: Problem) -> Confidence:
    """How far a problem's derived interface can be trusted.

    `certain`: read from the golden answer. `high`: from a module of the context that is not to be changed. `medium`: from a
    header in the specification, or from the old version of what is to be changed. `low`: only the names that the harness
    touches. `none`: nothing was found.
    """
    interface = problem.interface
    if interface is None:
        return "none"
    if interface.source is InterfaceSource.GOLDEN:
        return "certain"
    if interface.source is InterfaceSource.CONTEXT:
        return "high" if interface.exact else "medium"
    return "medium" if interface.source is InterfaceSource.SPECIFICATION else "low"


def describe_interface(problem: Problem) -> dict[str, Any]:
    """JSON-able: module, source, confidence, how many ports are known and how many of them in direction and width."""
    interface = problem.interface
    if interface is None:
        return {"module": None, "source": None, "confidence": "none", "ports": 0, "complete_ports": 0, "parameters": 0}
    return {
        "module": interface.module,
        "source": interface.source.value,
        "confidence": confidence(problem),
        "exact": interface.exact,
        "ports": len(interface.ports),
        "complete_ports": sum(p.direction is not None and p.width is not None for p in interface.ports),
        "parameters": len(interface.parameters),
    }
