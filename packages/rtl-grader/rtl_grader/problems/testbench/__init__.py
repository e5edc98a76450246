"""Sets with Verilog test benches of their own: each bench becomes a CVDP harness with one compose service.

The bench is rewritten once (rewrite.py) so that its verdict goes where no design can write. `run_bench.py`,
which is part of the harness, turns it into an exit code. A bench that a design can fool by its behaviour
alone is for validation to find.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from rtl_grader.hdl.interface import parse_interface
from rtl_grader.hdl.tree import Edit, Node, SourceTree, children, is_token, name_of, tokens, walk
from rtl_grader.problems.interface import derive_interface
from rtl_grader.problems.problem_set import BrokenLine, ProblemSet
from rtl_grader.problems.testbench.rewrite import rewritten
from rtl_grader.types.problem import Difficulty, InterfaceSource, Problem

COMPOSE = """\
services:

  testbench:
    image: __OSS_SIM_IMAGE__
    volumes:
      - ./src/:/src/:ro
    working_dir: /code/rundir
    env_file: ./src/.env
    command: python3 /src/run_bench.py
"""
_SIGNALS = frozenset(
    {
        *(
            "Declarator",
            "PortReference",
            "ExplicitAnsiPort",
            "ExplicitNonAnsiPort",
            "ModportNamedPort",
            "LoopGenerate",
        ),
        *("NamedPortConnection", "NamedParamAssignment", "InstanceName"),
    }
)
_UNITS = frozenset(
    {"ModuleDeclaration", "InterfaceDeclaration", "PackageDeclaration", "ProgramDeclaration"}
)


@dataclass(frozen=True)
class Bench:
    """A test bench and the form of its verdict."""

    sources: Mapping[str, str]
    """Verilog files of the bench, compiled in this order before the design: name -> text."""
    design: str
    """Workspace path of the answer."""
    dut: str
    """Name of the module that the bench instantiates."""
    top: str
    """Name of the bench's top module."""
    marker: str
    """Text at the start of the verdict, in a printing call of the bench."""
    passed: str = ""
    """Regular expression that must match after the marker, on every line with it, when the design passes."""
    golden: str | None = None
    """A correct design; it gives the required port directions."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Files that the bench reads: name -> text."""


def bench_harness(bench: Bench) -> dict[str, str]:
    """Return the harness of a bench: path -> text. Raises ValueError when the bench never prints the marker."""
    ports = _ports(bench)
    made = rewritten(bench.sources, dut=bench.dut, top=bench.top, marker=bench.marker, ports=ports)
    settings = {
        "design": bench.design,
        "dut": bench.dut,
        "top": made.top,
        "data": [*bench.data],
        "marker": bench.marker,
        "passed": bench.passed,
        **{
            name: getattr(made, name)
            for name in ("ended", "tasks", "timescale", "overridden", "connected")
        },
        "ports": ports,
    }
    sources = f"VERILOG_SOURCES = /code/{bench.design}\nTOPLEVEL = {bench.dut}\n"
    return {
        "docker-compose.yml": COMPOSE,
        "src/.env": f"SIM = icarus\nTOPLEVEL_LANG = verilog\n{sources}",
        "src/run_bench.py": (files("rtl_grader.problems.testbench") / "run_bench.py").read_text(),
        "src/bench.json": json.dumps(settings, indent=1) + "\n",
        "src/bench.sv": made.text,
        **{f"src/{name}": text for name, text in bench.data.items()},
    }


def bench_problem(bench: Bench, source: str, name: str, prompt: str) -> Problem:
    """Return the problem `source_name` (hyphens become `_`) that asks for a design and grades it with a bench.

    Raises ValueError as `bench_harness` does.
    """
    harness, targets = bench_harness(bench), (bench.design,)
    golden = None if bench.golden is None else {bench.design: bench.golden}
    prompt = prompt.strip() + "\n"
    return Problem(
        id=f"{source.replace('-', '_')}_{name}",
        source=source,
        category="cid003",
        difficulty=difficulty_of(bench.golden or next(iter(bench.sources.values()))),
        prompt=prompt,
        targets=targets,
        harness=harness,
        golden=golden,
        interface=derive_interface(
            prompt=prompt, context={}, targets=targets, harness=harness, golden=golden
        ),
    )


def read_benches(
    found: Iterable[tuple[str, str, str, Callable[[], Problem]]], source: str
) -> ProblemSet:
    """Read a set's problems, given as (place, name, bench file, reader); one that cannot be read is a BrokenLine."""
    made = ProblemSet()
    for place, name, bench, read in found:
        try:
            made.problems.append(read())
        except OSError as error:
            file = Path(str(error.filename)).name
            made.broken.append(
                BrokenLine(place, 1, name, file, error.strerror or str(error), source)
            )
        except ValueError as error:
            made.broken.append(BrokenLine(place, 1, name, bench, str(error), source))
    return made


def _ports(bench: Bench) -> list[tuple[str, str]]:
    """(name, direction) of the golden design's ports, in order; empty without a golden design."""
    if bench.golden is None:
        return []
    interface = parse_interface({bench.design: bench.golden}, bench.dut, InterfaceSource.GOLDEN)
    return [(p.name, p.direction) for p in interface.ports if p.direction] if interface else []


def bench_modules(text: str) -> tuple[list[str], list[str]]:
    """Return (modules defined but not instantiated, modules instantiated but not defined) in a bench."""
    tree = SourceTree(text)
    defined = [node.header.name.rawText for node in tree.of("ModuleDeclaration")]
    used = [node.type.rawText for node in tree.of("HierarchyInstantiation")]
    return [m for m in defined if m not in used], list(
        dict.fromkeys(m for m in used if m not in defined)
    )


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Rename modules, packages and interfaces of `text`, but not signals and instances of the same name,
    comments and strings."""
    tree = SourceTree(text)
    found = (
        token
        for node in walk(tree.root)
        if not _is_signal(node)
        for token in children(node)
        if is_token(token)
    )
    spans = ((tree.span(token), token.rawText) for token in found if token.rawText in names)
    return tree.edited(Edit(*span, names[name]) for span, name in spans if span)


def _is_signal(node: Node) -> bool:
    """Whether the names in a node itself are those of signals, parameters, instances or blocks."""
    kind, parent = name_of(node), node.parent
    if kind in ("IdentifierName", "IdentifierSelectName"):
        if name_of(parent) == "ScopedName":
            return parent.separator.rawText != "::" or parent.right == node
        return name_of(parent) not in ("NamedType", "BindDirective")
    if kind in ("NamedBlockClause", "NamedLabel"):
        return name_of(parent) not in _UNITS
    return kind in _SIGNALS


def difficulty_of(golden: str) -> Difficulty:
    """Estimate the difficulty from the number of tokens of the golden answer, for sets that state none."""
    count = sum(1 for token in tokens(SourceTree(golden).root) if token.rawText)
    return "easy" if count < 80 else "medium" if count < 220 else "hard"
