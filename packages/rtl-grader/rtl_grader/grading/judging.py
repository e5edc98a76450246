"""What the sandbox gets to judge an answer by the golden one (problems/judged.py): stimuli, test bench, scripts,
and what the golden answer gives, which is found out once per problem.

The golden answer's text is in no answer's sandbox, except compressed where a proof is asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.compose import read_services
from rtl_grader.grading.design import as_graded
from rtl_grader.grading.evidence import HARNESS_FAILED
from rtl_grader.grading.executors.base import Job
from rtl_grader.hdl.clocking import clocks_and_resets
from rtl_grader.hdl.interface import hdl_files, parse_interface
from rtl_grader.traces.bench import sandbox_scripts, settle_of, trace_files
from rtl_grader.traces.parameters import likely_values
from rtl_grader.traces.stimuli import Driven, Effort, Stimuli, Values, stimuli
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Interface, InterfaceSource, Problem

if TYPE_CHECKING:
    from rtl_grader.grading.grader import Grader

PARAMETER_SETS = 4
"""Number of other values of parameters that are tried at most."""
PARAMETER_SHARE = 0.3
"""Effort for each of them, as a share of that for the default values."""
MOST_OUTPUT_MB = 64


@dataclass(frozen=True)
class Judged:
    """What a judged problem's sandboxes get beside the harness: path -> text."""

    files: Files
    why: str = ""
    """Why the golden answer cannot judge, in words."""


def judge_files(grader: Grader, problem: Problem) -> Files:
    """The files that an answer's sandbox gets beside the problem's harness.

    Raises InfrastructureError if the golden answer cannot judge, or the executor fails.
    """
    judged = grader.once(
        f"judged {grader.judge_effort}", problem, lambda: _judged(grader, problem)
    )
    if judged.why:
        raise InfrastructureError(
            f"{HARNESS_FAILED}: the golden answer cannot judge: {judged.why}"
        )
    return judged.files


def _judged(grader: Grader, problem: Problem) -> Judged:
    """Simulate the golden answer alone, with each set of parameters, and keep what it gives."""
    if not problem.golden:
        return Judged({}, "there is none")
    assert problem.interface is not None
    if why := undrivable(problem.interface):
        return Judged({}, why)
    golden, _ = as_graded(problem, problem.golden)
    sets = parameter_sets(problem, golden, grader.judge_effort)
    settle = settle_of([*golden.values(), *hdl_files(problem.context).values()])
    steps, mounts = read_services(problem.harness)
    files = _in_source(trace_files(sets, settle))
    limits = grader.limits.model_copy(
        update={"output_kb": MOST_OUTPUT_MB << 10, "output_mb": MOST_OUTPUT_MB}
    )
    job = Job(
        files={**problem.context, **golden},
        harness={**problem.harness, **files},
        steps=steps,
        mounts=mounts,
        limits=limits,
        seed=grader.seed,
    )
    (result,) = grader.executor.run(job).steps
    if result.overrun:
        return Judged({}, f"its simulation exceeded a limit ({result.overrun})")
    if result.refused:
        return Judged({}, f"it must not be simulated: {'; '.join(result.refused)}")
    try:
        trace = json.loads(result.output.splitlines()[-1])
    except (IndexError, ValueError):
        return Judged({}, f"the sandbox ended with {result.exit_code}: {result.output[-300:]}")
    if trace.get("why"):
        return Judged({}, trace["why"])
    usable = [sets[number] for number in trace["sets"]]
    files = _in_source(trace_files(usable, settle))
    return Judged({**files, "src/expected": trace["expected"]})


def undrivable(interface: Interface) -> str:
    """Why a test bench cannot drive or watch a design with this interface; empty if it can."""
    for port in interface.ports:
        if port.direction not in ("input", "output"):
            return f"its port {port.name} is {port.direction or port.form}"
        if port.width is None:
            return f"the width of its port {port.name} is not known"
    return ""


def parameter_sets(
    problem: Problem, golden: Files, effort: Effort
) -> list[tuple[Driven, Stimuli]]:
    """How to drive the golden answer: with its default parameters, and with other values."""
    assert problem.interface is not None
    sources = {**hdl_files(problem.context), **golden}
    text = "\n".join(golden.values())
    sets = []
    for values in ({}, *likely_values(problem, problem.interface, golden.values())):
        design = _driven(sources, problem.interface, values, golden)
        if design is not None and len(sets) <= PARAMETER_SETS:
            share = effort.times(PARAMETER_SHARE) if values else effort
            sets.append((design, stimuli(design, share, text)))
    return sets


def _driven(sources: Files, default: Interface, values: Values, golden: Files) -> Driven | None:
    interface: Interface | None = default
    if values:
        interface = parse_interface(sources, default.module, InterfaceSource.GOLDEN, values)
    if interface is None or undrivable(interface):
        return None
    inputs = [port for port in interface.ports if port.direction == "input"]
    bits = [port.name for port in inputs if port.width == 1]
    clocks, resets, low = clocks_and_resets(golden, bits)
    return Driven(interface, clocks, resets, low, values)


def _in_source(files: Files) -> Files:
    """Files and the scripts, below `src`."""
    return {f"src/{name}": text for name, text in {**sandbox_scripts(), **files}.items()}
