"""What a design gave in a simulation of its own, and how what two designs gave compares."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rtl_grader.grading.executors.base import Message, StepResult
from rtl_grader.traces.bench import unpacked
from rtl_grader.traces.inside import comparing
from rtl_grader.traces.stimuli import Stimuli

_NO_PARAMETER = re.compile(r"parameter .* not found", re.I)
Outcome = tuple[Literal["same", "different"], str]


@dataclass(frozen=True)
class Simulated:
    """What a design gave (inside/simulating.py)."""

    packed: str = ""
    """Its outputs, compressed."""
    why: str = ""
    """Why there are none: what the design does, in words."""
    overrun: bool = False

    @classmethod
    def of(cls, result: StepResult) -> Simulated:
        """What the sandbox says."""
        if result.overrun:
            return cls(why="takes too long to simulate", overrun=True)
        output = result.record
        if output is None:
            return cls(why=f"cannot be simulated: {_first_line(result.output)}")
        if not output["compiles"]:
            return cls(why=f"does not compile: {_first_line(output['said'])}")
        if _NO_PARAMETER.search(output["said"]):
            return cls(why="has no such parameter")
        if output["ended"]:
            return cls(why=f"cannot be simulated{output['ended']}")
        return cls(output["lines"])

    def lines(self) -> list[bytes]:
        """All outputs as one word, step by step."""
        return unpacked(self.packed).split(b"\n")

    def missing(self, steps: Stimuli) -> str:
        """That the simulation ended before all steps were done, in words; empty if it did not."""
        done = len(self.lines())
        planned = len(steps.steps)
        if done == planned:
            return ""
        return f"ends its simulation after {done} of {planned} inputs"


@dataclass(frozen=True)
class Traces:
    """What two designs gave for the same inputs."""

    golden: Sequence[bytes]
    other: Sequence[bytes]
    design: Message
    """The golden design as `trace.json` describes it."""
    stimuli: Stimuli

    def weakness(self) -> str | None:
        """Why nothing can be compared with the golden answer's outputs; None if something can."""
        return comparing.weakness(self.golden, self.design["outputs"], self.stimuli.first)

    def at_every_step(self, pessimism: int = 4) -> Outcome:
        """Whether all outputs are equal. In clocked designs an X where the golden answer is known counts only if
        it is frequent, more than once in `pessimism` steps (0: never): simulators are pessimistic about what is
        not reset yet."""
        outputs = self.design["outputs"]
        result = comparing.Comparison(self.golden, self.other, outputs, self.stimuli.first)
        places = result.wrong
        if not self.design["clocks"]:
            places = {**result.unknown, **result.wrong}
        if places:
            name, group = min(places, key=places.__getitem__)
            step = places[name, group]
            word = self.stimuli.steps[step]
            words = f"{name} {result.words(name, step)}"
            inputs = self.design["inputs"]
            return "different", comparing.with_inputs(words, step, word, inputs)
        known = comparing.known_steps(self.golden)
        if pessimism * result.unsure > known:
            words = f"{result.unsure} of {known} times X where the golden answer is known"
            return "different", words
        return "same", f"{len(self.golden)} inputs tried"

    def in_order(self, valid: str) -> Outcome:
        """Whether the other outputs have equal values in order while `valid` is 1, and all outputs in resets. If
        so, the words begin with the number of values."""
        steps = self.stimuli.steps
        result = comparing.InOrder(self.golden, self.other, self.design, steps, valid)
        for step in result.in_reset() if self.golden != self.other else ():
            wrong, _ = result.differences(step, step)
            for name in wrong:
                words = comparing.Comparison.words(result, name, step)
                return "different", f"in reset {name} {words}"
        for (name, _), (_, words) in result.first_differences().items():
            return "different", f"{name} {words}"
        count = sum(len(values) for _, values in result.queues(self.golden))
        return "same", f"{count} values"


def _first_line(text: str) -> str:
    line, _, _ = text.strip().partition("\n")
    return line.strip()[:200] or "no output"
