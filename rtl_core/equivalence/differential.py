"""Golden answer against another answer, both in one simulation, over many inputs: can they be told apart at all?

A mutant that survives a harness says something of the harness only if it behaves differently, and a stub is no cheat where
a constant is what is asked. So both are simulated side by side by a test bench written from the interface: every input
pattern where there are few, random ones else; clocked designs through resets of both polarities, at both clock edges, with
inputs that change in between, and through long stretches without a reset in which inputs stay as they are, so that counters
get far. Where parameters may be set, a few other values that the golden answer accepts are tried as well (`other_values`).
Where the golden answer gives X anything is right, and an X of the other is only held against it when it is frequent: before
the first reset simulators are pessimists.

What no simulation told apart may be given to a proof (`rtl_core.equivalence.proof`).

Not covered: inout ports, unpacked array ports, parameters that are no integers, states that lie deeper than the cycles
simulated. What was not told apart is called the same, with the number of inputs tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from rtl_core.equivalence.pair import Comparison, IncomparableError, Pair
from rtl_core.equivalence.proof import Proof, prove
from rtl_core.equivalence.side_by_side import USUAL, Effort, Trace, Values
from rtl_core.grading.executors.base import Executor
from rtl_core.grading.limits import Limits
from rtl_core.types.problem import Interface, Problem

_VALID = re.compile(r"(^|_)(valid|vld|dv|done)|valid$", re.I)
LEAST_VALUES = 50
"""So many values must have been compared before a difference is put down to latency."""
MAX_VALUE = 1 << 16
"""Largest default of a parameter that is varied."""


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
    """Simulate `other` (path -> text) beside `golden`, first with the default parameters, then with other ones; then, where the effort
    has CPU time for it, prove that the two are equal with the default parameters and with those that the harness sets, or find the
    shortest inputs that tell them apart.

    Args:
        driven: inputs that the harness drives (`harness_inputs.py`); tried first.
        by_value: whether two that differ are the same where they give the same values in order while an output says that these are valid.

    Raises InfrastructureError where the executor fails.
    """
    try:
        pair = Pair.of(executor, problem, golden, other, limits)
    except IncomparableError as error:
        return Comparison("unknown", str(error))
    followed = pair.replay({}, pair.interface, driven, None) if driven else None
    if followed is not None and followed.result == "different":
        found = replace(followed, detail=f"{followed.detail}; inputs as the harness drives them")
    elif effort.proof_first:
        found = _proved(pair, Comparison("unknown", ""), effort.proof_cpu_s)
        found = _simulated(pair, effort) if found.result == "unknown" else found
    else:
        found = _simulated(pair, effort)
        if effort.proof_cpu_s and found.result == "same":
            found = _proved(pair, found, effort.proof_cpu_s)
        elif effort.proof_cpu_s and found.result == "different":
            found = _shortest(pair, found, effort.proof_cpu_s)
    if by_value and found.result == "different":
        found = _same_values(pair, effort) or found
    return replace(found, cpu_s=pair.cpu_s)


def _same_values(pair: Pair, effort: Effort) -> Comparison | None:
    """That two clocked designs differ in latency, or in outputs that nobody is to read; None where no output is named so, or they do not."""
    outputs = [port for port in pair.interface.ports if port.direction == "output"]
    valid = next((port.name for port in outputs if port.width == 1 and _VALID.search(port.name)), None)
    if valid is None or len(outputs) < 2 or not pair.clocking(pair.interface)[0]:
        return None
    found = pair.simulate({}, pair.interface, effort, valid)
    if found.result != "same" or int(found.detail.split()[0]) < LEAST_VALUES:
        return None
    count = found.detail.split()[0]
    return Comparison(
        "same", f"the same {count} values while {valid} is 1; they differ in latency or in outputs while it is 0"
    )


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


def _proved(pair: Pair, simulated: Comparison, cpu_s: float) -> Comparison:
    """What proofs add to what simulations found: the weakest of one proof for each set of parameters."""
    depths: list[int] = []
    also = []
    for values in ({}, *harness_values(pair.problem, pair.interface)):
        ports = pair.interface_with(values) if values else pair.interface
        if ports is None:
            continue
        proof = prove(pair, values, ports, cpu_s)
        with_ = f"with {_in_words(values)} " if values else ""
        if proof.outcome == "different":
            told = pair.replay(values, ports, proof.trace, proof.clock)
            if told.result == "different":
                return Comparison("different", f"{with_}{told.detail}", "proof", trace=proof.trace)
            # Three values are more pessimistic than a simulator, and a simulation of some length tells X that matter.
            proof = Proof("undecided", why="a difference in X alone, or one that the simulator does not show")
        if proof.outcome == "undecided":
            return replace(simulated, detail=f"{simulated.detail}; not proved: {with_}{proof.why}")
        depths += [proof.depth or 0] if proof.outcome == "bounded" else []
        also += [_in_words(values)] if values else []
    if depths:
        return replace(
            simulated, detail=f"{simulated.detail}; proved for {min(depths)} cycles, not further", depth=min(depths)
        )
    return Comparison("equal", "proved for all inputs" + (f"; also with {', '.join(also)}" if also else ""), "proof")


def _shortest(pair: Pair, simulated: Comparison, cpu_s: float) -> Comparison:
    """What a simulation told apart, with the shortest inputs that do, where the default parameters show it."""
    proof = prove(pair, {}, pair.interface, cpu_s)
    if proof.outcome != "different":
        return simulated
    told = pair.replay({}, pair.interface, proof.trace, proof.clock)
    return replace(told, trace=proof.trace) if told.result == "different" else simulated


def other_values(problem: Problem, interface: Interface) -> list[Values]:
    """Sets of parameter values to try, the most telling first: one more than every default, what the harness sets, half of each
    default, one more than each. Whether a design accepts them is for elaboration to say."""
    defaults = _defaults(interface)
    found: list[Values] = []
    if len(defaults) > 1:
        found.append({name: value + 1 for name, value in defaults.items()})
    found += harness_values(problem, interface)
    found += [{name: value // 2} for name, value in defaults.items() if value > 1]
    found += [{name: value + 1} for name, value in defaults.items()]
    return [dict(pairs) for pairs in dict.fromkeys(tuple(sorted(values.items())) for values in found)]


def harness_values(problem: Problem, interface: Interface) -> list[Values]:
    """The values other than its default that the harness gives to each parameter, one at a time."""
    set_ = {name: _set_by(problem.harness, name, value) for name, value in _defaults(interface).items()}
    turns = range(max((len(values) for values in set_.values()), default=0))
    return [{name: values[turn]} for turn in turns for name, values in set_.items() if turn < len(values)]


def _defaults(interface: Interface) -> dict[str, int]:
    return {p.name: p.default for p in interface.parameters if p.default is not None and 0 < p.default < MAX_VALUE}


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
