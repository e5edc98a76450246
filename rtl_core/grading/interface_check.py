"""Compares an answer's interface with the demanded one: ports, parameters, and parameter values.

A design must not choose parameters that a harness reads from it and does not set. A test bench that reads `dut.WIDTH`
trusts the answer, so a design of one bit would pass most of them. Such a parameter must keep the default of the golden
answer, the specification, or the file to be changed, unless the prompt names another number for it. A default computed from
parameters that the harness sets follows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from rtl_core.grading.requirements import python_of
from rtl_core.problems.harness_use import harness_use
from rtl_core.problems.interface import HDL_SUFFIXES, derive_interface, parse_interface, top_levels
from rtl_core.problems.verilog_text import code_of, module_names
from rtl_core.types.problem import Interface, InterfaceSource, Port, Problem
from rtl_core.types.verdict import MOST_CHARS, InterfaceMismatch, MismatchKind

_NUMBER = re.compile(r"(?<![\w'+*/-])(?<![+*/-]\s)\d+(?![\w'])")
_ANY_NAME = re.compile(
    r"getattr\(\s*[\w.]+\s*,\s*(?![\"']\w+[\"']\s*[,)])|\bin\s+[\w.]*dut\b|\bdut\[|__getattr__|\b_id\(|_handles\b"
)
"""Python code that may read an object of the design without naming it."""
_BOTH_WAYS = re.compile(r"inout|bi-?direction|tri-?state", re.I)


def compare(expected: Interface, got: Interface | None, answer: Mapping[str, str]) -> tuple[InterfaceMismatch, ...]:
    """Return every forbidden difference; `got` None means that the module is missing.

    Unknown directions and widths (None) are not compared. Extra parameters with defaults are harmless and listed only next
    to other differences. A name known only from the harness may be any object of the module, so the answer only has to
    declare it.
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
    """Whether the harness cannot build because no source has the module that it names as its top level.

    `sources` are the texts of all design files. Every other mismatch is only advice, since the demand was derived from a
    specification or the harness' code; running the harness decides.
    """
    missing = [m.name for m in mismatches if m.kind is MismatchKind.WRONG_MODULE]
    named = set(top_levels(harness))
    return any(name in named for name in missing) and not any(
        name in module_names(text) for name in missing for text in sources
    )


def is_hopeless(mismatches: tuple[InterfaceMismatch, ...], harness: Mapping[str, str]) -> bool:
    """Whether the harness' executed code uses a port that the answer lacks, so that one failing test is enough."""
    missing = {m.name for m in mismatches if m.kind is MismatchKind.MISSING_PORT}
    return bool(missing) and not missing.isdisjoint(harness_use(harness).names)


def undeclared_inputs(
    problem: Problem, got: Iterable[Port], answer: Mapping[str, str]
) -> tuple[InterfaceMismatch, ...]:
    """Return the ports that the harness drives and the answer does not declare as inputs. Such an answer can set what the
    harness reads back, so a passing harness proves nothing.

    A port known only from the harness is an input by guess. Better evidence overrides it: documents that call it an output
    or mention bidirectional ports; or documents that name it but not as an input, if the harness never reads its value back,
    as with an object inside the module.
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
        or not _may_have_direction(port.name, theirs.get(port.name), problem, answer)
    )


def _may_have_direction(name: str, direction: str | None, problem: Problem, answer: Mapping[str, str]) -> bool:
    """Whether a name known only from the harness may be a port of this direction, or an inner object (None)."""
    documents = [problem.prompt, *(t for path, t in problem.context.items() if not path.endswith(HDL_SUFFIXES))]
    text = "\n".join(documents)
    if direction == "inout":
        return bool(_BOTH_WAYS.search(text))
    if direction == "output":
        return _is_described_as(name, "output", text)
    inside = (
        _declared(name, answer) and bool(re.search(rf"\b{name}\b", text)) and not _is_described_as(name, "input", text)
    )
    return inside and not _is_read(name, problem.harness)


def _is_read(name: str, harness: Mapping[str, str]) -> bool:
    """Whether the harness' Python may read `dut.name`, that is, does more with the name than set it."""
    python = python_of(harness)
    unnamed = _ANY_NAME.search(python)
    written = len(re.findall(rf"\.{name}(?:\[[^\]\n]*\])?\.value\s*=(?!=)", python))
    return bool(unnamed) or written < len(re.findall(rf"\b{name}\b", python))


def _is_described_as(name: str, direction: str, text: str) -> bool:
    """Whether a text has the direction next to the name: in a declaration, a list or a table."""
    bits = r"(?:\[[^\]\n]*\])?"
    before = rf"\b{direction}\b(?:\s+(?:reg|wire|logic|signed))*[\s`*]*{bits}[\s`*]*{name}\b"
    behind = rf"\b{name}\b[\s`*|:(-]*{bits}[\s`*|:(-]*{direction}\b"
    return bool(re.search(f"{before}|{behind}", text, re.I))


def _declared(name: str, answer: Mapping[str, str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", code_of(text)) for text in answer.values())


def _differs(kind: MismatchKind, name: str, expected: str | None, got: str | None) -> InterfaceMismatch:
    return InterfaceMismatch(kind=kind, name=name[:MOST_CHARS], expected=expected, got=got and got[:MOST_CHARS])


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def _bits(width: int) -> str:
    return "1 bit" if width == 1 else f"{width} bits"


def _describe(port: Port) -> str:
    parts = [port.direction or "port", None if port.width is None else f"of {_bits(port.width)}"]
    return " ".join(filter(None, parts))


def demanded_values(problem: Problem, settings: Mapping[str, int] | None = None) -> dict[str, list[int]]:
    """Name -> right values when the harness has set `settings`, the default first; empty if nothing is known.
    Parses the problem's own files.
    """
    if problem.interface is None:
        return {}
    # Some harnesses do not call the design `dut`, or guard their reads.
    read = harness_use(problem.harness).parameters & set(re.findall(r"\.(\w+)", python_of(problem.harness)))
    if not read:
        return {}
    given = {path: text for path, text in problem.context.items() if path.endswith(HDL_SUFFIXES)}
    module, demand = problem.interface.module, problem.interface
    before = parse_interface(given, module, InterfaceSource.CONTEXT, settings) if given else None
    if settings:
        again = derive_interface(
            prompt=problem.prompt,
            context=problem.context,
            targets=problem.targets,
            harness=problem.harness,
            golden=problem.golden,
            parameters=settings,
        )
        demand = again or demand
    known = (*(before.parameters if before else ()), *demand.parameters)
    defaults = {p.name: p.default for p in known if p.default is not None}
    lines = problem.prompt.splitlines()
    return {
        name: [default, *(int(n) for line in lines if re.search(rf"\b{name}\b", line) for n in _NUMBER.findall(line))]
        for name, default in defaults.items()
        if name in read
    }
