"""Compare an answer with the golden one in simulations over many inputs.

A mutant that survives a harness says something about the harness only if it behaves differently, and a stub
is no cheat if a constant is asked for. So each design is simulated alone with the same inputs
(`rtl_grader.traces`), and what they give is compared outside. Other values of parameters that the harness or
the specification names are also tried (`other_values`). Where the golden answer gives X anything is right. In
a clocked design an X of the other one counts only if it is frequent: simulators are pessimistic. If the
designs are not told apart, a proof can follow (`rtl_grader.equivalence.proof`).

Not covered: inout ports, unpacked array ports, non-integer parameters, states deeper than the simulated
cycles. Designs that are not told apart are reported as the same, with the number of inputs tried.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rtl_grader.equivalence.effort import USUAL, Effort
from rtl_grader.equivalence.pair import Comparison, IncomparableError, Pair
from rtl_grader.equivalence.proof import Proof, prove
from rtl_grader.grading.executors.base import Executor, Wave
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.jobs import RecordingExecutor
from rtl_grader.grading.limits import Limits
from rtl_grader.grading.vcd import read_vcd
from rtl_grader.hdl.text import compact_files
from rtl_grader.traces.driving import Driven, constructs_words
from rtl_grader.traces.inside.comparing import assignments
from rtl_grader.traces.parameters import other_values
from rtl_grader.traces.races import RACE, in_reverse
from rtl_grader.traces.stimuli import Trace
from rtl_grader.traces.unseen import Words
from rtl_grader.types.answer import Answer
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Interface, Problem

_VALID = re.compile(r"(^|_)(valid|vld|dv|done)|valid$", re.I)
LEAST_VALUES = 50
"""Number of values that must be compared before a difference is attributed to latency."""
MOST_STEPS = 3_000
"""Number of changes of a harness' inputs that are kept, from the start; each is a line of a bench."""
_UNKNOWN = str.maketrans("xzXZ", "0000")


def compare(
    executor: Executor,
    problem: Problem,
    golden: Files,
    other: Files,
    limits: Limits,
    effort: Effort = USUAL,
    by_value: bool = False,
    driven: Trace = (),
) -> Comparison:
    """Simulate `other` (path -> text) beside `golden`, with default parameters and then with other values.
    If the effort has CPU time for it, also prove that the two are equal with the default parameters and
    with the harness' values, or find the shortest inputs that tell them apart.

    Args:
        driven: inputs that the harness drives (`harness_inputs`); tried first.
        by_value: treat designs as the same if they give the same values in order while an output marks them as valid.

    Raises InfrastructureError if the executor fails.
    """
    try:
        pair = Pair.of(executor, problem, golden, other, limits)
        common = pair.constructs(pair.golden)
        own = pair.constructs(pair.other)
    except IncomparableError as error:
        return Comparison("unknown", str(error))
    if RACE in common:
        pair.reverse = in_reverse(pair.golden)
    pair.unseen = {kind: own[kind] for kind in own.keys() - common.keys()}
    if common or own:
        effort = replace(effort, proof_cpu_s=0.0, proof_first=False)
    replayed = pair.replay(pair.design, driven) if driven else None
    if replayed and replayed.result == "different":
        detail = f"{replayed.detail}; inputs as the harness drives them"
        result = replace(replayed, detail=detail)
    else:
        result = _simulated_or_proved(pair, effort)
    if by_value and result.result == "different":
        result = _same_values(pair, effort) or result
    if result.result == "same" and compact_files(pair.golden) == compact_files(pair.other):
        result = replace(result, result="equal", detail="the same text", method="proof")
    elif result.result == "same" and (pair.unseen or common):
        result = _doubted(result, pair.unseen, common)
    return replace(result, cpu_s=pair.cpu_s)


def _doubted(same: Comparison, own: Words, common: Words) -> Comparison:
    """The result `same` where a proof was impossible; `unknown` if the cause is in the other design alone."""
    why = constructs_words("answer", own) or constructs_words("golden answer", common)
    detail = f"{same.detail}; not proved: {why}"
    return replace(same, result="unknown" if own else "same", detail=detail)


def _simulated_or_proved(pair: Pair, effort: Effort) -> Comparison:
    """Result of simulations and, if the effort has time for it, of proofs."""
    proof = _proved(pair, effort.proof_cpu_s) if effort.proof_first else None
    if proof and proof.result != "unknown":
        return proof
    simulated = _simulated(pair, effort)
    if not effort.proof_cpu_s:
        return simulated
    if simulated.result == "different":
        return simulated if proof else _shortest(pair, simulated, effort.proof_cpu_s)
    proof = proof or _proved(pair, effort.proof_cpu_s)
    if proof.result != "unknown":
        return proof
    details = [detail for detail in (simulated.detail, proof.detail) if detail]
    return replace(simulated, detail="; ".join(details), depth=proof.depth)


def _same_values(pair: Pair, effort: Effort) -> Comparison | None:
    """The result `same` if two clocked designs differ only in latency, or in outputs while a valid-like
    output is 0; else None."""
    outputs = pair.design.outputs
    single = [name for name, bits in outputs if bits == 1]
    valid = next(filter(_VALID.search, single), None)
    if valid is None or len(outputs) < 2 or not pair.design.clocks:
        return None
    simulated = pair.simulate(pair.design, effort, valid)
    if simulated.result != "same":
        return None
    count = int(simulated.detail.split()[0])
    detail = f"the same {count} values while {valid} is 1; they differ in latency or in outputs while it is 0"
    return Comparison("same", detail) if count >= LEAST_VALUES else None


def _simulated(pair: Pair, effort: Effort) -> Comparison:
    defaults = pair.simulate(pair.design, effort)
    if defaults.result != "same":
        return defaults
    also = []
    for values in other_values(pair.problem, pair.interface)[: effort.parameter_sets]:
        design = pair.driven(values)
        if design is None:
            continue
        simulated = pair.simulate(design, effort)
        if simulated.result == "different":
            return Comparison("different", f"with {assignments(values)} {simulated.detail}")
        if simulated.result == "same":
            also.append(assignments(values))
    return Comparison("same", defaults.detail + _also_with(also))


def _also_with(values: Sequence[str]) -> str:
    return f"; also with {', '.join(values)}" if values else ""


def _proved(pair: Pair, cpu_s: float) -> Comparison:
    """The result of proofs, one for each set of parameters; the weakest counts. It is `unknown` if one is
    bounded or undecided."""
    depths: list[int] = []
    also: list[str] = []
    for values in ({}, *other_values(pair.problem, pair.interface)):
        design = pair.driven(values)
        if design is None:
            continue
        proof = prove(pair, design, cpu_s)
        with_ = f"with {assignments(values)} " if values else ""
        why = proof.why
        if confirmed := _confirmed(pair, design, proof):
            detail = f"{with_}{confirmed.detail}"
            return Comparison("different", detail, "proof", trace=proof.trace)
        if proof.outcome == "different":
            # Three-valued logic is more pessimistic than a simulator, and a long enough simulation finds
            # the X that matter.
            why = "a difference in X alone, or one that the simulator does not show"
        if why.startswith("the answer has "):
            pair.unseen[why.removeprefix("the answer has ")] = ""
            return Comparison("unknown", "")
        if why:
            return Comparison("unknown", f"not proved: {with_}{why}")
        if proof.outcome == "bounded":
            depths.append(proof.depth or 0)
        if values:
            also.append(assignments(values))
    if depths:
        depth = min(depths)
        return Comparison("unknown", f"proved for {depth} cycles, not further", depth=depth)
    return Comparison("equal", "proved for all inputs" + _also_with(also), "proof")


def _shortest(pair: Pair, simulated: Comparison, cpu_s: float) -> Comparison:
    """Add the shortest distinguishing inputs to a result of simulations, if the default parameters show the
    difference."""
    proof = prove(pair, pair.design, cpu_s)
    confirmed = _confirmed(pair, pair.design, proof)
    return replace(confirmed, trace=proof.trace) if confirmed else simulated


def _confirmed(pair: Pair, design: Driven, proof: Proof) -> Comparison | None:
    """The difference that a proof says, as the simulator shows it; None if there is none."""
    if proof.outcome != "different":
        return None
    replayed = pair.replay(design, proof.trace, proof.clock)
    return replayed if replayed.result == "different" else None


def harness_inputs(grader: Grader, problem: Problem, files: Files) -> Trace:
    """The values of all inputs of the top module whenever one changes, in the longest simulation of the
    harness with a passing answer.

    Random inputs rarely follow a protocol, so they do not separate designs that differ only deep inside
    one; a harness does. Bits that are X or Z become 0. Empty if nothing was dumped (only Icarus dumps), or
    the harness sets parameters that change a port's width.
    """
    watched = RecordingExecutor(grader.executor, problem, lambda job: replace(job, waves=True))
    once = grader.but(executor=watched, cache=None, seeds=1)
    once.grade(problem, Answer(files=dict(files)))
    waves = [wave for _, result in watched.runs for wave in result.waves]
    if not waves or problem.interface is None:
        return ()
    longest = max(waves, key=lambda wave: len(wave.vcd))
    return _inputs(longest, problem.interface)


def _inputs(wave: Wave, interface: Interface) -> Trace:
    dump = read_vcd(wave.vcd)
    scopes = []
    for place, module in wave.modules.items():
        if module == interface.module and place in dump.scopes:
            scopes.append(dump.scopes[place])
    if not scopes:
        return ()
    names = {}
    for port in interface.inputs:
        signal = scopes[0].get(port.name)
        if signal is None or signal.width != port.width:
            return ()
        names[signal.code] = port.name
    value = dict.fromkeys(names.values(), 0)
    steps: dict[int, dict[str, int]] = {}
    for time, code, bits in dump.lines():
        if code in names:
            value[names[code]] = int(bits.translate(_UNKNOWN), 2)
            if time not in steps and len(steps) == MOST_STEPS:
                break
            steps[time] = dict(value)
    return tuple(steps.values())
