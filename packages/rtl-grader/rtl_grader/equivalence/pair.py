"""Two designs: simulate each alone with the same inputs, and compare what they give."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from posixpath import basename
from typing import Literal

from rtl_grader.digest import sha256_of
from rtl_grader.equivalence.apart import Simulated, Traces
from rtl_grader.equivalence.effort import Effort
from rtl_grader.grading.design import as_graded
from rtl_grader.grading.executors.base import Executor, Job, Step, StepResult
from rtl_grader.grading.judging import INCLUDE
from rtl_grader.grading.limits import Limits
from rtl_grader.grading.screen import MAX_FILE_CHARS
from rtl_grader.hdl.interface import HDL_SUFFIXES, hdl_files
from rtl_grader.hdl.text import code_of
from rtl_grader.hdl.tree import SourceTree
from rtl_grader.problems.harness_use import macro_file
from rtl_grader.traces.bench import sandbox_scripts, settle_of, trace_files
from rtl_grader.traces.driving import Clock, Driven, Values, driven, undrivable
from rtl_grader.traces.races import agreed
from rtl_grader.traces.stimuli import Stimuli, Trace, replayed, stimuli
from rtl_grader.traces.unseen import Words, unseen
from rtl_grader.types.files import Files
from rtl_grader.types.netlist import Netlist
from rtl_grader.types.problem import Interface, Problem

HDL = (".v", ".sv")
MAX_INCLUDE_DEPTH = 100
SIMULATE = ("simulating.py", "tracing.py")
MOST_OUTPUT_KB = 64 << 10
MOST_TRACES = 8
Result = Literal["equal", "same", "different", "unknown"]


class IncomparableError(Exception):
    """Why two designs cannot be compared."""


@dataclass(frozen=True)
class Comparison:
    """How an answer compares with the golden one or, by consensus, with other passes.

    `equal` was proved; `same` means that no input told them apart; `unknown` means no result. `detail` says
    what, where or why.
    """

    result: Result
    detail: str
    method: Literal["proof", "simulation", "consensus"] = "simulation"
    share: float | None = None
    """By consensus: share of the independent texts that behave alike."""
    depth: int | None = None
    """Clock cycles after power-up for which equality is proved, if it is not proved for all."""
    trace: Trace = ()
    """The shortest inputs that tell the designs apart, if model checking found them and the simulator confirms them."""
    cpu_s: float = 0.0
    netlist: Netlist | None = None
    """Size of the answer after synthesis; relative to other answers if this one is not doubtful."""

    @property
    def agrees(self) -> bool:
        """Whether the designs behave alike as far as is known."""
        return self.result in ("equal", "same")


@dataclass
class Pair:
    """A golden answer and another one, both read as a grader would: without test benches."""

    executor: Executor
    problem: Problem
    design: Driven
    """How to drive both, with the default parameters."""
    golden: Files
    """Files, path -> text, as graded."""
    other: Files
    context: Files
    """Files that both are compiled with, and before."""
    limits: Limits
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    """Random, so that the other design cannot include the golden one where both are read."""
    cpu_s: float = 0.0
    """CPU time of everything that was run."""
    reverse: Files | None = None
    """The golden answer with its processes in reverse order, where they race."""
    unseen: Words = field(default_factory=dict)
    """Constructs of the other design alone that neither a proof nor a simulation covers: kind -> words."""

    @classmethod
    def of(
        cls,
        executor: Executor,
        problem: Problem,
        golden: Files,
        other: Files,
        limits: Limits,
    ) -> Pair:
        """A pair of a problem's answers (path -> text). Raises IncomparableError."""
        interface = problem.interface
        if interface is None:
            raise IncomparableError("the interface of the top module is not known")
        if why := undrivable(interface):
            raise IncomparableError(f"no bench can drive the top module: {why}")
        if not interface.outputs:
            raise IncomparableError(f"{interface.module} has no outputs to compare")
        golden, _ = as_graded(problem, golden)
        other, _ = as_graded(problem, other)
        if not other:
            raise IncomparableError("the answer has no file that could be simulated")
        hdl = _hdl_of(golden)
        if not hdl:
            raise IncomparableError("the golden answer is no HDL")
        if interface.module not in _units(hdl.values()):
            raise IncomparableError(f"the golden answer does not define {interface.module}")
        context = _context_of(problem)
        design = driven(golden, context, interface, {})
        assert design is not None
        return cls(executor, problem, design, golden, other, context, limits)

    @property
    def interface(self) -> Interface:
        """The top module's, with its default parameters."""
        return self.design.interface

    def driven(self, values: Values) -> Driven | None:
        """How to drive both with these parameters; None if the golden answer's ports cannot be read or driven."""
        return driven(self.golden, self.context, self.interface, values)

    def golden_for_proof(self) -> Files:
        """The golden answer's HDL files with its own headers in place of their includes: the other answer may
        bring others. Raises IncomparableError."""
        macros = "".join(macro_file(self.problem.harness).values())
        whole = _hdl_of(_with_includes(self.golden))
        return {path: macros + text for path, text in whole.items()}

    def simulate(self, design: Driven, effort: Effort, valid: str | None = None) -> Comparison:
        """Try many inputs with the parameters of `design`. `valid`: compare outputs in order while it is 1."""
        steps = stimuli(design, effort, "\n".join(self.golden.values()))
        cpu_s = min(self.limits.cpu_s, effort.cpu_s)
        traces = self._traces(design, steps, cpu_s)
        if isinstance(traces, Comparison):
            return traces
        if why := traces.weakness():
            return Comparison("unknown", f"the golden answer cannot be compared: {why}")
        return Comparison(*(traces.in_order(valid) if valid else traces.at_every_step()))

    def replay(self, design: Driven, trace: Trace, clock: Clock | None = None) -> Comparison:
        """Drive only the inputs of a trace, see `stimuli.replayed`."""
        steps = replayed(design, trace, clock)
        traces = self._traces(design, steps, self.limits.cpu_s)
        if isinstance(traces, Comparison):
            return traces
        return Comparison(*traces.at_every_step(0))

    def constructs(self, files: Files) -> Words:
        """What a proof of one of the designs does not see (`unseen`): kind -> words. Raises IncomparableError."""
        texts = _hdl_of(_with_includes({**self.context, **files}))
        return unseen("\n".join(texts.values()))

    def run(
        self,
        harness: Files,
        command: tuple[str, ...],
        cpu_s: float,
        other: Files,
    ) -> StepResult:
        """Run a command in a sandbox with `other`, the given files and `harness`. Raises InfrastructureError if
        the executor fails."""
        job = Job(
            files={**self.context, **other},
            harness=harness,
            steps=(Step("compare", command),),
            limits=self.limits.model_copy(update={"cpu_s": cpu_s, "output_kb": MOST_OUTPUT_KB}),
        )
        result = self.executor.run(job)
        self.cpu_s += result.cpu_s
        return result.steps[0]

    def _traces(self, design: Driven, steps: Stimuli, cpu_s: float) -> Traces | Comparison:
        """What both designs give for the same inputs, each in a sandbox of its own; or why that is not known."""
        texts = hdl_files({**self.context, **self.golden}).values()
        harness = trace_files([(design, steps)], settle_of(texts))
        harness |= sandbox_scripts(*SIMULATE)
        golden = self._simulated_once(self.golden, harness, cpu_s)
        if why := golden.why or golden.missing(steps):
            return Comparison("unknown", f"the golden answer {why}")
        other = self._simulated(self.other, harness, cpu_s)
        if other.overrun:
            why = "it never settles, or takes far longer to simulate than the golden answer"
            return Comparison("different", why)
        if other.why:
            return Comparison("unknown", f"the answer {other.why}")
        each = json.loads(harness["src/trace.json"])[0]
        lines = golden.lines()
        if self.reverse is not None:
            second = self._simulated_once(self.reverse, harness, cpu_s)
            if not (second.why or second.missing(steps)):
                lines = list(map(agreed, lines, second.lines()))
        return Traces(lines, other.lines(), each, steps)

    def _simulated_once(self, files: Files, harness: Files, cpu_s: float) -> Simulated:
        """One of the latest simulations, or a new one."""
        digest = sha256_of([files, self.context, harness, cpu_s])
        result = _GOLDEN.get(digest) or self._simulated(files, harness, cpu_s)
        _GOLDEN[digest] = result
        while len(_GOLDEN) > MOST_TRACES:
            _GOLDEN.pop(next(iter(_GOLDEN)), None)
        return result

    def _simulated(self, files: Files, harness: Files, cpu_s: float) -> Simulated:
        script = ("python3", "/code/src/simulating.py", *places(self.context, files))
        return Simulated.of(self.run(harness, script, cpu_s, files))


_GOLDEN: dict[str, Simulated] = {}
"""The latest simulations of golden answers: several answers are compared with each."""


def _context_of(problem: Problem) -> Files:
    """A time scale, the harness' macros, the problem's own HDL files in the order in which the harness names
    them, and its data files."""
    harness = "\n".join(problem.harness.values())
    files = {}
    for path, text in problem.context.items():
        is_used = path.startswith("rtl/") or not path.endswith(HDL_SUFFIXES)
        if is_used and path not in problem.targets:
            files[path] = text
    in_order = sorted(files, key=lambda path: harness.find(basename(path)) % sys.maxsize)
    macros = "`timescale 1ns/1ps\n" + "".join(macro_file(problem.harness).values())
    return {"macros/macros.sv": macros, **{path: files[path] for path in in_order}}


def places(*answers: Files) -> list[str]:
    """Places of HDL files in the sandbox, each once."""
    paths = [path for files in answers for path in _hdl_of(files)]
    return [f"/code/{path}" for path in dict.fromkeys(paths)]


def _hdl_of(files: Files) -> Files:
    return {path: text for path, text in files.items() if path.endswith(HDL)}


def _units(texts: Iterable[str]) -> list[str]:
    """Names of the modules, packages and interfaces in texts."""
    names: list[str] = []
    for text in texts:
        tree = SourceTree(text)
        units = tree.of("ModuleDeclaration", "PackageDeclaration", "InterfaceDeclaration")
        names += [unit.header.name.rawText for unit in units]
    return names


def _with_includes(files: Files) -> Files:
    """The files with those of the same answer that they include, found by base name. Raises
    IncomparableError if they get too long."""
    paths = {basename(path): path for path in files}
    results: dict[str, str] = {}

    def whole(path: str, depth: int = 0) -> str:
        if path in results:
            return results[path]
        if depth > MAX_INCLUDE_DEPTH:
            raise IncomparableError("includes are nested too deeply")
        results[path] = text = files[path]
        parts: list[str] = []
        code, start, size = code_of(text), 0, len(text)
        for include in INCLUDE.finditer(text):
            other = paths.get(basename(include[1]))
            if other is None or code[include.start()] != "`":
                continue
            included = whole(other, depth + 1)
            parts += [text[start : include.start()], included]
            start, size = include.end(), size + len(included)
            if size > MAX_FILE_CHARS:
                raise IncomparableError("includes hold too much text")
        results[path] = "".join([*parts, text[start:]])
        return results[path]

    return {path: whole(path) for path in files}
