"""Compares an answer's interface with the demanded one: ports, parameters, and parameter values.

A design must not choose parameters that a harness reads from it and does not set. A test bench that reads `dut.WIDTH`
trusts the answer, so a design of one bit would pass most of them. Such a parameter must keep the default of the golden
answer, the specification, or the file to be changed, unless the prompt names another number for it. A
default computed from parameters that the harness sets follows them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from rtl_grader.grading.requirements import python_of
from rtl_grader.hdl.interface import hdl_files, parse_interface
from rtl_grader.hdl.text import code_of, module_names
from rtl_grader.problems.harness_use import HarnessUse, harness_use
from rtl_grader.problems.interface import derive_interface, documents, top_levels
from rtl_grader.types.problem import Interface, InterfaceSource, Port, Problem
from rtl_grader.types.verdict import FRAGMENT, MOST_CHARS, InterfaceMismatch, MismatchKind

_NUMBER = re.compile(r"(?<![\w'+*/-])(?<![+*/-]\s)\d+(?![\w'])")
_ANY_NAME = re.compile(
    r"getattr\(\s*[\w.]+\s*,\s*(?![\"']\w+[\"']\s*[,)])|\bin\s+[\w.]*dut\b|\bdut\[|__getattr__|\b_id\(|_handles\b"
)
"""Python code that may read an object of the design without naming it."""
_OF_PORTS = (MismatchKind.WRONG_DIRECTION, MismatchKind.WRONG_TYPE)
_VECTORS = ("vector", "signed vector")
_SIGNED = re.compile(r"\b(?:un)?signed\b|complement|\bnegative\b", re.I)
_DECLARING = re.compile(r"\b(?:module|input|inout|pullup|pulldown)\b[^;]*;")
_SINK = re.compile(r"\b(?:wire|logic)\s+(\w*unused\w*)\s*=[^;]*;", re.I)
"""A net that only shows a linter that signals are unused, if nothing else has its name."""
CLOCK_OR_RESET = re.compile(
    r"^(?!o_)\w*?(?:clk|clock|rst|reset)(?:_async)?(?:_?n|_b|_i|_in)?$", re.I
)
"""Names of clocks and resets, which are inputs of one bit."""
_PACKED = ("struct packed{", "union packed{")
_PULLING = r"\b(?:tri0|tri1|pullup|pulldown)\b(?:(?!\b(?:input|output)\b)[^;])*"
_BOTH_WAYS = re.compile(r"inout|bi-?direction|tri-?state", re.I)


def compare(
    expected: Interface, got: Interface | None, answer: Mapping[str, str]
) -> tuple[InterfaceMismatch, ...]:
    """Return every forbidden difference; `got` None means that the module is missing.

    Unknown directions, widths and types (None) are not compared. Extra parameters with defaults are
    harmless and listed only next to other differences. A name known only from the harness may be any object
    of the module, so the answer only has to declare it.
    """
    if got is None:
        names = sorted({name for text in answer.values() for name in module_names(text)})
        there = ", ".join(names[:5]) or FRAGMENT
        return (_differs(MismatchKind.WRONG_MODULE, expected.module, expected.module, there),)
    found = [*_port_differences(expected, got, answer), *_parameter_differences(expected, got)]
    if found and expected.exact:
        known = {parameter.name for parameter in expected.parameters}
        found += [
            _differs(
                MismatchKind.EXTRA_PARAMETER, parameter.name, "nothing", _number(parameter.default)
            )
            for parameter in got.parameters
            if parameter.name not in known
        ]
    return tuple(found)


def _port_differences(
    expected: Interface, got: Interface, answer: Mapping[str, str]
) -> Iterator[InterfaceMismatch]:
    theirs = {port.name: port for port in got.ports}
    for port in expected.ports:
        other = theirs.pop(port.name, None)
        if other is None:
            if expected.source is not InterfaceSource.HARNESS or not _declared(port.name, answer):
                yield _differs(MismatchKind.MISSING_PORT, port.name, _describe(port), "nothing")
            continue
        if port.direction and other.direction and port.direction != other.direction:
            yield _differs(MismatchKind.WRONG_DIRECTION, port.name, port.direction, other.direction)
        if port.width and other.width and port.width != other.width:
            yield _differs(
                MismatchKind.WRONG_WIDTH, port.name, in_bits(port.width), in_bits(other.width)
            )
        packed = port.form in _VECTORS and (other.form or "").startswith(_PACKED)
        if (
            port.form
            and other.form
            and port.form not in (other.form, f"signed {other.form}")
            and not packed
        ):
            yield _differs(MismatchKind.WRONG_TYPE, port.name, port.form, other.form)
    for port in theirs.values() if expected.exact else ():
        yield _differs(MismatchKind.EXTRA_PORT, port.name, "nothing", _describe(port))


def _parameter_differences(expected: Interface, got: Interface) -> Iterator[InterfaceMismatch]:
    theirs = {parameter.name: parameter for parameter in got.parameters}
    for parameter in expected.parameters:
        other = theirs.get(parameter.name)
        default = _number(parameter.default)
        if other is None:
            yield _differs(MismatchKind.MISSING_PARAMETER, parameter.name, default, "nothing")
        elif parameter.is_type != other.is_type:
            yield _differs(
                MismatchKind.WRONG_TYPE,
                parameter.name,
                "a type" if parameter.is_type else "a value",
                None,
            )
        elif None not in (parameter.default, other.default) and parameter.default != other.default:
            yield _differs(
                MismatchKind.WRONG_PARAMETER, parameter.name, default, _number(other.default)
            )


def is_fatal(
    mismatches: tuple[InterfaceMismatch, ...], harness: Mapping[str, str], sources: Iterable[str]
) -> bool:
    """Whether the harness cannot build because no source has the module that it names as its top level.

    `sources` are the texts of all design files. Every other mismatch is only advice, since the demand was
    derived from a specification or the harness' code; running the harness decides.
    """
    missing = names_of(MismatchKind.WRONG_MODULE, mismatches).intersection(top_levels(harness))
    return bool(missing) and missing.isdisjoint(
        name for text in sources for name in module_names(text)
    )


def is_hopeless(mismatches: tuple[InterfaceMismatch, ...], harness: Mapping[str, str]) -> bool:
    """Whether the harness' executed code uses a port that the answer lacks, so that one failing test is enough."""
    return not names_of(MismatchKind.MISSING_PORT, mismatches).isdisjoint(
        harness_use(harness).names
    )


def names_of(kind: MismatchKind, mismatches: Iterable[InterfaceMismatch]) -> set[str]:
    """Names of modules, ports or parameters with a difference of this kind."""
    return {mismatch.name for mismatch in mismatches if mismatch.kind is kind}


def unnamed_ports(problem: Problem) -> list[str]:
    """Ports of the golden answer that neither the specification nor a given file names, although they name others."""
    interface = problem.interface
    if interface is None or interface.source is not InterfaceSource.GOLDEN:
        return []
    words = _words(problem.prompt, *problem.context.values())
    names = [port.name for port in interface.ports if port.name not in words]
    return names if len(names) < len(interface.ports) else []


def certain_differences(
    problem: Problem,
    mismatches: Collection[InterfaceMismatch],
    got: Iterable[Port],
    answer: Mapping[str, str],
) -> Iterator[InterfaceMismatch]:
    """Yield the differences that fail an answer although it passes its harness, which may read an inner
    object by the name of a port. An answer without a demanded input can also set what the harness reads
    back.

    Certain is the interface of the golden answer, as far as a document or the harness names its ports, and
    a header in the specification if it has all ports that the harness drives: `mismatches` about ports
    count, and further inputs that the answer reads, which stay open. Otherwise the harness' ports count:
    those that it moves are inputs; those that it uses are outputs by an older version or by the documents,
    which may also mention bidirectional ports; and at least one is an output.
    """
    expected = problem.interface
    if expected is None:
        return
    use = harness_use(problem.harness)
    text = specification(problem)
    if _is_certain(expected, use):
        words = _words(text, *problem.harness.values()) if mismatches else set()
        for m in mismatches:
            if m.kind is MismatchKind.EXTRA_PORT:
                counts = str(m.got).startswith("in") and _is_read_open(m.name, answer)
            elif m.kind is MismatchKind.MISSING_PORT:
                counts = m.name in words
            else:
                counts = m.kind in _OF_PORTS and (
                    (m.expected, m.got) != _VECTORS or not _SIGNED.search(text)
                )
            if counts:
                yield m
        return
    guess = expected.source is InterfaceSource.HARNESS
    theirs = {port.name: port.direction or "output" for port in got}
    ways = ("output", "inout" if _BOTH_WAYS.search(text) else "output")
    # What the harness uses and the answer does not contain is no port but, for example, a method of a class
    # around the design.
    own = _words(_code(answer))
    names = own.intersection(use.names) if guess else use.names
    others = [
        port
        for port in expected.ports
        if port.name in names and likely_direction(port, text) != "input"
    ]
    inner = [port for port in others if theirs.get(port.name) not in ways]
    if not others and {*theirs.values()} == {"input"}:
        yield _differs(MismatchKind.MISSING_PORT, expected.module, "an output", "nothing")
    for port in expected.ports:
        have = theirs.get(port.name)
        if port.direction == "input" and port.name in use.moved:
            wrong = have != "input" and not (
                guess and _may_have_direction(port.name, have, problem, answer)
            )
        else:
            wrong = port in inner and (
                port.direction == "output" or inner == others or _is_output(port.name, text)
            )
        if wrong:
            yield _differs(
                MismatchKind.WRONG_DIRECTION,
                port.name,
                port.direction or "output",
                have or "no port",
            )


def likely_direction(port: Port, text: str) -> str:
    """Direction of a port; if it is unknown, an input by its name or the specification's `text`, else an output."""
    is_input = CLOCK_OR_RESET.search(port.name) or is_described_as(port.name, "input", text)
    return port.direction or ("input" if is_input else "output")


def _is_read_open(name: str, answer: Mapping[str, str]) -> bool:
    """Whether an answer reads a port that nobody connects, perhaps by a pasted name, and does not pull it."""
    code, name = _code(answer), rf"\b{re.escape(name)}\b"
    used = _SINK.sub(
        lambda sink: sink[0] if code.count(sink[1]) > 1 else "", _DECLARING.sub("", code)
    )
    return bool(re.search(f"``|{name}", used)) and not re.search(_PULLING + name, code)


def _is_certain(expected: Interface, use: HarnessUse) -> bool:
    if expected.source is InterfaceSource.SPECIFICATION:
        return {port.name for port in expected.ports}.issuperset(use.driven)
    return expected.source is InterfaceSource.GOLDEN


def _may_have_direction(
    name: str, direction: str | None, problem: Problem, answer: Mapping[str, str]
) -> bool:
    """Whether a name known only from the harness may be a port of this direction, or an inner object (None)."""
    text = specification(problem)
    if direction == "inout":
        return bool(_BOTH_WAYS.search(text))
    if direction == "output":
        return is_described_as(name, "output", text)
    inside = (
        _declared(name, answer)
        and bool(re.search(rf"\b{name}\b", text))
        and not is_described_as(name, "input", text)
    )
    return inside and not _is_read(name, problem.harness)


def _is_read(name: str, harness: Mapping[str, str]) -> bool:
    """Whether the harness' Python may read `dut.name`, that is, does more with the name than set it."""
    python = python_of(harness)
    unnamed = _ANY_NAME.search(python)
    written = len(re.findall(rf"\.{name}(?:\[[^\]\n]*\])?\.value\s*=(?!=)", python))
    return bool(unnamed) or written < len(re.findall(rf"\b{name}\b", python))


def specification(problem: Problem) -> str:
    """The prompt and all documents of a problem as one text."""
    return "\n".join(documents(problem.prompt, problem.context))


def _words(*texts: str) -> set[str]:
    return set(re.findall(r"\w+", "\n".join(texts)))


def _is_output(name: str, text: str) -> bool:
    return is_described_as(name, "output", text) and not is_described_as(name, "input", text)


def is_described_as(name: str, direction: str, text: str) -> bool:
    """Whether a text has the direction next to the name: in a declaration, a list or a table."""
    bits = r"(?:\[[^\]\n]*\])?"
    before = rf"\b{direction}\b(?:\s+(?:reg|wire|logic|signed))*[\s`*]*{bits}[\s`*]*{name}\b"
    behind = rf"\b{name}\b[\s`*|:(-]*{bits}[\s`*|:(-]*{direction}\b"
    return bool(re.search(f"{before}|{behind}", text, re.I))


def _declared(name: str, answer: Mapping[str, str]) -> bool:
    return bool(re.search(rf"\b{re.escape(name)}\b", _code(answer)))


def _code(answer: Mapping[str, str]) -> str:
    return "\n".join(map(code_of, answer.values()))


def _differs(
    kind: MismatchKind, name: str, expected: str | None, got: str | None
) -> InterfaceMismatch:
    return InterfaceMismatch(
        kind=kind, name=name[:MOST_CHARS], expected=expected, got=got and got[:MOST_CHARS]
    )


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def in_bits(width: int | str) -> str:
    return "1 bit" if str(width) == "1" else f"{width} bits"


def _describe(port: Port) -> str:
    parts = [port.direction or "port", None if port.width is None else f"of {in_bits(port.width)}"]
    return " ".join(filter(None, parts))


def demanded_values(
    problem: Problem, settings: Mapping[str, int] | None = None
) -> dict[str, list[int]]:
    """Right values of names when the harness has set `settings`; empty if nothing is known. Parses the
    problem's own files.

    For a parameter that the harness reads: its values, the default first. For a port: its width in bits by a certain
    interface, or the parameter after which the harness names a variable for the port's length.
    """
    if problem.interface is None:
        return {}
    use, demand, settings = harness_use(problem.harness), problem.interface, settings or {}
    # Some harnesses do not call the design `dut`, or guard their reads.
    read = use.parameters.intersection(re.findall(r"\.(\w+)", python_of(problem.harness)))
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
    vectors = demand.ports if _is_certain(demand, use) else ()
    right = {port.name: [port.width] for port in vectors if port.width and port.form in _VECTORS}
    for port, variables in use.measured.items():
        named = [
            value for name, value in settings.items() if name.lower().endswith(tuple(variables))
        ]
        if len(named) == 1:
            right[port] = named
    if not read:
        return right
    given = hdl_files(problem.context)
    before = (
        parse_interface(given, demand.module, InterfaceSource.CONTEXT, settings) if given else None
    )
    lines = problem.prompt.splitlines()
    for parameter in (*(before.parameters if before else ()), *demand.parameters):
        name = parameter.name
        if name in read and parameter.default is not None:
            told = [
                n
                for line in lines
                if re.search(rf"\b{name}\b", line)
                for n in _NUMBER.findall(line)
            ]
            right[name] = [parameter.default, *map(int, told)]
    return right
