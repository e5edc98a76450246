"""Sets with Verilog test benches of their own: each bench becomes a CVDP harness with one compose service.

The bench is rewritten once (rewrite.py) so that its verdict goes where no design can write. `run_bench.py`,
which is part of the harness, turns it into an exit code. A bench that a design can fool by its behaviour
alone is for validation to find.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from posixpath import basename
from typing import Any

from rtl_grader.digest import sha256_of
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.hdl.tree import (
    Edit,
    Node,
    SourceTree,
    children,
    is_token,
    name_of,
    walk,
)
from rtl_grader.problems.design import difficulty_of
from rtl_grader.problems.interface import derive_interface
from rtl_grader.problems.module_header import HeaderRule, with_header
from rtl_grader.problems.problem_set import BrokenLine, ProblemSet
from rtl_grader.problems.service import compose_file
from rtl_grader.problems.testbench.names import UNITS
from rtl_grader.problems.testbench.rewrite import rewritten
from rtl_grader.types.files import Files
from rtl_grader.types.problem import InterfaceSource, Problem

BENCH_FILE = "src/bench.sv"
_SYNTAX = re.compile(r"\\[A-Za-z]|\[[^\]]*\]|\(\?[\w:<=!]*")
"""Parts of a regular expression whose letters are no text."""
_SIGNALS = frozenset(
    {
        "Declarator",
        "PortReference",
        "ExplicitAnsiPort",
        "ExplicitNonAnsiPort",
        "ModportNamedPort",
        "LoopGenerate",
        "NamedPortConnection",
        "NamedParamAssignment",
        "InstanceName",
    }
)


@dataclass(frozen=True)
class Build:
    """What a design is compiled and run with, beside its first file. Paths are those of the workspace."""

    further: Files = field(default_factory=dict)
    """Further files of the answer, compiled after the first: path -> golden text, empty if it is not known."""
    given: Files = field(default_factory=dict)
    """Files that are compiled before the answer, in this order: path -> text."""
    headers: Files = field(default_factory=dict)
    """Files that are only included, with the names below `rtl` by which they are."""
    define: Mapping[str, str | int] = field(default_factory=dict)
    """Macros of the command line."""
    plusargs: tuple[str, ...] = ()
    """Arguments of the simulation, each with its plus."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Path relative to the working folder -> file of the workspace that is copied there."""

    @property
    def context(self) -> dict[str, str]:
        """The HDL that is given: path -> text."""
        return {**self.headers, **self.given}

    @property
    def macros(self) -> list[str]:
        """A `` `define `` for each macro."""
        return [f"`define {name} {value}" for name, value in self.define.items()]

    def environment(self, simulator: str, top: str, designs: Iterable[str], *more: str) -> str:
        """The text of the harness' `.env` for these files of the answer, with `more` lines."""
        sources = " ".join(f"/code/{path}" for path in (*self.given, *designs))
        words = [f"-D{name}={value}" for name, value in self.define.items()]
        lines = [
            f"SIM = {simulator}",
            "TOPLEVEL_LANG = verilog",
            f"VERILOG_SOURCES = {sources}",
            f"TOPLEVEL = {top}",
            *([f"COMPILE_ARGS = {' '.join(words)}"] if words else []),
            *more,
        ]
        return "\n".join([*lines, ""])


@dataclass(frozen=True)
class OwnVerdict:
    """The verdict of a bench in its own words: it ends without errors, `$fatal` or a failing assertion."""

    passed: str = ""
    """Regular expression that must match a printed line; empty if ending without an error is enough."""
    failed: str = ""
    """Regular expression that may match none."""

    @property
    def words(self) -> tuple[str, ...]:
        """Words of both expressions, in lower case: a call that prints none of them says no verdict."""
        return tuple(dict.fromkeys(words_of_pattern(self.passed + " " + self.failed)))


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
    """Text at the start of the verdict, in a printing call of the bench; empty if `own` is given."""
    passed: str = ""
    """Regular expression that must match after the marker, on every line with it, when the design passes."""
    golden: str | None = None
    """A correct design; it gives the required port directions."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Files that the bench reads: path relative to the working folder -> text."""
    build: Build = field(default_factory=Build)
    """What the design is compiled with."""
    own: OwnVerdict | None = None
    """The form of the verdict of a bench without a marker, whose errors count. Its sources have no
    directives for the preprocessor, see `expanded`."""


def bench_harness(bench: Bench) -> dict[str, str]:
    """Return the harness of a bench: path -> text. Raises ValueError when the bench never prints the marker."""
    ports, own, build = _ports(bench), bench.own, bench.build
    rewrite = asdict(
        rewritten(
            bench.sources,
            dut=bench.dut,
            top=bench.top,
            marker=own.words if own else bench.marker,
            ports=ports,
            errors=own is not None,
        )
    )
    text = rewrite.pop("text")
    designs = [bench.design, *build.further]
    hidden, places = hidden_data(bench.data, build)
    settings = {
        "designs": designs,
        "given": [*build.given],
        "files": [*designs, *build.given, *build.headers],
        "define": build.macros,
        "plusargs": [*build.plusargs],
        "dut": bench.dut,
        "top": rewrite.pop("top"),
        "data": places,
        "marker": bench.marker,
        "passed": own.passed if own else re.escape(bench.marker) + bench.passed,
        "failed": own.failed if own else "",
        **rewrite,
        "ports": ports,
    }
    return {
        "docker-compose.yml": compose_file("testbench", "python3 /src/run_bench.py"),
        "src/.env": build.environment("icarus", bench.dut, designs),
        "src/run_bench.py": (
            files("rtl_grader.problems.testbench") / "run_bench.py"
        ).read_text(),
        "src/bench.json": json.dumps(settings, indent=1) + "\n",
        BENCH_FILE: text,
        **hidden,
    }


def hidden_data(data: Files, build: Build) -> tuple[dict[str, str], dict[str, str]]:
    """(files of the harness: path -> text, place in the working folder -> path that is copied there) of the data
    that only the bench reads (place -> text) and of the design's."""
    files: dict[str, str] = {}
    paths = dict(build.places)
    for place, text in data.items():
        path = f"src/{basename(place)}"
        files[path] = text
        paths[place] = path
    return files, {place: f"/code/{path}" for place, path in paths.items()}


def bench_problem(bench: Bench, source: str, name: str, prompt: str) -> Problem:
    """Return the problem `source_name` (hyphens become `_`) that asks for a design and grades it with a bench.

    Raises ValueError as `bench_harness` does.
    """
    golden = None if bench.golden is None else {bench.design: bench.golden}
    texts = {**bench.sources, **bench.data, "golden": bench.golden or "", "prompt": prompt}
    return harness_problem(
        id=f"{source.replace('-', '_')}_{name}",
        source=source,
        category="cid003",
        difficulty=difficulty_of(bench.golden or next(iter(bench.sources.values()))),
        prompt=prompt.strip() + "\n",
        targets=(bench.design,),
        harness=bench_harness(bench),
        golden=golden,
        edition=sha256_of(texts),
    )


def harness_problem(
    *,
    prompt: str,
    targets: tuple[str, ...],
    harness: Files,
    golden: Files | None,
    context: Files | None = None,
    header: HeaderRule = "never",
    **fields: Any,
) -> Problem:
    """A problem with this harness and the interface that follows.

    Args:
        header: whether the header of the golden answer's module is appended to the prompt.
        fields: the other fields of `Problem`.
    """
    parts: dict[str, Any] = {
        "prompt": prompt,
        "targets": targets,
        "harness": harness,
        "golden": golden,
        "context": context or {},
    }
    interface = derive_interface(**parts)
    if interface and golden:
        design = "\n".join(golden.values())
        parts["prompt"] = with_header(prompt, design, interface, header)
    return Problem(**parts, **fields, interface=interface)


def read_benches(
    entries: Iterable[tuple[str, str, str, Callable[[], Problem]]], source: str
) -> ProblemSet:
    """Read a set's problems, given as (place, name, bench file, reader); one that cannot be read is a BrokenLine."""
    result = ProblemSet()
    for place, name, file, read in entries:
        try:
            result.problems.append(read())
            continue
        except OSError as error:
            file = Path(str(error.filename)).name
            reason = error.strerror or str(error)
        except ValueError as error:
            reason = str(error)
        result.broken.append(BrokenLine(place, 1, name, file, reason, source))
    return result


def words_of_pattern(pattern: str) -> list[str]:
    """Words of three letters and more that a regular expression spells, in lower case."""
    return re.findall(r"[a-z]{3,}", _SYNTAX.sub(" ", pattern).lower())


def _ports(bench: Bench) -> list[tuple[str, str]]:
    """(name, direction) of the golden design's ports, in order; empty without a golden design."""
    if bench.golden is None:
        return []
    sources = {bench.design: bench.golden, **bench.build.further}
    sources = {"macros.sv": "\n".join(bench.build.macros), **bench.build.context, **sources}
    interface = parse_interface(sources, bench.dut, InterfaceSource.GOLDEN)
    ports = interface.ports if interface else ()
    return [(port.name, port.direction) for port in ports if port.direction]


def bench_modules(text: str) -> tuple[list[str], list[str]]:
    """Return (modules defined but not instantiated, modules instantiated but not defined) in a bench."""
    tree = SourceTree(text)
    defined = [node.header.name.rawText for node in tree.of("ModuleDeclaration")]
    used = [node.type.rawText for node in tree.of("HierarchyInstantiation")]
    tops = [name for name in defined if name not in used]
    others = [name for name in dict.fromkeys(used) if name not in defined]
    return tops, others


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Rename modules, packages and interfaces of `text`, but not signals and instances of the same name,
    comments and strings."""
    tree = SourceTree(text)
    edits = []
    for node in walk(tree.root):
        for token in [] if _is_signal(node) else children(node):
            if is_token(token) and token.rawText in names and (span := tree.span(token)):
                edits.append(Edit(*span, names[token.rawText]))
    return tree.edited(edits)


def _is_signal(node: Node) -> bool:
    """Whether the names in a node itself are those of signals, parameters, instances or blocks."""
    kind, parent = name_of(node), node.parent
    if kind in ("IdentifierName", "IdentifierSelectName"):
        if name_of(parent) == "ScopedName":
            return parent.separator.rawText != "::" or parent.right == node
        return name_of(parent) not in ("NamedType", "BindDirective")
    if kind in ("NamedBlockClause", "NamedLabel"):
        return name_of(parent) not in UNITS
    return kind in _SIGNALS
