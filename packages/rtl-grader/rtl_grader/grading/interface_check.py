"""Compares an answer's interface with the demanded one: ports, parameters, and parameter values.

A design must not choose parameters that a harness reads from it and does not set. A test bench that reads `dut.WIDTH`
trusts the answer, so a design of one bit would pass most of them. Such a parameter must keep the default of the golden
answer, the specification, or the file to be changed, unless the prompt names another number for it. A
default computed from parameters that the harness sets follows them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from rtl_grader.grading.requirements import python_of
from rtl_grader.hdl.interface import hdl_files, parse_interface
from rtl_grader.hdl.text import code_of, module_names
from rtl_grader.problems.harness_use import HarnessUse, harness_use
from rtl_grader.problems.interface import derive_interface, documents, top_levels
from rtl_grader.problems.judged import is_judged
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Interface, InterfaceSource, Port, Problem
from rtl_grader.types.verdict import FRAGMENT, MOST_CHARS, InterfaceMismatch, MismatchKind

Mismatches = tuple[InterfaceMismatch, ...]

_NUMBER = re.compile(r"(?<![\w'+*/-])(?<![+*/-]\s)\d+(?![\w'])")
_ANY_NAME = re.compile(
    r"getattr\(\s*[\w.]+\s*,\s*(?![\"']\w+[\"']\s*[,)])|\bin\s+[\w.]*dut\b|\bdut\[|__getattr__|\b_id\(|_handles\b"
)
"""Python code that may read an object of the design without naming it."""
_WORD = re.compile(r"\w+")
_VECTORS = ("vector", "signed vector")
_SIGNED = re.compile(r"\b(?:un)?signed\b|complement|\bnegative\b", re.I)
_DECLARING = re.compile(r"\b(?:module|input|inout|pullup|pulldown)\b")
_SINK = re.compile(r"\b(?:wire|logic)\s+(\w+)\s*=")
"""A net with a value. If its name says `unused` and nothing else has it, it only shows a linter that signals are
unused."""
CLOCK_OR_RESET = re.compile(
    r"^(?!o_)\w*?(?:clk|clock|rst|reset)(?:_async)?(?:_?n|_b|_i|_in)?$", re.I
)
"""Names of clocks and resets, which are inputs of one bit."""
_PACKED = ("struct packed{", "union packed{")
_PULLING = re.compile(r"\b(?:tri0|tri1|pullup|pulldown)\b")
_DIRECTION = re.compile(r"\b(?:input|output)\b")
_BOTH_WAYS = re.compile(r"inout|bi-?direction|tri-?state", re.I)


def compare(expected: Interface, got: Interface | None, answer: Files) -> Mismatches:
    """Return every forbidden difference; `got` None means that the module is missing.

    Unknown directions, widths and types (None) are not compared. Extra parameters with defaults are
    harmless and listed only next to other differences. A name known only from the harness may be any object
    of the module, so the answer only has to declare it.
    """
    if got is None:
        names = sorted({name for text in answer.values() for name in module_names(text)})
        listed = ", ".join(names[:5]) or FRAGMENT
        return (
            mismatch_of(MismatchKind.WRONG_MODULE, expected.module, expected.module, listed),
        )
    mismatches = [
        *_port_differences(expected, got, answer),
        *_parameter_differences(expected, got),
    ]
    if mismatches and expected.exact:
        names = [parameter.name for parameter in expected.parameters]
        extra = (parameter for parameter in got.parameters if parameter.name not in names)
        kind = MismatchKind.EXTRA_PARAMETER
        mismatches += [mismatch_of(kind, each.name, "nothing", each.default) for each in extra]
    return tuple(mismatches)


def _port_differences(
    expected: Interface, got: Interface, answer: Files
) -> Iterator[InterfaceMismatch]:
    theirs = {port.name: port for port in got.ports}
    for port in expected.ports:
        other = theirs.pop(port.name, None)
        if other is None:
            if expected.source is not InterfaceSource.HARNESS or not _declared(
                port.name, answer
            ):
                yield mismatch_of(
                    MismatchKind.MISSING_PORT, port.name, port_in_words(port), "nothing"
                )
            continue
        if port.direction and other.direction and port.direction != other.direction:
            yield mismatch_of(
                MismatchKind.WRONG_DIRECTION, port.name, port.direction, other.direction
            )
        if port.width and other.width and port.width != other.width:
            widths = in_bits(port.width), in_bits(other.width)
            yield mismatch_of(MismatchKind.WRONG_WIDTH, port.name, *widths)
        if port.form and other.form and not _fits(other.form, port.form):
            yield mismatch_of(MismatchKind.WRONG_TYPE, port.name, port.form, other.form)
    for port in theirs.values() if expected.exact else ():
        yield mismatch_of(MismatchKind.EXTRA_PORT, port.name, "nothing", port_in_words(port))


def _fits(form: str, demand: str) -> bool:
    """Whether a port of this type may stand for one of the demanded type."""
    if demand in _VECTORS and form.startswith(_PACKED):
        return True
    return demand in (form, f"signed {form}")


def _parameter_differences(expected: Interface, got: Interface) -> Iterator[InterfaceMismatch]:
    theirs = {parameter.name: parameter for parameter in got.parameters}
    for parameter in expected.parameters:
        name = parameter.name
        default = parameter.default
        other = theirs.get(name)
        if other is None:
            yield mismatch_of(MismatchKind.MISSING_PARAMETER, name, default, "nothing")
        elif parameter.is_type != other.is_type:
            demand = "a value"
            if parameter.is_type:
                demand = "a type"
            yield mismatch_of(MismatchKind.WRONG_TYPE, name, demand, None)
        elif None not in (default, other.default) and default != other.default:
            yield mismatch_of(MismatchKind.WRONG_PARAMETER, name, default, other.default)


def is_fatal(mismatches: Mismatches, harness: Files, sources: Iterable[str]) -> bool:
    """Whether the harness cannot build because no source has the module that it names as its top level.

    `sources` are the texts of all design files. Every other mismatch is only advice, since the demand was
    derived from a specification or the harness' code; running the harness decides.
    """
    tops = names_of(MismatchKind.WRONG_MODULE, mismatches).intersection(top_levels(harness))
    return bool(tops) and all(tops.isdisjoint(module_names(text)) for text in sources)


def is_hopeless(mismatches: Mismatches, harness: Files) -> bool:
    """Whether the harness' executed code uses a port that the answer lacks, so that one failing test is enough."""
    ports = names_of(MismatchKind.MISSING_PORT, mismatches)
    return not ports.isdisjoint(harness_use(harness).names)


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
    if len(names) < len(interface.ports):
        return names
    return []


def certain_differences(
    problem: Problem,
    mismatches: Collection[InterfaceMismatch],
    got: Iterable[Port],
    answer: Files,
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
        # A test bench of the golden answer's widths does not see another width of an output.
        fatal = {MismatchKind.WRONG_WIDTH} if is_judged(problem.harness) else set()
        for mismatch in mismatches:
            if mismatch.kind in fatal or _is_grave(mismatch, words, text, answer):
                yield mismatch
        return
    guess = expected.source is InterfaceSource.HARNESS
    theirs = {port.name: port.direction or "output" for port in got}
    ways = {"output", "inout"} if _BOTH_WAYS.search(text) else {"output"}
    names: Collection[str] = use.names
    if guess:
        # What the harness uses and the answer does not contain is no port but, for example, a method of a
        # class around the design.
        names = _words(_code(answer)).intersection(names)
    ports = [port for port in expected.ports if port.name in names]
    outputs = [port for port in ports if likely_direction(port, text) != "input"]
    inner = [port for port in outputs if theirs.get(port.name) not in ways]
    if not outputs and {*theirs.values()} == {"input"}:
        yield mismatch_of(MismatchKind.MISSING_PORT, expected.module, "an output", "nothing")
    for port in expected.ports:
        name = port.name
        have = theirs.get(port.name)
        demand = port.direction or "output"
        if port.direction == "input" and name in use.moved:
            wrong = have != "input"
            if wrong and guess:
                wrong = not _may_have_direction(name, have, problem, answer)
        elif port in inner:
            wrong = port.direction == "output" or inner == outputs or _is_output(name, text)
        else:
            wrong = False
        if wrong:
            yield mismatch_of(MismatchKind.WRONG_DIRECTION, name, demand, have or "no port")


def _is_grave(mismatch: InterfaceMismatch, words: set[str], text: str, answer: Files) -> bool:
    """Whether a difference from a certain interface fails an answer that passes its harness. `words` are
    those of the specification's `text` and of the harness."""
    match mismatch.kind:
        case MismatchKind.EXTRA_PORT:
            return str(mismatch.got).startswith("in") and _is_read_open(mismatch.name, answer)
        case MismatchKind.MISSING_PORT:
            return mismatch.name in words
        case MismatchKind.WRONG_DIRECTION | MismatchKind.WRONG_TYPE:
            is_sign = (mismatch.expected, mismatch.got) == _VECTORS
            return not (is_sign and _SIGNED.search(text))
    return False


def likely_direction(port: Port, text: str) -> str:
    """Direction of a port; if it is unknown, an input by its name or the specification's `text`, else an output."""
    is_input = CLOCK_OR_RESET.search(port.name) or is_described_as(port.name, "input", text)
    return port.direction or ("input" if is_input else "output")


def _is_read_open(name: str, answer: Files) -> bool:
    """Whether an answer reads a port that nobody connects, perhaps by a pasted name, and does not pull it.

    Takes time linear in the length of any text.
    """
    code = _code(answer)
    word = re.compile(rf"\b{re.escape(name)}\b")
    uses = Counter(_WORD.findall(code))
    is_read = False
    *statements, rest = code.split(";")
    for statement in statements:
        for part in _DIRECTION.split(statement):
            pull = _PULLING.search(part)
            if pull and word.search(part, pull.end()):
                return False
        declaration = _DECLARING.search(statement)
        if declaration:
            statement = statement[: declaration.start()]
        elif sink := _SINK.search(statement):
            net = sink[1]
            if "unused" in net.lower() and uses[net] == 1:
                statement = statement[: sink.start()]
        is_read = is_read or "``" in statement or bool(word.search(statement))
    return is_read or "``" in rest or bool(word.search(rest))


def _is_certain(expected: Interface, use: HarnessUse) -> bool:
    if expected.source is InterfaceSource.SPECIFICATION:
        return {port.name for port in expected.ports}.issuperset(use.driven)
    return expected.source is InterfaceSource.GOLDEN


def _may_have_direction(
    name: str, direction: str | None, problem: Problem, answer: Files
) -> bool:
    """Whether a name known only from the harness may be a port of this direction, or an inner object (None)."""
    text = specification(problem)
    if direction == "inout":
        return bool(_BOTH_WAYS.search(text))
    if direction == "output":
        return is_described_as(name, "output", text)
    if not _declared(name, answer) or not re.search(rf"\b{name}\b", text):
        return False
    return not is_described_as(name, "input", text) and not _is_read(name, problem.harness)


def _is_read(name: str, harness: Files) -> bool:
    """Whether the harness' Python may read `dut.name`, that is, does more with the name than set it."""
    python = python_of(harness)
    writes = re.findall(rf"\.{name}(?:\[[^\]\n]*\])?\.value\s*=(?!=)", python)
    uses = re.findall(rf"\b{name}\b", python)
    return bool(_ANY_NAME.search(python)) or len(writes) < len(uses)


def specification(problem: Problem) -> str:
    """The prompt and all documents of a problem as one text."""
    return "\n".join(documents(problem.prompt, problem.context))


def _words(*texts: str) -> set[str]:
    return set(_WORD.findall("\n".join(texts)))


def _is_output(name: str, text: str) -> bool:
    return is_described_as(name, "output", text) and not is_described_as(name, "input", text)


def is_described_as(name: str, direction: str, text: str) -> bool:
    """Whether a text has the direction next to the name: in a declaration, a list or a table."""
    bits = r"(?:\[[^\]\n]*\])?"
    before = rf"\b{direction}\b(?:\s+(?:reg|wire|logic|signed))*[\s`*]*{bits}[\s`*]*{name}\b"
    behind = rf"\b{name}\b[\s`*|:(-]*{bits}[\s`*|:(-]*{direction}\b"
    return bool(re.search(f"{before}|{behind}", text, re.I))


def _declared(name: str, answer: Files) -> bool:
    return bool(re.search(rf"\b{re.escape(name)}\b", _code(answer)))


def _code(answer: Files) -> str:
    return "\n".join(map(code_of, answer.values()))


def mismatch_of(
    kind: MismatchKind, name: str, expected: object, got: object
) -> InterfaceMismatch:
    demand = None
    if expected is not None:
        demand = str(expected)
    text = None
    if got is not None:
        text = str(got)[:MOST_CHARS]
    return InterfaceMismatch(kind=kind, name=name[:MOST_CHARS], expected=demand, got=text)


def in_bits(width: int | str) -> str:
    if str(width) == "1":
        return "1 bit"
    return f"{width} bits"


def port_in_words(port: Port) -> str:
    words = port.direction or "port"
    if port.width is None:
        return words
    return f"{words} of {in_bits(port.width)}"


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
    use = harness_use(problem.harness)
    demand = problem.interface
    settings = settings or {}
    # Some harnesses do not call the design `dut`, or guard their reads.
    names = use.parameters.intersection(re.findall(r"\.(\w+)", python_of(problem.harness)))
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
    ports = demand.ports if _is_certain(demand, use) else ()
    right = {port.name: [port.width] for port in ports if port.width and port.form in _VECTORS}
    for name, variables in use.measured.items():
        endings = tuple(variables)
        lengths = [settings[key] for key in settings if key.lower().endswith(endings)]
        if len(lengths) == 1:
            right[name] = lengths
    if not names:
        return right
    parameters = demand.parameters
    if context := hdl_files(problem.context):
        before = parse_interface(context, demand.module, InterfaceSource.CONTEXT, settings)
        parameters = (*(before.parameters if before else ()), *parameters)
    for parameter in parameters:
        name = parameter.name
        if name in names and parameter.default is not None:
            right[name] = [parameter.default, *_numbers_beside(name, problem.prompt)]
    return right


def _numbers_beside(name: str, prompt: str) -> list[int]:
    """Numbers in the lines of a prompt that contain a name."""
    lines = (line for line in prompt.splitlines() if re.search(rf"\b{name}\b", line))
    return [int(number) for line in lines for number in _NUMBER.findall(line)]
