"""Inputs that tell designs apart: every pattern if they are few, and random ones under a fixed seed.

A step is one change of the inputs; after each the outputs are looked at. With clocks: phases of random inputs
with resets now and then, in which one input also changes between the edges; stretches in which inputs are
mostly held, some of them with all vectors at signed extremes, so that sums saturate; and long runs with single bits
held, so that counters get far. A held bit changes now and then between the edges, and near the end for a cycle.
Values are random, corners, literals of the golden design, or values that another input of the same width had shortly
before.

Not covered: states deeper than the steps reach.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, product
from math import prod

from rtl_grader.traces.driving import Clock, Driven
from rtl_grader.traces.inside.comparing import places, replay_steps
from rtl_grader.traces.literals import LEAST_OWN, Place, fields, numbers

Trace = Sequence[Mapping[str, int]]
"""Values of all inputs, by step."""
PHASES = 12
STRETCHES = 8
EXTREMES = 6
"""Stretches with all vectors at signed extremes."""
RUNS = 6
ORDERS = 16
"""Steps in random order for each single change of each pattern of a small design without clocks, at most."""
SEED = 20
MOST_BITS = 12_000_000
"""Inputs and outputs of all steps together have at most about this many bits."""


@dataclass(frozen=True)
class Effort:
    """How much is tried before two designs are called the same."""

    exhaustive_bits: int = 12
    """Combinational designs with at most this many input bits are tested exhaustively."""
    vectors: int = 8000
    """Random patterns for the others, and at most so many after all patterns."""
    cycles: int = 160
    """Clock cycles of each of the twelve phases with resets now and then."""
    stretch: int = 240
    """Clock cycles of each of the fourteen stretches without a reset, inputs mostly held."""
    run: int = 1200
    """Clock cycles of each of six runs without a reset, with single bits held; the first two are twice as long."""

    @classmethod
    def of_cycles(cls, cycles: int) -> Effort:
        """Two runs of `cycles` clock cycles, four of half as many, half as many in phases and in the stretches
        without extremes; or as many random patterns."""
        return cls(
            exhaustive_bits=16,
            vectors=cycles,
            cycles=max(8, cycles // (2 * PHASES)),
            stretch=max(8, cycles // (2 * STRETCHES)),
            run=max(8, cycles // 2),
        )

    def times(self, factor: float) -> Effort:
        """The same for a share of the work."""
        sizes = {}
        for name in ("vectors", "cycles", "stretch", "run"):
            size = getattr(self, name) * factor
            sizes[name] = max(8, int(size))
        return replace(self, **sizes)


USUAL = Effort()


@dataclass(frozen=True)
class Stimuli:
    """All inputs by step, as one vector each: the first input has the lowest bits."""

    steps: Sequence[int]
    first: int = 0
    """The first step whose outputs count: before it nothing has been reset."""


def stimuli(design: Driven, effort: Effort, text: str = "") -> Stimuli:
    """Inputs for a design. The numbers in a text, such as the golden design's, are tried as values."""
    bits = sum(port.width or 0 for port in design.interface.ports)
    cycles = PHASES * effort.cycles
    cycles += (STRETCHES + EXTREMES) * effort.stretch
    cycles += (RUNS + 2) * effort.run
    size = bits * (effort.vectors + 4 * cycles)
    if size > MOST_BITS:
        effort = effort.times(MOST_BITS / size)
    inputs = _Inputs(design, text)
    if design.clocks:
        return Stimuli(inputs.steps, inputs.clocked(effort))
    inputs.patterns(effort)
    return Stimuli(inputs.steps)


def is_exhausted(design: Driven, effort: Effort) -> bool:
    """Whether the inputs for a design are all that there are."""
    bits = sum(width for _, width in design.inputs)
    return not design.clocks and bits <= effort.exhaustive_bits


def replayed(design: Driven, trace: Trace, clock: Clock | None = None) -> Stimuli:
    """Only the inputs of a trace.

    Args:
        clock: the only clock of the designs, and whether its rising edge counts; then each step of the trace is
            a cycle of it. Else registers sample the inputs before the step in which their clock changes.
    """
    return Stimuli(replay_steps(design.inputs, trace, design.clocks, clock))


class _Inputs:
    """The inputs of a design, and the steps so far."""

    def __init__(self, design: Driven, text: str) -> None:
        self.steps: list[int] = []
        self._design = design
        self._random = random.Random(SEED)
        self._word = 0
        self._places: dict[str, Place] = places(design.inputs)
        self.bits = sum(bits for _, bits in self._places.values())
        controls = {*design.clocks, *design.resets}
        self._data = [name for name in self._places if name not in controls]
        self._single = [name for name in self._data if self._places[name][1] == 1]
        self._vectors = [name for name in self._data if self._places[name][1] > 1]
        self._fields = fields(text, self._data)
        self._numbers = numbers(text)
        self._literals = cache(self._fitting)
        self._recent = defaultdict[int, deque[int]](lambda: deque([0], maxlen=6))

    def _fitting(self, width: int) -> Sequence[int]:
        """The literals for an input, or a part of one: those of its width, else those without a width, and all
        others in pieces, as inputs have them in `{a, b} == 32'hdeadbeef`."""
        own = self._numbers.get(width) or self._numbers.get(0, [])
        size = 1 << width
        values = [value for value in own if value < size]
        rest = set[int]()
        for value in chain(*self._numbers.values()):
            bits = min(self.bits, value.bit_length())
            rest.update((value >> low) % size for low in range(0, bits, width))
        return values + sorted(rest.difference(values, range(LEAST_OWN)))

    def put(self, name: str, value: int) -> None:
        start, width = self._places[name]
        mask = (1 << width) - 1
        self._word &= ~(mask << start)
        self._word |= (value & mask) << start

    def toggle(self, name: str) -> None:
        """Invert an input of one bit, in a step of its own."""
        self._word ^= 1 << self._places[name][0]
        self.step()

    def step(self) -> None:
        """Add a step if an input has changed."""
        if self.steps[-1:] != [self._word]:
            self.steps.append(self._word)

    def clocked(self, effort: Effort) -> int:
        """Drive a design with clocks. Returns the first step after the first reset."""
        self._reset(2)
        first = len(self.steps) if self._design.resets else 0
        for phase in range(PHASES):
            self._phase(phase, effort.cycles)
        extremes = range(EXTREMES) if self._vectors else ()
        # One after the other, since drawing the ways takes random numbers.
        for ways in chain(map(self._ways, range(STRETCHES)), map(self._extremes, extremes)):
            self._reset(2)
            self._hold(ways, effort.stretch)
        for run in range(RUNS):
            self._draw(2)
            self._run(run, effort.run)
        return first

    def _run(self, run: int, cycles: int) -> None:
        """Data inputs are drawn again in each cycle and single bits held: in the first run at 1, in the second
        only the first of them. In the third single bits are drawn again, too."""
        ways = dict.fromkeys(self._data, 3)
        for name in self._single:
            if run < 2:
                ways[name] = int(run == 0 or name == self._single[0])
            elif run > 2:
                ways[name] = self._below(2)
        self._reset(0)
        self._hold(ways, 2 * cycles if run < 2 else cycles)

    def patterns(self, effort: Effort) -> None:
        """Drive a design without clocks: a latch and a missing name in a sensitivity list show only in some orders
        of the same patterns, and where one input changes alone."""
        vectors = effort.vectors
        if self.bits <= effort.exhaustive_bits:
            patterns = 1 << self.bits
            self.steps += range(patterns)
            vectors = min(vectors, ORDERS * self.bits * patterns)
        else:
            self.steps += [0, (1 << self.bits) - 1]
            self._cross(vectors // 4)
        for at in range(vectors):
            if at % 2:
                self._change_one()
            else:
                self._draw(2)
            self.step()

    def _cross(self, most: int) -> None:
        """Every pair, triple, ... of corners, with all values of inputs of few bits, if these are at most `most`."""
        choices = [_corners(width) for _, width in self._places.values()]
        if prod(map(len, choices)) <= most:
            for values in product(*choices):
                for name, value in zip(self._places, values, strict=True):
                    self.put(name, value)
                self.step()

    def _below(self, limit: int) -> int:
        return int(self._random.random() * limit)

    def _one_of(self, values: Sequence[int]) -> int:
        return values[self._below(len(values))]

    def _value(self, name: str, density: int) -> int:
        _, width = self._places[name]
        if width == 1:
            return int(self._below(4) < density)
        kind = self._below(12)
        ones = (1 << width) - 1
        literals = self._literals(width)
        recent = self._recent[width]
        value = self._random.getrandbits(width)
        if kind < 2:
            value = kind * ones
        elif kind == 2:
            place = self._below(width) if self._below(2) else width - 1
            value = (1 << place) + (0, -1, 1 << self._below(width))[self._below(3)]
        elif kind == 3:
            value = self._random.getrandbits(min(width, 4))
        elif kind in (4, 5) and literals:
            value = self._one_of(literals)
        elif kind == 6:
            value = self._one_of(recent)
        elif kind in (7, 8):
            value = self._with_fields(name, value)
        recent.append(value)
        return value

    def _with_fields(self, name: str, value: int) -> int:
        """The value with literals in most of the parts that the design selects from the input."""
        for low, width in self._fields.get(name, ()):
            literals = self._literals(width)
            if literals and self._below(4):
                literal = self._one_of(literals)
                mask = (1 << width) - 1
                value &= ~(mask << low)
                value |= literal << low
        return value

    def _draw(self, density: int, ways: Mapping[str, int] | None = None) -> None:
        """New values of all data inputs, or of those whose way is 3."""
        for name in self._data:
            if ways is None or ways[name] == 3:
                self.put(name, self._value(name, density))

    def _change_one(self) -> None:
        """A new value of one data input."""
        if self._data:
            name = self._data[self._below(len(self._data))]
            self.put(name, self._value(name, 2))

    def _levels(self, active: bool) -> None:
        for name, low in self._design.levels:
            self.put(name, int(low != active))

    def _reset(self, density: int) -> None:
        """Three cycles in reset, then out of it; `density` 0 holds the data inputs."""
        for name in self._design.clocks:
            self.put(name, 0)
        self._levels(True)
        if density:
            self._draw(density)
        self.step()
        for _ in range(3):
            self._turn()
        self._levels(False)
        self.step()

    def _turn(self) -> None:
        """Two edges of every clock."""
        for name in self._design.clocks:
            self.toggle(name)
            self.toggle(name)

    def _tick(self) -> None:
        """One cycle of the only clock, perhaps with another input between its edges; or some edges of several."""
        clocks = self._design.clocks
        if len(clocks) == 1:
            self.toggle(clocks[0])
            if self._below(4) == 0:
                self._change_one()
                self.step()
            self.toggle(clocks[0])
            return
        for name in clocks:
            if self._below(2):
                self.toggle(name)

    def _phase(self, phase: int, cycles: int) -> None:
        """Random inputs; resets are mostly inactive, in each fourth phase mostly active."""
        usual = phase % 4 == 3
        density = 1 + phase % 3
        self._levels(not usual)
        self._draw(density)
        self.step()
        for _ in range(3):
            self._tick()
        for cycle in range(cycles):
            self._draw(density)
            self.step()
            # Once a cycle: a pulse between two edges resets some right designs and others not.
            if cycle % 8 == 0:
                self._levels(usual)
                self.step()
            else:
                for name in self._design.resets:
                    if self._below(24) == 0:
                        self.toggle(name)
            self._tick()

    def _ways(self, phase: int) -> dict[str, int]:
        """How each data input behaves in a stretch: 0 and 1 hold it at all zeros or ones, 2 at a random value, 3
        draws it again in each cycle. The first two single bits, often enable and direction, alternate."""
        ways = {name: self._below(4) for name in self._data}
        for at, name in enumerate(self._single[:2]):
            ways[name] = 1 - (phase >> at & 1)
        return ways

    def _extremes(self, phase: int) -> dict[str, int]:
        """Ways of a stretch: vectors at the smallest signed number, the largest, or in turn, while the first single
        bit is 1, and then all of them."""
        others = int(phase >= EXTREMES // 2)
        ways = dict.fromkeys(self._single, others)
        for name in self._single[:1]:
            ways[name] = 1
        kind = phase % 3
        for at, name in enumerate(self._vectors):
            is_largest = at % 2 if kind == 2 else kind
            ways[name] = 4 + is_largest
        return ways

    def _hold(self, ways: Mapping[str, int], cycles: int) -> None:
        """Hold inputs: a way of 4 is the smallest signed number, 5 the largest one; see `_ways` for the others."""
        for name, way in ways.items():
            value = -way
            if way > 3:
                _, width = self._places[name]
                smallest = 1 << width - 1
                value = smallest - (way - 4)
            elif way > 1:
                value = self._value(name, 2)
            self.put(name, value)
        self.step()
        held = [name for name in self._single if ways[name] < 2]
        for cycle in range(cycles):
            if held and self._below(2):
                name = held[self._below(len(held))]
                self.toggle(name)
                if cycle > 0.9 * cycles and self._below(4) == 0:
                    self._turn()
                self.put(name, ways[name])
            self._draw(2, ways)
            self.step()
            self._turn()


def _corners(width: int) -> Sequence[int]:
    """All values of at most four bits; else zero, one, all ones, and the signed extremes."""
    if width <= 4:
        return range(1 << width)
    sign = 1 << width - 1
    return 0, 1, 2 * sign - 1, sign, sign - 1
