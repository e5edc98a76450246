"""Finds Python modules and programs that a harness needs and the executor lacks, which is never the answer's fault."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable

from rtl_grader.grading.executors.toolchain import Versions, shortcomings
from rtl_grader.problems.executed import parse_python
from rtl_grader.problems.harness_use import is_used
from rtl_grader.problems.judged import is_judged
from rtl_grader.types.files import Files
from rtl_grader.words import command

_VERILATED = re.compile(r"verilator\b.{0,300}?[\s\"'](--?(?:binary|exe|main|cc))\b", re.S)
"""A command that makes a program; its options may stand on several lines."""
_PROGRAMS = ("yosys", "verilator", "iverilog", "ghdl", "nvc")
_PROGRAM = f"({'|'.join(_PROGRAMS)})"
_COCOTB_TEST = re.compile(r"\bcocotb\.test\b|\bTestFactory\b|^[ \t]*@test\b", re.M)
_SIMULATOR = re.compile(
    r"(?:^[\s-]*SIM\s*[=:]\s*[\"']?|get_runner\(\s*[\"']|\bSIM[\"']\]?\s*[,=]\s*[\"'])(\w+)",
    re.M,
)
_HINTS = {
    "cocotb_bus": "pip install cocotb-bus",
    "cocotbext": "pip install the cocotbext package that the harness names",
    "cocotb.runner": "this is a harness for cocotb 1.x: {newer}",
}


def python_of(harness: Files) -> str:
    """The text of all Python files of a harness."""
    return "\n".join(text for path, text in harness.items() if path.endswith(".py"))


def cocotb_generation(harness: Files) -> int:
    """1 for a harness that needs cocotb 1.x (2.0 moved the runner to `cocotb_tools`), else 2."""
    older = re.search(r"^\s*(?:from|import)\s+cocotb\.runner\b", python_of(harness), re.M)
    if older:
        return 1
    return 2


def draws_random(harness: Files) -> bool:
    """Whether the harness' Python imports a random number generator, so that verdicts may depend on the seed."""
    imports = r"^\s*(?:import|from)\s[^\n]*\brandom\b|\bnp\.random\b|\bnumpy\.random\b"
    return bool(re.search(imports, python_of(harness), re.M))


def uses_cocotb(harness: Files) -> bool:
    """Whether the harness has cocotb tests, so that it cannot pass without a simulation."""
    python = python_of(harness)
    return "cocotb" in python and bool(_COCOTB_TEST.search(python))


def is_scripted(harness: Files) -> bool:
    """Whether a simulation can only be one of the harness' own scripts: without cocotb or a rewritten test bench, and
    not judged by the golden answer."""
    attests = is_judged(harness) or "src/bench.json" in harness
    return not attests and not any("cocotb" in text for text in harness.values())


def uses_several_tools(harness: Files) -> bool:
    """Whether a linter or synthesiser reads the design besides Icarus; it may see different text."""
    return bool(re.search(r"\b(?:verilator|yosys)\b", "\n".join(harness.values())))


def missing_requirements(
    harness: Files, available: Versions, has_module: Callable[[str], bool]
) -> list[str]:
    """Descriptions of what the harness' used Python files import or call and the executor lacks.

    `available` are the executor's tools; `has_module` tells whether its Python can import a module. Imports
    inside `try` are optional.
    """
    needs = []
    paths = [path for path in harness if path.endswith(".py") and is_used(path, harness)]
    trees = list(filter(None, (parse_python(harness[path]) for path in paths)))
    generation = cocotb_generation(harness)
    newer = command("toolchain install")
    present = set(sys.stdlib_module_names)
    if generation == 1 and "cocotb1" in available:
        present.add("cocotb")
    for module in _imports(trees, harness):
        package = module.split(".")[0]
        if package not in present and not has_module(module):
            hint = _HINTS.get(module) or _HINTS.get(package)
            needs.append(
                f"the Python module {module}"
                + (f" ({hint.format(newer=newer)})" if hint else "")
            )
    programs = _programs(trees, harness).difference(available)
    needs += [f"the program {program}" for program in _PROGRAMS if program in programs]
    if option := next(filter(None, map(_VERILATED.search, harness.values())), None):
        needs.append(
            f"a proof that Verilator's program ({option[1]}) ran its tests to the end; use cocotb"
        )
    shortcoming = shortcomings(available).get("verilator")
    if shortcoming and generation == 2 and simulator(harness) == "verilator":
        needs.append(f"a newer Verilator ({shortcoming}): {newer}")
    return needs


def simulator(harness: Files) -> str | None:
    """The simulator that cocotb's runner gets: the setting SIM, a name in the call, or a default; None if unknown."""
    text = "\n".join(harness[path] for path in sorted(harness))
    match = _SIMULATOR.search(text)
    return match and match[1]


def _imports(trees: Iterable[ast.Module], harness: Iterable[str]) -> list[str]:
    """Modules that Python files import, without the harness' own files and folders."""
    own = {part.split(".")[0] for path in harness for part in path.split("/")}
    names: list[str] = []
    for node in (node for tree in trees for node in tree.body):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return [name for name in dict.fromkeys(names) if name.split(".")[0] not in own]


def _programs(trees: Iterable[ast.Module], harness: Files) -> set[str]:
    """Programs that the harness runs: named in a Python string, a compose command, or SIM of an env file."""
    names: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.update(re.findall(rf"\A\s*{_PROGRAM}(?!\S)", node.value))
    for path, text in harness.items():
        if path.endswith(("docker-compose.yml", ".sh")):
            commands = "\n".join(re.findall(r"command\s*:(.*)", text))
            names.update(re.findall(rf"(?<![\w./-]){_PROGRAM}(?![\w./-])", commands))
        elif ".env" in path:
            names.update(re.findall(rf"^\s*SIM\s*=\s*{_PROGRAM}\s*$", text, re.M))
    return names
