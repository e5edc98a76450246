"""Finds Python modules and programs that a harness needs and the executor lacks, which is never the answer's fault."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Mapping

from rtl_grader.grading.executors.toolchain import shortcomings
from rtl_grader.problems.executed import parse_python
from rtl_grader.problems.harness_use import is_used

_VERILATED = re.compile(r"verilator\b.{0,300}?[\s\"'](--?(?:binary|exe|main|cc))\b", re.S)
"""A command that makes a program; its options may stand on several lines."""
_PROGRAMS = ("yosys", "verilator", "iverilog", "ghdl", "nvc")
_PROGRAM = f"({'|'.join(_PROGRAMS)})"
_COCOTB_TEST = re.compile(r"\bcocotb\.test\b|\bTestFactory\b|^[ \t]*@test\b", re.M)
_HINTS = {
    "cocotb_bus": "pip install cocotb-bus",
    "cocotbext": "pip install the cocotbext package that the harness names",
    "cocotb.runner": "this is a harness for cocotb 1.x: rtl-distill toolchain install",
}


def python_of(harness: Mapping[str, str]) -> str:
    """The text of all Python files of a harness."""
    return "\n".join(text for path, text in harness.items() if path.endswith(".py"))


def cocotb_generation(harness: Mapping[str, str]) -> int:
    """1 for a harness that needs cocotb 1.x (2.0 moved the runner to `cocotb_tools`), else 2."""
    return (
        1 if re.search(r"^\s*(?:from|import)\s+cocotb\.runner\b", python_of(harness), re.M) else 2
    )


def draws_random(harness: Mapping[str, str]) -> bool:
    """Whether the harness' Python imports a random number generator, so that verdicts may depend on the seed."""
    imports = r"^\s*(?:import|from)\s[^\n]*\brandom\b|\bnp\.random\b|\bnumpy\.random\b"
    return bool(re.search(imports, python_of(harness), re.M))


def uses_cocotb(harness: Mapping[str, str]) -> bool:
    """Whether the harness has cocotb tests, so that it cannot pass without a simulation."""
    python = python_of(harness)
    return "cocotb" in python and bool(_COCOTB_TEST.search(python))


def is_scripted(harness: Mapping[str, str]) -> bool:
    """Whether a simulation can only be one of the harness' own scripts: without cocotb or a rewritten test bench."""
    return "src/bench.json" not in harness and not any(
        "cocotb" in text for text in harness.values()
    )


def uses_several_tools(harness: Mapping[str, str]) -> bool:
    """Whether a linter or synthesiser reads the design besides Icarus; it may see different text."""
    text = "\n".join(harness.values())
    return any(re.search(rf"\b{tool}\b", text) for tool in ("verilator", "yosys") if tool in text)


def missing_requirements(
    harness: Mapping[str, str], available: Mapping[str, str], has_module: Callable[[str], bool]
) -> list[str]:
    """Descriptions of what the harness' used Python files import or call and the executor lacks.

    `available` are the executor's tools; `has_module` tells whether its Python can import a module. Imports
    inside `try` are optional.
    """
    lacking = []
    files = (
        parse_python(text)
        for path, text in harness.items()
        if path.endswith(".py") and is_used(path, harness)
    )
    trees = list(filter(None, files))
    older = "cocotb1" in available and cocotb_generation(harness) == 1
    for module in _imported(trees, harness):
        package = module.split(".")[0]
        if (
            package in sys.stdlib_module_names
            or (older and package == "cocotb")
            or has_module(module)
        ):
            continue
        hint = _HINTS.get(module) or _HINTS.get(package)
        lacking.append(f"the Python module {module}" + (f" ({hint})" if hint else ""))
    programs = _programs(trees, harness).difference(available)
    lacking += [f"the program {program}" for program in _PROGRAMS if program in programs]
    if option := next(filter(None, map(_VERILATED.search, harness.values())), None):
        lacking.append(
            f"a proof that Verilator's program ({option[1]}) ran its tests to the end; use cocotb"
        )
    old = shortcomings(available).get("verilator")
    if old and simulator(harness) == "verilator" and cocotb_generation(harness) == 2:
        lacking.append(f"a newer Verilator ({old}): rtl-distill toolchain install")
    return lacking


def simulator(harness: Mapping[str, str]) -> str | None:
    """The simulator that cocotb's runner gets: the setting SIM, a name in the call, or a default; None if unknown."""
    named = r"(?:^[\s-]*SIM\s*[=:]\s*[\"']?|get_runner\(\s*[\"']|\bSIM[\"']\]?\s*[,=]\s*[\"'])(\w+)"
    texts = "\n".join(harness[path] for path in sorted(harness))
    match = re.search(named, texts, re.M)
    return match and match[1]


def _imported(trees: Iterable[ast.Module], harness: Iterable[str]) -> list[str]:
    """Modules that Python files import, without the harness' own files and folders."""
    own = {part.split(".")[0] for path in harness for part in path.split("/")}
    names: list[str] = []
    for node in (node for tree in trees for node in tree.body):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return [name for name in dict.fromkeys(names) if name.split(".")[0] not in own]


def _programs(trees: Iterable[ast.Module], harness: Mapping[str, str]) -> set[str]:
    """Programs that the harness runs: named in a Python string, a compose command, or SIM of an env file."""
    constants = (
        node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)
    )
    first_words = (
        re.match(rf"\s*{_PROGRAM}(?!\S)", value) for value in constants if isinstance(value, str)
    )
    found = {word[1] for word in first_words if word}
    for path, text in harness.items():
        if path.endswith(("docker-compose.yml", ".sh")):
            commands = "\n".join(re.findall(r"command\s*:(.*)", text))
            found.update(re.findall(rf"(?<![\w./-]){_PROGRAM}(?![\w./-])", commands))
        elif ".env" in path:
            found.update(re.findall(rf"^\s*SIM\s*=\s*{_PROGRAM}\s*$", text, re.M))
    return found
