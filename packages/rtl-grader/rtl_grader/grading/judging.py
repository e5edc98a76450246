"""What the sandbox gets to judge an answer by the golden one (problems/judged.py): stimuli, test bench, scripts,
and what the golden answer gives, which is simulated once per problem.

The golden answer's text is in no answer's sandbox, except compressed where a proof is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from posixpath import basename
from typing import TYPE_CHECKING

from rtl_grader.digest import sha256_of
from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.compose import read_services
from rtl_grader.grading.design import as_graded
from rtl_grader.grading.evidence import (
    HARNESS_FAILED,
    TOO_OLD,
    Reasons,
    Results,
    is_unreadable,
)
from rtl_grader.grading.executors.base import Job, Message
from rtl_grader.hdl.interface import hdl_files
from rtl_grader.hdl.text import code_of
from rtl_grader.problems.judged import JUDGE_FILE, Judging, is_judged
from rtl_grader.traces.bench import (
    JUDGE,
    PROVER,
    bench,
    packed,
    sandbox_scripts,
    settle_of,
    trace_files,
    unpacked,
)
from rtl_grader.traces.driving import Driven, constructs_words, driven, undrivable
from rtl_grader.traces.literals import own_literals
from rtl_grader.traces.parameters import likely_values
from rtl_grader.traces.races import RACE, agreed, in_reverse, varies
from rtl_grader.traces.stimuli import Effort, Stimuli, is_exhausted, stimuli
from rtl_grader.traces.unseen import unseen
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Problem

if TYPE_CHECKING:
    from rtl_grader.grading.grader import Grader

PARAMETER_SETS = 4
"""Number of other values of parameters that are tried at most."""
PARAMETER_SHARE = 0.3
"""Effort for each of them, and for numbers that only an answer has, as a share of that for the default values."""
MOST_OUTPUT_MB = 64
PROOF_CPU_S = 40.0
"""CPU time for reading and encoding both designs, beside that of the proof itself."""
_EXCEEDS = "its simulation exceeds a limit"
INCLUDE = re.compile(r'`include[ \t]+"([^"\n]+)"')


@dataclass(frozen=True)
class Judged:
    """What a judged problem's sandboxes get beside the harness: path -> text."""

    files: Files = field(default_factory=dict)
    plan: Message = field(default_factory=dict)
    """What an answer's sandbox must do (`src/plan.json`)."""
    why: str = ""
    """Why the golden answer cannot judge, in words."""
    design: Driven | None = None
    """How to drive the golden answer with its default parameters, where it was simulated."""
    reverse: Files | None = None
    """The golden answer with its processes in reverse order, where they race."""


def judging_of(problem: Problem) -> Judging:
    """How the golden answer of a judged problem judges."""
    settings = json.loads(problem.harness[JUDGE_FILE])
    return Judging.model_validate(settings["judging"])


def judged_harness(grader: Grader, problem: Problem, answer: Files) -> Files:
    """The harness of a judged problem with all that its script needs for one answer.

    Raises InfrastructureError if the golden answer cannot judge, or the executor fails.
    """
    what = f"judged {grader.judge_effort}"
    judged = grader.once(what, problem, lambda: _judged(grader, problem))
    if judged.why:
        reason = f"{HARNESS_FAILED}: the golden answer cannot judge: {judged.why}"
        raise InfrastructureError(reason)
    plan = dict(judged.plan)
    files = {**problem.harness, **judged.files, **_own_inputs(grader, problem, judged, answer)}
    if not _is_drawn(problem, answer):
        plan["proof"] = ""
    elif not plan["unproved"]:
        constructs = grader.analyse(problem, answer).constructs
        plan["unproved"] = constructs_words("answer", constructs)
        files |= sandbox_scripts(*PROVER)
        files["src/golden"] = packed(json.dumps(problem.golden))
    return {**files, "src/plan.json": json.dumps(plan)}


def _own_inputs(grader: Grader, problem: Problem, judged: Judged, answer: Files) -> Files:
    """Inputs with the numbers that the answer has and the golden answer lacks, and what the golden answer gives
    for them: it is simulated alone, and messages show none of it, since an answer could ask for values so. Empty
    if there are none, or the golden answer says nothing."""
    design = judged.design
    golden, _ = as_graded(problem, problem.golden or {})
    texts = hdl_files(answer).values()
    text = own_literals("\n".join(map(code_of, texts)), "\n".join(golden.values()))
    if design is None or not text or is_exhausted(design, grader.judge_effort):
        return {}
    inputs = stimuli(design, grader.judge_effort.times(PARAMETER_SHARE), text)
    settle = settle_of(hdl_files({**problem.context, **golden}).values())
    files = {**sandbox_scripts(*JUDGE), **trace_files([(design, inputs)], settle)}
    plan = {**judged.plan, "role": "golden", "proof": ""}
    alone = {**files, "src/plan.json": json.dumps(plan)}
    trace = _trace(grader, problem, golden, alone, judged.reverse)
    if trace["why"]:
        return {}
    sets = json.loads(judged.files["src/trace.json"])
    (own,) = json.loads(files["src/trace.json"])
    number = len(sets)
    own |= {"own": True, "with": " with numbers of the answer"}
    return {
        "src/trace.json": json.dumps([*sets, own]),
        f"src/bench{number}.sv": bench(design, number, settle),
        f"src/stimuli{number}": files["src/stimuli0"],
        "src/expected_own": trace["expected"],
    }


def proof_s(problem: Problem) -> float:
    """CPU seconds that a grading may need beside the simulation."""
    if not is_judged(problem.harness):
        return 0.0
    judging = judging_of(problem)
    return 0.0 if judging.proof == "never" else judging.proof_cpu_s + PROOF_CPU_S


def proof_notes(results: Results) -> Reasons:
    """What proofs say about an answer that passes."""
    tests = (test for result in results for test in result.tests)
    return tuple(test["message"] for test in tests if test["name"] == "proof")


def _is_drawn(problem: Problem, answer: Files) -> bool:
    """Whether an answer is among the share that is proved."""
    judging = judging_of(problem)
    if judging.proof != "passes":
        return judging.proof == "undecided"
    number = int(sha256_of(sorted(answer.items()))[:8], 16)
    return number < judging.proof_share * 2**32


def _judged(grader: Grader, problem: Problem) -> Judged:
    """Simulate the golden answer alone, with each set of parameters, and keep what it gives."""
    if not problem.golden or problem.interface is None:
        return Judged(why="there is none")
    if why := undrivable(problem.interface):
        return Judged(why=why)
    golden, _ = as_graded(problem, problem.golden)
    sets = parameter_sets(problem, golden, grader.judge_effort)
    settle = settle_of(hdl_files({**problem.context, **golden}).values())
    plan = _plan(grader, problem, golden, sets[0][0])
    files = {**sandbox_scripts(*JUDGE), **trace_files(sets, settle)}
    wants_proof = plan["proof"] == "undecided" and not plan["unproved"]
    first = {**plan, "role": "golden", "proof": wants_proof}
    files |= sandbox_scripts(*PROVER) if wants_proof else {}
    files["src/plan.json"] = json.dumps(first)
    races = RACE in unseen("\n".join(hdl_files(golden).values()))
    reverse = in_reverse(golden) if races else None
    trace = _trace(grader, problem, golden, files, reverse)
    exceeds = trace["why"].startswith(_EXCEEDS)
    if exceeds and len(sets) > 1:
        # Perhaps it never ends with other values of its parameters.
        sets = sets[:1]
        files |= trace_files(sets, settle)
        trace = _trace(grader, problem, golden, files, reverse)
    if trace.get("proved"):
        return Judged(files, {**plan, "why": trace["why"]})
    if why := trace["why"]:
        why = _explained(grader, problem, golden, why)
        unproved = plan["unproved"] if plan["proof"] == "undecided" else ""
        return Judged(why=f"{why}; not proved: {unproved}" if unproved else why)
    usable = [sets[number] for number in trace["sets"]]
    files = {**sandbox_scripts(*JUDGE), **trace_files(usable, settle)}
    files["src/expected"] = trace["expected"]
    return Judged(files, plan, design=sets[0][0], reverse=reverse)


def _explained(grader: Grader, problem: Problem, golden: Files, why: str) -> str:
    """Why the golden answer cannot judge, headed by the tool if that is too old for it."""
    if not is_unreadable(why) or not grader.is_valid(problem, golden):
        return why
    words = f"iverilog {grader.tools.get('iverilog')} {TOO_OLD}"
    if judging_of(problem).proof == "never":
        words += ', or judge = {proof = "undecided"} in its source proves answers'
    return f"{words}; {why}"


def _plan(grader: Grader, problem: Problem, golden: Files, design: Driven) -> Message:
    judging = judging_of(problem)
    spec = {
        "clocks": list(design.clocks),
        "resets": design.levels,
        "cpu_s": judging.proof_cpu_s,
        "golden_has_data": hdl_files(golden) != golden,
    }
    proof = "" if judging.proof == "never" else judging.proof
    unproved = _unproved(grader, problem, golden) if proof else ""
    return {"role": "answer", "proof": proof, "unproved": unproved, "spec": spec}


def _unproved(grader: Grader, problem: Problem, golden: Files) -> str:
    """Why nothing can be proved to equal the golden answer; empty if it can."""
    if not grader.executor.has_module("pyosys"):
        return "pyosys is not installed where answers are graded"
    names = set(map(basename, golden))
    includes = [name for text in golden.values() for name in INCLUDE.findall(text)]
    if own := names.intersection(map(basename, includes)):
        return f"the golden answer includes its own file {min(own)}"
    texts = hdl_files({**problem.context, **golden}).values()
    return constructs_words("golden answer", unseen("\n".join(texts)))


def _trace(
    grader: Grader, problem: Problem, golden: Files, files: Files, reverse: Files | None
) -> Message:
    """What the sandbox says about the golden answer: {why, sets, expected}, see inside/judge.py. `expected` is X
    where `reverse`, the golden answer with its processes in another order, gives something else."""
    first = _simulated(grader, problem, golden, files)
    if reverse is None or not first.get("expected"):
        return first
    second = _simulated(grader, problem, reverse, files)
    if second.get("sets") == first["sets"]:
        both = agreed(unpacked(first["expected"]), unpacked(second["expected"]))
        first["expected"] = packed(both)
        usual, _, _ = both.partition(b"\n\n")
        if not varies(usual.split(b"\n")):
            first["why"] = "the order of its processes decides all outputs that change"
    return first


def _simulated(grader: Grader, problem: Problem, golden: Files, files: Files) -> Message:
    steps, mounts = read_services(problem.harness)
    most = {"output_kb": MOST_OUTPUT_MB << 10, "output_mb": MOST_OUTPUT_MB}
    job = Job(
        files={**problem.context, **golden},
        harness={**problem.harness, **files},
        steps=steps,
        mounts=mounts,
        limits=grader.limits.model_copy(update=most),
        seed=grader.seed,
    )
    (result,) = grader.executor.run(job).steps
    if result.overrun:
        return {"why": f"{_EXCEEDS} ({result.overrun})"}
    if result.refused:
        return {"why": f"it must not be simulated: {'; '.join(result.refused)}"}
    if result.record is None:
        end = result.output[-500:]
        return {"why": f"the sandbox ended with {result.exit_code}: {end}"}
    return result.record


def parameter_sets(
    problem: Problem, golden: Files, effort: Effort
) -> Sequence[tuple[Driven, Stimuli]]:
    """How to drive the golden answer: with its default parameters, and with other values."""
    assert problem.interface is not None
    text = "\n".join(golden.values())
    sets: list[tuple[Driven, Stimuli]] = []
    for values in ({}, *likely_values(problem, problem.interface, golden.values())):
        design = driven(golden, problem.context, problem.interface, values)
        if design is not None and len(sets) <= PARAMETER_SETS:
            share = effort.times(PARAMETER_SHARE) if values else effort
            sets.append((design, stimuli(design, share, text)))
    return sets
