"""What a cocotb Makefile says, which is read and not run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from os.path import dirname, join, normpath

from rtl_grader.problems.faults import FieldError
from rtl_grader.problems.folder.files import Folder

_UNKNOWN = "<needs-a-shell>"
"""Stands in a value for what only running `make` could tell."""
_ASSIGNMENT = re.compile(r"^[ \t]*(?:export +)?(\w+)[ \t]*([?+:]*)=[ \t]*([^#\n]*)", re.M)
_CONTINUED = re.compile(r"\\\n\s*")
_REFERENCE = re.compile(r"\$[({]([^$(){}]*)[)}]")
_HERE = re.compile(
    r"PWD|CURDIR|shell pwd|dir\b.*|(?:abspath|realpath)\s*\.?|lastword\s*|MAKEFILE_LIST"
)
_MAX_REFERENCES = 20
"""Most references below one another."""
_ARGUMENTS = ("COMPILE_ARGS", "EXTRA_ARGS", "SIM_ARGS", "PLUSARGS", "COCOTB_PLUSARGS")
_OPTION = re.compile(r"(?<!\S)(-D|\+|-G|-P\s*\w+\.)(\w+)=?(\S*)")
_TIMES = {"COCOTB_HDL_TIMEUNIT": "1ns", "COCOTB_HDL_TIMEPRECISION": "1ps"}
_PARAMETER = "PARAM_"
"""Before the name of a parameter in that of a variable."""


@dataclass
class MakeKeys:
    """What a Makefile says; values that need a shell do not pass for words."""

    test: str = ""
    """The Python file with its tests."""
    given: list[str] = field(default_factory=list)
    """Its sources, as far as the folder has them."""
    define: dict[str, int | str] = field(default_factory=dict)
    plusargs: tuple[str, ...] = ()
    parameters: dict[str, str] = field(default_factory=dict)


def make_keys(folder: Folder, path: str) -> MakeKeys:
    """What a Makefile of a folder says. Raises FieldError if it sets other units of time than are used."""
    variables = make_variables(folder.text(path))
    modules = variables.get("COCOTB_TEST_MODULES") or variables.get("MODULE", "")
    module, *_ = modules.split(",")
    for name, usual in _TIMES.items():
        if variables.get(name, usual) != usual:
            raise FieldError(path, f"{name} is {variables[name]}: only {usual} can be graded")
    here = dirname(path)
    keys = MakeKeys(join(here, f"{module}.py"))
    for name in variables.get("VERILOG_SOURCES", "").split():
        source = normpath(join(here, name))
        if (folder.root / source).exists():
            keys.given.append(source)
    for name, value in variables.items():
        if name.startswith(_PARAMETER):
            keys.parameters[name.removeprefix(_PARAMETER)] = value
    arguments = " ".join(variables.get(name, "") for name in _ARGUMENTS)
    for option, name, value in _OPTION.findall(arguments):
        if option == "-D":
            keys.define[name] = value or 1
        elif option == "+":
            plusarg = f"+{name}={value}" if value else f"+{name}"
            keys.plusargs += (plusarg,)
        else:
            keys.parameters[name] = value
    return keys


def make_variables(text: str) -> dict[str, str]:
    """Variables of a Makefile: name -> value, with references.

    Conditions are ignored: the assignments of all branches count, as far as each adds or is the first.
    """
    raw = {"SIM": "icarus"}
    joined = _CONTINUED.sub(" ", text)
    for name, kind, value in _ASSIGNMENT.findall(joined):
        before = raw.setdefault(name, "" if kind == "+" else value)
        if kind == "+":
            raw[name] = f"{before} {value}"
    return {name: _expanded(value, raw) for name, value in raw.items()}


def _expanded(value: str, variables: dict[str, str]) -> str:
    def replaced(reference: re.Match[str]) -> str:
        name = reference[1].strip()
        if _HERE.fullmatch(name):
            return "."
        return variables.get(name, "" if name.isidentifier() else _UNKNOWN)

    for _ in range(_MAX_REFERENCES):  # one to itself ends here
        value = _REFERENCE.sub(replaced, value)
    return _UNKNOWN if "$" in value else value.strip()
