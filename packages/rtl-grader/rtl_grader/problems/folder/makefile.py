"""Reads variables of a cocotb Makefile, without running it.

Covered: assignments, `ifeq` and its like, references, and the functions that only name folders. A value that
needs a shell or another function is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

UNKNOWN = "\0"
"""Stands in a value for what only running `make` could tell."""
_ASSIGNMENT = re.compile(r"(?:export\s+|override\s+)*([A-Za-z_]\w*)\s*(\?|\+|::?)?=\s*(.*)")
_CONDITION = re.compile(r"(ifn?eq)\s*(?:\((.*),(.*)\)|[\"'](.*)[\"']\s+[\"'](.*)[\"'])")
_REFERENCE = re.compile(r"\$[({]([^$(){}]*)[)}]")
_HERE = re.compile(r"PWD|CURDIR|shell pwd|dir\b.*|realpath \.|abspath \.")
_DEFINED = re.compile(r"(ifn?def)\s+(\w+)")
_PARAMETER = re.compile(r"-(?:P\s*\w+\.|G)(\w+)=(\S+)")
_PARAMETER_VARIABLE = "PARAM_"


class Makefile(NamedTuple):
    """What a cocotb Makefile says. Paths are relative to its folder."""

    module: str
    """The Python module with the tests; of several the first."""
    top: str
    sources: list[str]
    include: list[str]
    define: dict[str, str]
    parameters: dict[str, str]
    """Those set by options, and by variables `PARAM_NAME`; unknown values contain `UNKNOWN`."""
    plusargs: list[str]
    timescale: tuple[str, str]
    language: str
    """`verilog` or `vhdl`."""
    simulator: str


def read_makefile(text: str, simulator: str) -> Makefile:
    """Read a Makefile as `make SIM=simulator` would."""
    raw = _variables(text, {"SIM": simulator})
    values = {name: _value(value, raw) for name, value in raw.items()}
    arguments = " ".join(
        values.get(name, "") for name in ("COMPILE_ARGS", "EXTRA_ARGS", "SIM_ARGS")
    )
    plusargs = f"{values.get('PLUSARGS', '')} {values.get('COCOTB_PLUSARGS', '')} {arguments}"
    own = {
        name: value for name, value in values.items() if name.startswith(_PARAMETER_VARIABLE)
    }
    parameters = {name.removeprefix(_PARAMETER_VARIABLE): value for name, value in own.items()}
    parameters.update(_PARAMETER.findall(arguments))
    modules = values.get("COCOTB_TEST_MODULES") or values.get("MODULE", "")
    words = arguments.split()
    units = ("COCOTB_HDL_TIMEUNIT", "COCOTB_HDL_TIMEPRECISION")
    unit, precision = (values.get(name, "1ns") for name in units)
    return Makefile(
        module=re.split(r"[,\s]", modules.strip())[0],
        top=values.get("COCOTB_TOPLEVEL") or values.get("TOPLEVEL", ""),
        sources=values.get("VERILOG_SOURCES", "").split(),
        include=[
            *values.get("VERILOG_INCLUDE_DIRS", "").split(),
            *(word[2:] for word in words if word.startswith("-I")),
        ],
        define=dict(re.findall(r"-D\s*(\w+)(?:=(\S+))?", arguments)),
        parameters={name: value.strip() for name, value in parameters.items()},
        plusargs=[word for word in plusargs.split() if word.startswith("+")],
        timescale=(unit, precision if "COCOTB_HDL_TIMEPRECISION" in values else "1ps"),
        language=values.get("TOPLEVEL_LANG", "verilog"),
        simulator=values["SIM"],
    )


def _variables(text: str, variables: dict[str, str]) -> dict[str, str]:
    """Name -> value with its references, following the conditions."""
    active: list[bool | None] = []
    """For each open condition: whether its lines count; None when an earlier branch counted."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        line = (
            "" if line.startswith("\t") and not active else re.sub(r"\s*#.*", "", line).strip()
        )
        word, _, rest = line.partition(" ")
        if word.startswith(("ifeq", "ifneq", "ifdef", "ifndef")):
            active.append(_holds(line, variables))
        elif word == "else" and active:
            active[-1] = None if active[-1] is not False else _holds(rest, variables)
        elif word == "endif" and active:
            active.pop()
        elif all(active) and (assignment := _ASSIGNMENT.match(line)):
            name, kind, value = assignment.groups()
            if kind == "+":
                value = f"{variables.get(name, '')} {value}"
            elif kind in (":", "::"):
                value = _value(value, variables)
            if kind != "?" or name not in variables:
                variables[name] = value
    return variables


def _holds(line: str, variables: Mapping[str, str]) -> bool:
    """Whether a condition holds; one that cannot be read does not, and an empty one does."""
    if defined := _DEFINED.match(line):
        return (defined[2] in variables) == (defined[1] == "ifdef")
    if condition := _CONDITION.match(line):
        sides = [_value(side or "", variables).strip() for side in condition.groups()[1:]]
        first, second = sides[:2] if condition[2] is not None else sides[2:]
        return (first == second) == (condition[1] == "ifeq")
    return not line.strip()


def _value(text: str, variables: Mapping[str, str], depth: int = 50) -> str:
    """A text with its references replaced."""
    while depth and (reference := _REFERENCE.search(text)):
        inner = reference[1].strip()
        function, _, argument = inner.partition(" ")
        if inner in variables:
            value = variables[inner]
        elif _HERE.fullmatch(inner):
            value = "."
        elif function in ("abspath", "realpath", "wildcard"):
            value = argument.strip()
        else:
            value = UNKNOWN if argument or not inner.isidentifier() else ""
        text = text.replace(reference[0], value)
        depth -= 1
    return UNKNOWN if "$" in text else text
