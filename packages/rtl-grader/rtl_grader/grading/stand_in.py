"""Answers that no model wrote, to see how far a harness gets by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from posixpath import basename

from rtl_grader.grading.interface_check import CLOCK_OR_RESET, likely_direction, specification
from rtl_grader.grading.jobs import SOURCE_SUFFIXES
from rtl_grader.grading.requirements import python_of
from rtl_grader.hdl.text import module_names
from rtl_grader.hdl.tree import SourceTree, tokens
from rtl_grader.problems.harness_use import harness_use
from rtl_grader.problems.interface import top_levels
from rtl_grader.types.problem import Interface, InterfaceSource, Parameter, Port, Problem

VALUE = 8
"""Default of parameters whose default is unknown."""


def stand_in(problem: Problem) -> dict[str, str]:
    """Return an answer to `problem` that elaborates but may be wrong: path -> text.

    This is the golden answer if there is one, else the context's versions of the targets, else a module
    with the demanded interface whose outputs are all ones. Targets other than HDL are omitted.
    """
    if problem.golden:
        return dict(problem.golden)
    files = {
        path: problem.context.get(path, "")
        for path in problem.targets
        if path.endswith(SOURCE_SUFFIXES)
    }
    unknown = (
        Interface(module=top, source=InterfaceSource.HARNESS) for top in top_levels(problem.harness)
    )
    tops = [problem.interface] if problem.interface else unknown
    # Documents and test benches of the context may contain the module, too, but no harness builds them.
    designs = [text for path, text in problem.context.items() if path.startswith("rtl/")]
    given = {name for text in (*designs, *files.values()) for name in module_names(text)}
    for top in (completed(top, problem) for top in tops if top.module not in given and files):
        place = next((path for path in files if basename(path).split(".")[0] == top.module), None)
        place = place or next(
            (path for path, text in files.items() if not text.strip()), next(iter(files))
        )
        outputs = (port.name for port in top.ports if port.direction == "output")
        files[place] += render_module(top, "".join(f"  assign {name} = ~0;\n" for name in outputs))
    return {path: text or "// nothing\n" for path, text in files.items()}


def render_module(interface: Interface, body: str = "") -> str:
    """Return a module with this interface; widths are those of the default parameters, or one bit if unknown."""
    values = {p.name: VALUE if p.default is None else p.default for p in interface.parameters}
    parameters = ", ".join(f"parameter {name} = {value}" for name, value in values.items())
    ports = ",\n".join(f"  {port.direction} {port.packed}{port.name}" for port in interface.ports)
    return f"module {interface.module}{f' #({parameters})' if parameters else ''} (\n{ports}\n);\n{body}endmodule\n"


def completed(interface: Interface, problem: Problem) -> Interface:
    """Return the interface with a direction and width for every port, and all parameters that the harness may set.

    A port of unknown direction is an output unless its name or the specification says that it is an input.
    Without an output, there is one that the harness does not name.
    """
    ports = tuple(_known(port, problem) for port in interface.ports)
    if not any(port.direction == "output" for port in ports):
        ports += (Port(name="unnamed_output", direction="output", width=1),)
    taken = {
        interface.module,
        *(port.name for port in ports),
        *(known.name for known in interface.parameters),
    }
    names = sorted(
        name for name in _possible_parameters(problem.harness) - taken if _is_identifier(name)
    )
    parameters = (*interface.parameters, *(Parameter(name=name) for name in names))
    return interface.model_copy(update={"ports": ports, "parameters": parameters})


def _known(port: Port, problem: Problem) -> Port:
    """The port with a direction and width."""
    single = CLOCK_OR_RESET.search(port.name)
    direction = likely_direction(port, specification(problem))
    # Any number that a harness writes fits into a wide input.
    width = port.width or (1 if single else 1024 if direction == "input" else 32)
    return port.model_copy(update={"direction": direction, "width": width})


def _possible_parameters(harness: Mapping[str, str]) -> set[str]:
    """Every name that the harness may set as a parameter. Icarus 12 rejects parameters that a module lacks;
    extra ones are harmless. Includes the keys of all dictionaries, since some harnesses pass parameters
    through variables.
    """
    keys = re.findall(r"[\"']([A-Za-z_]\w*)[\"']\s*(?::|\]\s*=[^=])", python_of(harness))
    return {*keys, *harness_use(harness).parameters}


def _is_identifier(word: str) -> bool:
    """Whether a word is a SystemVerilog identifier and no keyword."""
    return any(
        str(token.kind) == "TokenKind.Identifier"
        for token in tokens(SourceTree(f"wire {word};").root)
    )
