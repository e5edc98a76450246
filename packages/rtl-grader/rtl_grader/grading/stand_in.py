"""Answers that no model wrote, to see how far a harness gets by itself."""

from __future__ import annotations

import re
from itertools import chain
from posixpath import basename

from rtl_grader.grading.interface_check import CLOCK_OR_RESET, likely_direction, specification
from rtl_grader.grading.jobs import SOURCE_SUFFIXES
from rtl_grader.grading.requirements import python_of
from rtl_grader.hdl.text import module_names
from rtl_grader.hdl.tree import SourceTree, tokens
from rtl_grader.problems.harness_use import harness_use
from rtl_grader.problems.interface import top_levels
from rtl_grader.types.files import Files
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
    context = problem.context
    targets = [path for path in problem.targets if path.endswith(SOURCE_SUFFIXES)]
    files = {path: context.get(path, "") for path in targets}
    tops = [
        Interface(module=name, source=InterfaceSource.HARNESS)
        for name in top_levels(problem.harness)
    ]
    if problem.interface:
        tops = [problem.interface]
    # Documents and test benches of the context may contain the module, too, but no harness builds them.
    designs = [context[path] for path in context if path.startswith("rtl/")]
    present = {name for text in (*designs, *files.values()) for name in module_names(text)}
    for top in tops if files else ():
        if top.module not in present:
            top = completed(top, problem)
            body = "".join(f"  assign {port.name} = ~0;\n" for port in top.outputs)
            files[_place_of(top.module, files)] += render_module(top, body)
    return {path: text or "// nothing\n" for path, text in files.items()}


def _place_of(module: str, files: Files) -> str:
    """The file for a module: the one of its name, else the first empty one, else the first one."""
    same_name = (path for path in files if basename(path).split(".")[0] == module)
    empty = (path for path in files if not files[path].strip())
    return next(chain(same_name, empty, files))


def render_module(interface: Interface, body: str = "") -> str:
    """Return a module with this interface; widths are those of the default parameters, or one bit if unknown."""
    lines = []
    for parameter in interface.parameters:
        value = parameter.default
        if value is None:
            value = VALUE
        lines.append(f"parameter {parameter.name} = {value}")
    parameters = f" #({', '.join(lines)})" if lines else ""
    lines = [f"  {port.direction} {port.packed}{port.name}" for port in interface.ports]
    ports = ",\n".join(lines)
    return f"module {interface.module}{parameters} (\n{ports}\n);\n{body}endmodule\n"


def completed(interface: Interface, problem: Problem) -> Interface:
    """Return the interface with a direction and width for every port, and all parameters that the harness may set.

    A port of unknown direction is an output unless its name or the specification says that it is an input.
    Without an output, there is one that the harness does not name.
    """
    ports = tuple(_specified(port, problem) for port in interface.ports)
    if not any(port.direction == "output" for port in ports):
        ports += (Port(name="unnamed_output", direction="output", width=1),)
    names = _possible_parameters(problem.harness) - {interface.module}
    names -= {port.name for port in ports}
    names -= {parameter.name for parameter in interface.parameters}
    further = [Parameter(name=name) for name in sorted(filter(_is_identifier, names))]
    parameters = (*interface.parameters, *further)
    return interface.model_copy(update={"ports": ports, "parameters": parameters})


def _specified(port: Port, problem: Problem) -> Port:
    """The port with a direction and width."""
    direction = likely_direction(port, specification(problem))
    if port.width:
        width = port.width
    elif CLOCK_OR_RESET.search(port.name):
        width = 1
    else:
        # Any number that a harness writes fits into a wide input.
        width = 32
        if direction == "input":
            width = 1024
    return port.model_copy(update={"direction": direction, "width": width})


def _possible_parameters(harness: Files) -> set[str]:
    """Every name that the harness may set as a parameter. Icarus 12 rejects parameters that a module lacks;
    extra ones are harmless. Includes the keys of all dictionaries, since some harnesses pass parameters
    through variables.
    """
    keys = re.findall(r"[\"']([A-Za-z_]\w*)[\"']\s*(?::|\]\s*=[^=])", python_of(harness))
    return {*keys, *harness_use(harness).parameters}


def _is_identifier(word: str) -> bool:
    """Whether a word is a SystemVerilog identifier and no keyword."""
    kinds = (str(token.kind) for token in tokens(SourceTree(f"wire {word};").root))
    return "TokenKind.Identifier" in kinds
