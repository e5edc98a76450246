"""What a harness drives: the values of the design's inputs, dumped once while the simulator runs a passing answer.

Random inputs seldom follow a protocol, so two designs that differ only deep inside one are not told apart by them. A harness follows it,
though it may not look at every output. Icarus alone dumps (`grading/inside/waves`); of other harnesses nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rtl_core.equivalence.side_by_side import Trace
from rtl_core.grading.executors.base import Wave
from rtl_core.grading.grader import Grader
from rtl_core.grading.jobs import Watched
from rtl_core.grading.vcd import read_vcd
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Interface, Problem

_KNOWN = str.maketrans("xzXZ", "0000")
MOST_STEPS = 3_000
"""Changes of the inputs that are kept, from the first on: each is a line of a bench."""


def harness_inputs(grader: Grader, problem: Problem, files: Mapping[str, str]) -> Trace:
    """The values of all inputs of the top module, one step for each time at which one changes, in the longest simulation of the harness.

    Bits that are X or Z are 0. Empty where nothing was dumped, or where the harness sets parameters that change a port's width.
    """
    watched = Watched(grader.executor, problem, lambda job: replace(job, waves=True))
    grader.but(executor=watched, cache=None, seeds=1).grade(problem, Answer(files=dict(files)))
    waves = [wave for _, result in watched.runs for wave in result.waves]
    if not waves or problem.interface is None:
        return ()
    return _inputs(max(waves, key=lambda wave: len(wave.vcd)), problem.interface)


def _inputs(wave: Wave, interface: Interface) -> Trace:
    dump = read_vcd(wave.vcd)
    place = next((at for at, module in wave.modules.items() if module == interface.module and at in dump.scopes), None)
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
