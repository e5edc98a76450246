"""Golden answer against another answer, both in one simulation, over many inputs: can they be told apart at all?

A mutant that survives a harness says something of the harness only if it behaves differently, and a stub is no cheat where
a constant is what is asked. So both are simulated side by side by a test bench written from the interface: every input
pattern where there are few, random ones else; clocked designs through resets of both polarities, at both clock edges, with
inputs that change in between, and through long stretches without a reset in which inputs stay as they are, so that counters
get far. Where parameters may be set, a few other values that the golden answer accepts are tried as well (`other_values`).
Where the golden answer gives X anything is right, and an X of the other is only held against it when it is frequent: before
the first reset simulators are pessimists.

Not covered: inout ports, unpacked array ports, parameters that are no integers, states that lie deeper than the cycles
simulated. What was not told apart is called the same, with the number of inputs tried.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rtl_core.grading.design import as_graded
from rtl_core.grading.executors.base import Executor, Job, Step, StepResult
from rtl_core.grading.limits import Limits
from rtl_core.problems.interface import parse_interface
from rtl_core.problems.testbench import renamed
from rtl_core.problems.tree import SourceTree, name_of, walk
from rtl_core.types.problem import Interface, InterfaceSource, Problem
from rtl_core.validation.clocking import active_low, clocks_and_resets
from rtl_core.validation.side_by_side import USUAL, Effort, Values, bench

_UNITS = {"ModuleDeclaration", "PackageDeclaration", "InterfaceDeclaration"}
_HDL = (".v", ".sv")
_NO_PARAMETER = re.compile(r"parameter .* not found", re.I)
MAX_VALUE = 1 << 16
"""Largest default of a parameter that is varied."""


@dataclass(frozen=True)
class Comparison:
    """What a side-by-side simulation found. `unknown` where none could be made; `detail` says what, where or why."""

    result: Literal["same", "different", "unknown"]
    detail: str


def compare(
    executor: Executor,
    problem: Problem,
    golden: Mapping[str, str],
    other: Mapping[str, str],
    limits: Limits,
    seed: int = 0,
    effort: Effort = USUAL,
) -> Comparison:
    """Simulate `other` (path -> text) beside `golden`, first with the default parameters, then with other ones.

    Both are simulated as a grader would: without test benches that stand beside the design, the same for every tool.

    Raises InfrastructureError where the executor fails.
    """
    interface = problem.interface
    if interface is None:
        return Comparison("unknown", "the interface of the top module is not known")
    if bad := _unusable(interface):
        return Comparison("unknown", f"port {bad} has no known width or direction")
    golden, other = (as_graded(problem, files)[0] for files in (golden, other))
    hdl = {path: text for path, text in golden.items() if path.endswith(_HDL)}
    if not hdl:
        return Comparison("unknown", "the golden answer is no HDL")
    nonce = secrets.token_hex(8)  # so that no design can name the other, or write the bench's verdict
    names = {name: f"{name}__{nonce}" for text in hdl.values() for name in _units(text)}
    if interface.module not in names:
        return Comparison("unknown", f"the golden answer does not define {interface.module}")
    given = {p: t for p, t in problem.context.items() if p.startswith("rtl/") and p not in problem.targets}
    harness = {f"src/golden{i}.sv": renamed(text, names) for i, text in enumerate(hdl.values())}
    pair = _Pair(executor, interface.module, {**given, **hdl}, harness, {**given, **other}, limits, seed, effort, nonce)
    found = pair.simulate({}, interface)
    if found.result != "same":
        return found
    tried = []
    for values in other_values(problem, interface)[: effort.parameter_sets]:
        ports = _interface_with(pair.golden, interface.module, values)
        if ports is None or _unusable(ports):
            continue
        told = pair.simulate(values, ports)
        if told.result == "different":
            return Comparison("different", f"with {_in_words(values)} {told.detail}")
        if told.result == "same":
            tried.append(_in_words(values))
    return Comparison("same", found.detail + (f"; also with {', '.join(tried)}" if tried else ""))


@dataclass
class _Pair:
    """Two designs and how they are simulated beside each other."""

    executor: Executor
    module: str
    """Name of the top module."""
    golden: Mapping[str, str]
    renamed: Mapping[str, str]
    """The golden answer's files, their modules under other names."""
    files: Mapping[str, str]
    limits: Limits
    seed: int
    effort: Effort
    nonce: str

    def simulate(self, values: Values, interface: Interface) -> Comparison:
        """Compare with the parameters set to `values`, which give the ports of `interface`."""
        steps = self._run(values, interface, self.files)
        if len(steps) < 2:
            return Comparison("unknown", f"the two do not compile side by side: {_first_line(steps[0].output)}")
        if values and _NO_PARAMETER.search(steps[0].output):
            return Comparison("unknown", "one of the two has no such parameter")
        if steps[1].overrun:
            return self._overrun(steps[1], values, interface)
        if match := re.search(rf"^{self.nonce} (same|different|unknown): (.*)$", steps[1].output, re.M):
            return Comparison(match[1], match[2])  # type: ignore[arg-type]
        return Comparison("unknown", f"the simulation ended early: {_first_line(steps[1].output)}")

    def _overrun(self, step: StepResult, values: Values, interface: Interface) -> Comparison:
        """What a simulation that did not end says: nothing, unless the golden answer beside itself does end."""
        again = self._run(values, interface, self.golden)
        if len(again) == 2 and not again[1].overrun:
            return Comparison("different", "it never settles, or takes far longer to simulate than the golden answer")
        return Comparison("unknown", "it takes too long to simulate")

    def _run(self, values: Values, interface: Interface, files: Mapping[str, str]) -> tuple[StepResult, ...]:
        clocks, resets = clocks_and_resets(self.golden, interface)
        text = bench(interface, clocks, resets, active_low(self.golden, resets), self.nonce, values, self.effort)
        harness = {**self.renamed, "src/side_by_side.sv": text}
        sources = [f"/code/{path}" for path in (*harness, *files) if path.endswith(_HDL)]
        compile_ = (
            "iverilog",
            "-g2012",
            "-Wno-timescale",
            "-I",
            "/code/rtl",
            "-s",
            f"bench__{self.nonce}",
            "-o",
            "both",
            *sources,
        )
        cpu_s = min(self.limits.cpu_s, self.effort.cpu_s)
        job = Job(
            files=files,
            harness=harness,
            steps=(Step("compile", compile_), Step("simulate", ("vvp", "-n", "both", "-none"))),
            limits=self.limits.model_copy(update={"cpu_s": cpu_s}),
            seed=self.seed,
            stop_at_failure=True,
        )
        return self.executor.run(job).steps


def _unusable(interface: Interface) -> str | None:
    """The first port that a bench cannot drive or watch."""
    return next((p.name for p in interface.ports if p.width is None or p.direction not in ("input", "output")), None)


def _units(text: str) -> list[str]:
    return [node.header.name.rawText for node in walk(SourceTree(text).root) if name_of(node) in _UNITS]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no output")[:200]


def other_values(problem: Problem, interface: Interface) -> list[Values]:
    """Sets of parameter values to try, the most telling first: one more than every default, what the harness sets, half of each
    default, one more than each. Whether a design accepts them is for elaboration to say."""
    defaults = {p.name: p.default for p in interface.parameters if p.default is not None and 0 < p.default < MAX_VALUE}
    found: list[dict[str, int]] = []
    if len(defaults) > 1:
        found.append({name: value + 1 for name, value in defaults.items()})
    set_ = {name: _set_by(problem.harness, name, value) for name, value in defaults.items()}
    for turn in range(max((len(values) for values in set_.values()), default=0)):
        found += [{name: values[turn]} for name, values in set_.items() if turn < len(values)]
    found += [{name: value // 2} for name, value in defaults.items() if value > 1]
    found += [{name: value + 1} for name, value in defaults.items()]
    return [dict(pairs) for pairs in dict.fromkeys(tuple(sorted(values.items())) for values in found)]


def _interface_with(sources: Mapping[str, str], module: str, values: Values) -> Interface | None:
    """The interface that `module` has when its parameters are set; None where it cannot be read."""
    return parse_interface(sources, module, InterfaceSource.GOLDEN, values)


def _in_words(values: Values) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _set_by(harness: Mapping[str, str], name: str, default: int) -> list[int]:
    """Values other than the default that a harness gives a parameter, as far as they stand in its text as numbers."""
    word = re.escape(name)
    patterns = (
        rf"\b{word}\b['\"]?\s*[:=]\s*['\"]?(\d+)\b",  # a dictionary of parameters, an assignment, an env file
        rf"-[PGp](?:\w+\.)?{word}=(\d+)\b",  # a simulator's option
        rf"['\"]{word}['\"]\s*,\s*[\[(]([\d,\s]+)[\])]",  # pytest.mark.parametrize("WIDTH", [4, 8])
    )
    text = "\n".join(body for _, body in sorted(harness.items()))
    digits = [
        number for pattern in patterns for match in re.findall(pattern, text) for number in re.findall(r"\d+", match)
    ]
    return [value for value in dict.fromkeys(map(int, digits)) if value != default and 0 < value < MAX_VALUE]
