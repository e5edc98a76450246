"""Compares an answer's interface with the demanded one, difference by difference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rtl_core.problems.harness_use import harness_use
from rtl_core.problems.interface import HDL_SUFFIXES, code_of, module_names, top_levels
from rtl_core.types.problem import Interface, InterfaceSource, Port, Problem
from rtl_core.types.verdict import InterfaceMismatch, MismatchKind

_BOTH_WAYS = re.compile(r"inout|bi-?direction|tri-?state", re.I)


def compare(expected: Interface, got: Interface | None, answer: Mapping[str, str]) -> tuple[InterfaceMismatch, ...]:
    """Every difference that the demand forbids; `got` None means that the module is not there.

    What the expected side does not know (direction or width None) is not compared. Further parameters with defaults
    are harmless and are named only beside other differences. A name that only the harness tells of may be any object
    of the module, so there it is enough that the answer declares it.
    """
    if got is None:
        names = sorted({name for text in answer.values() for name in module_names(text)})
        return (
            InterfaceMismatch(
                kind=MismatchKind.WRONG_MODULE,
                name=expected.module,
                expected=expected.module,
                got=", ".join(names[:5]) or "no module",
            ),
        )
    found: list[InterfaceMismatch] = []
    theirs = {port.name: port for port in got.ports}
    for port in expected.ports:
        other = theirs.get(port.name)
        if other is None:
            if expected.source is InterfaceSource.HARNESS and _declared(port.name, answer):
                continue
            found.append(
                InterfaceMismatch(
                    kind=MismatchKind.MISSING_PORT, name=port.name, expected=_describe(port), got="nothing"
                )
            )
            continue
        if port.direction and other.direction and port.direction != other.direction:
            found.append(_differs(MismatchKind.WRONG_DIRECTION, port.name, port.direction, other.direction))
        if port.width and other.width and port.width != other.width:
            found.append(_differs(MismatchKind.WRONG_WIDTH, port.name, _bits(port.width), _bits(other.width)))
    if expected.exact:
        wanted = {port.name for port in expected.ports}
        found += [
            InterfaceMismatch(kind=MismatchKind.EXTRA_PORT, name=port.name, expected="nothing", got=_describe(port))
            for port in got.ports
            if port.name not in wanted
        ]
    ours = {parameter.name: parameter for parameter in got.parameters}
    for parameter in expected.parameters:
        mine = ours.get(parameter.name)
        if mine is None:
            default = None if parameter.default is None else str(parameter.default)
            found.append(
                InterfaceMismatch(
                    kind=MismatchKind.MISSING_PARAMETER, name=parameter.name, expected=default, got="nothing"
                )
            )
        elif None not in (parameter.default, mine.default) and parameter.default != mine.default:
            found.append(
                _differs(MismatchKind.WRONG_PARAMETER, parameter.name, str(parameter.default), str(mine.default))
            )
    if found and expected.exact:
        known = {parameter.name for parameter in expected.parameters}
        found += [
            InterfaceMismatch(
                kind=MismatchKind.EXTRA_PARAMETER,
                name=name,
                expected="nothing",
                got=None if parameter.default is None else str(parameter.default),
            )
            for name, parameter in ours.items()
            if name not in known
        ]
    return tuple(found)


def is_fatal(mismatches: tuple[InterfaceMismatch, ...], harness: Mapping[str, str], sources: Iterable[str]) -> bool:
    """Whether the harness cannot even build: no source has the module that the harness names as its top level.

    `sources` are the texts of all design files. Every other mismatch is advice, since the demand was only derived: what
    a name in a specification or in the harness' code is worth, the harness itself shows.
    """
    missing = [m.name for m in mismatches if m.kind is MismatchKind.WRONG_MODULE]
    named = set(top_levels(harness))
    return any(name in named for name in missing) and not any(
        name in module_names(text) for name in missing for text in sources
    )


def is_hopeless(mismatches: tuple[InterfaceMismatch, ...], harness: Mapping[str, str]) -> bool:
    """Whether the harness' executed code touches a port that the answer lacks, so that one failing test tells all."""
    missing = {m.name for m in mismatches if m.kind is MismatchKind.MISSING_PORT}
    return bool(missing) and not missing.isdisjoint(harness_use(harness).names)


def owned_inputs(problem: Problem, got: Iterable[Port]) -> tuple[InterfaceMismatch, ...]:
    """What the harness moves, and the answer has as something else than an input: it can put there what the harness reads
    back, so a harness that passes shows nothing.

    Where only the harness tells of the port, and the documents speak of ports that go both ways, `inout` may be right.
    """
    expected = problem.interface
    if expected is None:
        return ()
    moved = harness_use(problem.harness).moved
    documents = (problem.prompt, *(text for path, text in problem.context.items() if not path.endswith(HDL_SUFFIXES)))
    both_ways = expected.source is InterfaceSource.HARNESS and any(map(_BOTH_WAYS.search, documents))
    right = ("input", "inout") if both_ways else ("input",)
    theirs = {port.name: port.direction for port in got}
    return tuple(
        _differs(MismatchKind.WRONG_DIRECTION, port.name, "input", theirs.get(port.name) or "no port")
        for port in expected.ports
        if port.direction == "input" and port.name in moved and theirs.get(port.name) not in right
    )


def _declared(name: str, answer: Mapping[str, str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", code_of(text)) for text in answer.values())


def _differs(kind: MismatchKind, name: str, expected: str, got: str) -> InterfaceMismatch:
    return InterfaceMismatch(kind=kind, name=name, expected=expected, got=got)


def _bits(width: int) -> str:
    return "1 bit" if width == 1 else f"{width} bits"


def _describe(port: Port) -> str:
    parts = [port.direction or "port", None if port.width is None else f"of {_bits(port.width)}"]
    return " ".join(filter(None, parts))
