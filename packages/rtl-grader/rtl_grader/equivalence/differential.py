"""Compare an answer with the golden one in one simulation over many inputs.

A mutant that survives a harness says something about the harness only if it behaves differently, and a stub
is no cheat if a constant is asked for. So both designs run side by side in a test bench that is generated
from the interface: with every input pattern if there are few, else random ones; clocked designs with resets
of both polarities, at both clock edges, with inputs that change in between, and in long stretches without a
reset in which inputs are held, so that counters get far. Other values of parameters that the harness or the
specification names are also tried (`other_values`). Where the golden answer gives X anything is right. An X
of the other design counts only if it is frequent: before the first reset simulators are pessimistic. If the
designs are not told apart, a proof can follow (`rtl_grader.equivalence.proof`).

Not covered: inout ports, unpacked array ports, non-integer parameters, states deeper than the simulated
cycles. Designs that are not told apart are reported as the same, with the number of inputs tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rtl_grader.equivalence.pair import Comparison, IncomparableError, Pair
from rtl_grader.equivalence.proof import prove
from rtl_grader.equivalence.side_by_side import USUAL, Effort, Trace, Values
from rtl_grader.grading.executors.base import Executor, Wave
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.jobs import RecordingExecutor
from rtl_grader.grading.limits import Limits
from rtl_grader.grading.vcd import read_vcd
from rtl_grader.hdl.interface import documents
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Interface, Problem

_VALID = re.compile(r"(^|_)(valid|vld|dv|done)|valid$", re.I)
LEAST_VALUES = 50
"""Number of values that must be compared before a difference is attributed to latency."""
MAX_VALUE = 1 << 16
"""Largest default of a parameter for which other values are tried."""
MOST_STEPS = 3_000
"""Number of changes of a harness' inputs that are kept, from the start; each is a line of a bench."""
_KNOWN = str.maketrans("xzXZ", "0000")


def compare(
    executor: Executor,
    problem: Problem,
    golden: Mapping[str, str],
    other: Mapping[str, str],
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
        common, own = pair.constructs(pair.golden), pair.constructs(pair.other)
    except IncomparableError as error:
        return Comparison("unknown", str(error))
    pair.unseen = {kind: own[kind] for kind in own.keys() - common.keys()}
    if common or own:
        effort = replace(effort, proof_cpu_s=0.0, proof_first=False)
    found = pair.replay({}, pair.interface, driven, None) if driven else Comparison("unknown", "")
    if found.result == "different":
        found = replace(found, detail=f"{found.detail}; inputs as the harness drives them")
    else:
        found = _found(pair, effort)
    if by_value and found.result == "different":
        found = _same_values(pair, effort) or found
    if found.result == "same" and (pair.unseen or common):
        who, constructs = ("answer", pair.unseen) if pair.unseen else ("golden answer", common)
        words = ", ".join(f"{kind} {name}".strip() for kind, name in constructs.items())
        detail = f"{found.detail}; not proved: the {who} has {words}"
        found = replace(found, result="unknown" if pair.unseen else "same", detail=detail)
    return replace(found, cpu_s=pair.cpu_s)


def _found(pair: Pair, effort: Effort) -> Comparison:
    """Result of simulations and, if the effort has time for it, of proofs."""
    proof = _proved(pair, effort.proof_cpu_s) if effort.proof_first else None
    found = proof if proof and proof.result != "unknown" else _simulated(pair, effort)
    if effort.proof_cpu_s and found.result == "different" and not proof:
        return _shortest(pair, found, effort.proof_cpu_s)
    if found.result not in ("same", "unknown") or not effort.proof_cpu_s:
        return found
    proof = proof or _proved(pair, effort.proof_cpu_s)
    if proof.result != "unknown":
        return proof
    return replace(
        found, detail="; ".join(filter(None, (found.detail, proof.detail))), depth=proof.depth
    )


def _same_values(pair: Pair, effort: Effort) -> Comparison | None:
    """The result `same` if two clocked designs differ only in latency, or in outputs while a valid-like
    output is 0; else None."""
    outputs = [port for port in pair.interface.ports if port.direction == "output"]
    valid = next(
        (port.name for port in outputs if port.width == 1 and _VALID.search(port.name)), None
    )
    if valid is None or len(outputs) < 2 or not pair.clocking(pair.interface)[0]:
        return None
    found = pair.simulate({}, pair.interface, effort, valid)
    count = int(found.detail.split()[0]) if found.result == "same" else 0
    detail = f"the same {count} values while {valid} is 1; they differ in latency or in outputs while it is 0"
    return Comparison("same", detail) if count >= LEAST_VALUES else None


def _simulated(pair: Pair, effort: Effort) -> Comparison:
    found = pair.simulate({}, pair.interface, effort)
    if found.result != "same":
        return found
    tried = []
    for values in other_values(pair.problem, pair.interface)[: effort.parameter_sets]:
        ports = pair.interface_with(values)
        if ports is None:
            continue
        told = pair.simulate(values, ports, effort)
        if told.result == "different":
            return Comparison("different", f"with {_in_words(values)} {told.detail}")
        if told.result == "same":
            tried.append(_in_words(values))
    return Comparison("same", found.detail + (f"; also with {', '.join(tried)}" if tried else ""))


def _proved(pair: Pair, cpu_s: float) -> Comparison:
    """The result of proofs, one for each set of parameters; the weakest counts. It is `unknown` if one is
    bounded or undecided."""
    depths: list[int] = []
    also = []
    for values in ({}, *other_values(pair.problem, pair.interface)):
        ports = pair.interface_with(values) if values else pair.interface
        if ports is None:
            continue
        proof = prove(pair, values, ports, cpu_s)
        with_ = f"with {_in_words(values)} " if values else ""
        why = proof.why
        if proof.outcome == "different":
            told = pair.replay(values, ports, proof.trace, proof.clock)
            if told.result == "different":
                return Comparison("different", f"{with_}{told.detail}", "proof", trace=proof.trace)
            # Three-valued logic is more pessimistic than a simulator, and a long enough simulation finds
            # the X that matter.
            why = "a difference in X alone, or one that the simulator does not show"
        if why.startswith("the answer has "):
            pair.unseen[why.removeprefix("the answer has ")] = ""
            return Comparison("unknown", "")
        if why:
            return Comparison("unknown", f"not proved: {with_}{why}")
        depths += [proof.depth or 0] if proof.outcome == "bounded" else []
        also += [_in_words(values)] if values else []
    if depths:
        return Comparison(
            "unknown", f"proved for {min(depths)} cycles, not further", depth=min(depths)
        )
    return Comparison(
        "equal",
        "proved for all inputs" + (f"; also with {', '.join(also)}" if also else ""),
        "proof",
    )


def _shortest(pair: Pair, simulated: Comparison, cpu_s: float) -> Comparison:
    """Add the shortest distinguishing inputs to a result of simulations, if the default parameters show the
    difference."""
    proof = prove(pair, {}, pair.interface, cpu_s)
    if proof.outcome != "different":
        return simulated
    told = pair.replay({}, pair.interface, proof.trace, proof.clock)
    return replace(told, trace=proof.trace) if told.result == "different" else simulated


def other_values(problem: Problem, interface: Interface) -> list[Values]:
    """The non-default values that the harness or the specification gives to each parameter, one at a time."""
    defaults = {
        p.name: p.default
        for p in interface.parameters
        if p.default is not None and 0 < p.default < MAX_VALUE
    }
    found: list[Values] = []
    for texts in (
        [text for _, text in sorted(problem.harness.items())],
        documents(problem.prompt, problem.context),
    ):
        given = {name: _set_by(texts, name, value) for name, value in defaults.items()}
        turns = range(max((len(values) for values in given.values()), default=0))
        found += [
            {name: values[turn]}
            for turn in turns
            for name, values in given.items()
            if turn < len(values)
        ]
    return [values for place, values in enumerate(found) if values not in found[:place]]


def _in_words(values: Values) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _set_by(texts: Iterable[str], name: str, default: int) -> list[int]:
    """Non-default values that texts give a parameter, as far as they have them as numbers."""
    word = re.escape(name)
    patterns = (
        rf"\b{word}\b['\"`]?\s*[:=]\s*['\"`]?(\d+(?:,\s*\d+|,? (?:or|and) \d+)*)\b(?!')",  # a dictionary, an assignment
        rf"-[PGp](?:\w+\.)?{word}=(\d+)\b",  # a simulator's option
        rf"['\"]{word}['\"]\s*,\s*[\[(]([\d,\s]+)[\])]",  # pytest.mark.parametrize("WIDTH", [4, 8])
    )
    text = "\n".join(texts)
    found = [match for pattern in patterns for match in re.findall(pattern, text)]
    digits = re.findall(r"\d+", " ".join(found))
    return [
        value
        for value in dict.fromkeys(map(int, digits))
        if value != default and 0 < value < MAX_VALUE
    ]


def harness_inputs(grader: Grader, problem: Problem, files: Mapping[str, str]) -> Trace:
    """The values of all inputs of the top module whenever one changes, in the longest simulation of the
    harness with a passing answer.

    Random inputs rarely follow a protocol, so they do not separate designs that differ only deep inside
    one; a harness does. Bits that are X or Z become 0. Empty if nothing was dumped (only Icarus dumps), or
    the harness sets parameters that change a port's width.
    """
    watched = RecordingExecutor(grader.executor, problem, lambda job: replace(job, waves=True))
    grader.but(executor=watched, cache=None, seeds=1).grade(problem, Answer(files=dict(files)))
    waves = [wave for _, result in watched.runs for wave in result.waves]
    if not waves or problem.interface is None:
        return ()
    return _inputs(max(waves, key=lambda wave: len(wave.vcd)), problem.interface)


def _inputs(wave: Wave, interface: Interface) -> Trace:
    dump = read_vcd(wave.vcd)
    place = next(
        (
            at
            for at, module in wave.modules.items()
            if module == interface.module and at in dump.scopes
        ),
        None,
    )
    ports = {port.name: port.width for port in interface.ports if port.direction == "input"}
    scope = {} if place is None else dump.scopes[place]
    if any(name not in scope or scope[name].width != width for name, width in ports.items()):
        return ()
    named = {scope[name].code: name for name in ports}
    value, steps = dict.fromkeys(ports, 0), dict[int, dict[str, int]]()
    for time, code, bits in dump.lines():
        if code in named:
            value[named[code]] = int(bits.translate(_KNOWN), 2)
            if time not in steps and len(steps) == MOST_STEPS:
                break
            steps[time] = dict(value)
    return tuple(steps.values())
