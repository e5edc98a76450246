"""Compares an answer's interface with the demanded one, difference by difference: ports, parameters, and their values.

A design may not choose freely the parameters that a harness reads from it and does not set. A test bench that asks
`dut.WIDTH` how wide the design is believes the answer: a design of one bit would pass most of them. So such a parameter keeps
the default of the golden answer, the specification, or the file that is to be changed, unless the prompt names another number
for it. Where the default is computed from parameters that the harness does set, it follows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from rtl_core.problems.harness_use import harness_use
from rtl_core.problems.interface import (
    HDL_SUFFIXES,
    code_of,
    derive_interface,
    module_names,
    parse_interface,
    top_levels,
)
from rtl_core.types.problem import Interface, InterfaceSource, Port, Problem
from rtl_core.types.verdict import InterfaceMismatch, MismatchKind

_NUMBER = re.compile(r"(?<![\w'+*/-])(?<![+*/-]\s)\d+(?![\w'])")
_ANY_NAME = re.compile(
    r"getattr\(\s*[\w.]+\s*,\s*(?![\"']\w+[\"']\s*[,)])|\bin\s+[\w.]*dut\b|\bdut\[|__getattr__|\b_id\(|_handles\b"
)
"""Python that may read an object of the design without naming it."""
_BOTH_WAYS = re.compile(r"inout|bi-?direction|tri-?state", re.I)


def compare(expected: Interface, got: Interface | None, answer: Mapping[str, str]) -> tuple[InterfaceMismatch, ...]:
    """Every difference that the demand forbids; `got` None means that the module is not there.

    What the expected side does not know (direction or width None) is not compared. Further parameters with defaults
    are harmless and are named only beside other differences. A name that only the harness tells of may be any object
    of the module, so there it is enough that the answer declares it.
    """
    if got is None:
        names = sorted({name for text in answer.values() for name in module_names(text)})
        there = ", ".join(names[:5]) or "no module"
        return (_differs(MismatchKind.WRONG_MODULE, expected.module, expected.module, there),)
    found = [*_port_differences(expected, got, answer), *_parameter_differences(expected, got)]
    if found and expected.exact:
        known = {parameter.name for parameter in expected.parameters}
        found += [
            _differs(MismatchKind.EXTRA_PARAMETER, parameter.name, "nothing", _number(parameter.default))
            for parameter in got.parameters
            if parameter.name not in known
        ]
    return tuple(found)


def _port_differences(expected: Interface, got: Interface, answer: Mapping[str, str]) -> Iterator[InterfaceMismatch]:
    theirs = {port.name: port for port in got.ports}
    for port in expected.ports:
        other = theirs.get(port.name)
        if other is None:
            if expected.source is not InterfaceSource.HARNESS or not _declared(port.name, answer):
                yield _differs(MismatchKind.MISSING_PORT, port.name, _describe(port), "nothing")
            continue
        if port.direction and other.direction and port.direction != other.direction:
            yield _differs(MismatchKind.WRONG_DIRECTION, port.name, port.direction, other.direction)
        if port.width and other.width and port.width != other.width:
            yield _differs(MismatchKind.WRONG_WIDTH, port.name, _bits(port.width), _bits(other.width))
    if expected.exact:
        wanted = {port.name for port in expected.ports}
        for port in got.ports:
            if port.name not in wanted:
                yield _differs(MismatchKind.EXTRA_PORT, port.name, "nothing", _describe(port))


def _parameter_differences(expected: Interface, got: Interface) -> Iterator[InterfaceMismatch]:
    theirs = {parameter.name: parameter for parameter in got.parameters}
    for parameter in expected.parameters:
        other = theirs.get(parameter.name)
        default = _number(parameter.default)
        if other is None:
            yield _differs(MismatchKind.MISSING_PARAMETER, parameter.name, default, "nothing")
        elif None not in (parameter.default, other.default) and parameter.default != other.default:
            yield _differs(MismatchKind.WRONG_PARAMETER, parameter.name, default, _number(other.default))


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


def owned_inputs(problem: Problem, got: Iterable[Port], answer: Mapping[str, str]) -> tuple[InterfaceMismatch, ...]:
    """What the harness moves, and the answer has as something else than an input: it can put there what the harness reads
    back, so a harness that passes shows nothing.

    Where only the harness tells of a port, that it is an input is a guess, and better evidence wins: documents that call it
    an output or speak of ports that go both ways; or documents that name it and call it no input, beside a harness that never
    reads back what it puts there, as it does with an object inside the module.
    """
    expected = problem.interface
    if expected is None:
        return ()
    moved = harness_use(problem.harness).moved
    theirs = {port.name: port.direction for port in got}
    return tuple(
        _differs(MismatchKind.WRONG_DIRECTION, port.name, "input", theirs.get(port.name) or "no port")
        for port in expected.ports
        if port.direction == "input" and port.name in moved and theirs.get(port.name) != "input"
        if expected.source is not InterfaceSource.HARNESS
        or not _may_be(port.name, theirs.get(port.name), problem, answer)
    )


def _may_be(name: str, direction: str | None, problem: Problem, answer: Mapping[str, str]) -> bool:
    """Whether a name that only the harness tells of may be a port of this direction, or an object inside (None)."""
    documents = [problem.prompt, *(t for path, t in problem.context.items() if not path.endswith(HDL_SUFFIXES))]
    text = "\n".join(documents)
    if direction == "inout":
        return bool(_BOTH_WAYS.search(text))
    if direction == "output":
        return _is_called(name, "output", text)
    inside = _declared(name, answer) and bool(re.search(rf"\b{name}\b", text)) and not _is_called(name, "input", text)
    return inside and not _is_read(name, problem.harness)


def _is_read(name: str, harness: Mapping[str, str]) -> bool:
    """Whether the harness' Python may read the value of `dut.name`: it does more with the name than to set it."""
    python = "\n".join(text for path, text in harness.items() if path.endswith(".py"))
    unnamed = _ANY_NAME.search(python)
    written = len(re.findall(rf"\.{name}(?:\[[^\]\n]*\])?\.value\s*=(?!=)", python))
    return bool(unnamed) or written < len(re.findall(rf"\b{name}\b", python))


def _is_called(name: str, direction: str, text: str) -> bool:
    """Whether a text has the direction right beside the name: in a declaration, a list or a table."""
    bits = r"(?:\[[^\]\n]*\])?"
    before = rf"\b{direction}\b(?:\s+(?:reg|wire|logic|signed))*[\s`*]*{bits}[\s`*]*{name}\b"
    behind = rf"\b{name}\b[\s`*|:(-]*{bits}[\s`*|:(-]*{direction}\b"
    return bool(re.search(f"{before}|{behind}", text, re.I))


def _declared(name: str, answer: Mapping[str, str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", code_of(text)) for text in answer.values())


def _differs(kind: MismatchKind, name: str, expected: str | None, got: str | None) -> InterfaceMismatch:
    return InterfaceMismatch(kind=kind, name=name, expected=expected, got=got)


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _bits(width: int) -> str:
    return "1 bit" if width == 1 else f"{width} bits"


def _describe(port: Port) -> str:
    parts = [port.direction or "port", None if port.width is None else f"of {_bits(port.width)}"]
    return " ".join(filter(None, parts))


def demanded_values(problem: Problem, settings: Mapping[str, int] | None = None) -> dict[str, list[int]]:
    """Name -> values that are right once the harness has set `settings`, the default first; empty where nothing is known.
    Parses the problem's own files.
    """
    if problem.interface is None:
        return {}
    # A harness may call the design otherwise than `dut`, and guard what it reads.
    python = "\n".join(text for path, text in problem.harness.items() if path.endswith(".py"))
    read = harness_use(problem.harness).parameters & set(re.findall(r"\.(\w+)", python))
    if not read:
        return {}
    given = {path: text for path, text in problem.context.items() if path.endswith(HDL_SUFFIXES)}
    module, demand = problem.interface.module, problem.interface
    before = parse_interface(given, module, InterfaceSource.CONTEXT, settings) if given else None
    if settings:
        demand = _with(problem, settings) or demand
    known = (*(before.parameters if before else ()), *demand.parameters)
    defaults = {p.name: p.default for p in known if p.default is not None}
    lines = problem.prompt.splitlines()
    return {
        name: [default, *(int(n) for line in lines if re.search(rf"\b{name}\b", line) for n in _NUMBER.findall(line))]
        for name, default in defaults.items()
        if name in read
    }


def _with(problem: Problem, settings: Mapping[str, int]) -> Interface | None:
    return derive_interface(
        prompt=problem.prompt,
        context=problem.context,
        targets=problem.targets,
        harness=problem.harness,
        golden=problem.golden,
        parameters=settings,
    )
