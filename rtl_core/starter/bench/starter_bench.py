"""Drives a design and its reference model side by side and compares every output after every change.

`spec` holds the problem's name, width, option, the data ports as (name, width) in header order and, for a
clocked design, clock, reset, active_low, asynchronous, reset_state and bursts. `reference(width, option,
state, inputs)` gives (next state, outputs now). Stimuli depend on the run's seed and on the problem, so all
answers to one problem get the same.

A test is a generator over a `Bench`: it drives inputs, yields the simulator steps to wait, and checks. It is resumed by
the simulator's timed callbacks, not by cocotb's scheduler: a step costs 4 us in place of 30, which is what pays for
thousands of them. So a bench goes past cocotb's handles to the simulator's (`cocotb.simulator`, cocotb 2).

The first wrong check fails a test. The test goes on for `MORE` checks, so that its message can end with a
record of how it was wrong (`Bench.report`), from which the history reads the kind of failing.
"""

import atexit
import ctypes
import functools
import os
import random
import sys

import cocotb
import starter_stimuli as stimuli
from cocotb import simulator
from cocotb.triggers import Timer
from cocotb.utils import get_sim_steps, get_sim_time

SETTLE_NS = 2
"""Longer than the `#1` that some designs put before each assignment."""
IMMEDIATE = 3
"""The simulator's code for a write that takes effect at once."""
BURST_CHECK = 97
"""Clock cycles between two checks of a burst."""
MORE = 192
"""Checks that a test goes on for behind its first wrong one: some 60 clock cycles, a millisecond of CPU time."""


@atexit.register
def leave():
    """End the simulator here: the results are written, and to take Python's memory apart costs as much as all tests."""
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(0)


class Bench:
    def __init__(self, dut, spec, reference, name):
        self.spec, self.reference = spec, reference
        self.width, self.option = spec["width"], spec["option"]
        self.state = self.cleared = spec.get("reset_state")
        self.widths = [width for _, width in spec["inputs"]]
        self.inputs = (0,) * len(self.widths)
        self.random = random.Random(
            f"{cocotb.RANDOM_SEED}/{spec['problem']}/{self.width}/{name}"
        )
        self.settle = get_sim_steps(SETTLE_NS, "ns", round_mode="ceil")
        self.drivers = [driver(find(dut, *port)) for port in spec["inputs"]]
        self.outputs = [
            (name, find(dut, name, n).get_signal_val_binstr, f"0{n}b")
            for name, n in spec["outputs"]
        ]
        self.first = ""  # the first wrong check in words
        self.checks = self.wrong = self.unknown = self.starts = self.at_reset = 0
        self.in_reset = self.by_reset = self.was_wrong = False
        self.cycles, self.seen = [], []
        if "clock" in spec:
            self.clock_handle = find(dut, spec["clock"], 1)
            self.clock, self.reset = (
                driver(self.clock_handle),
                driver(find(dut, spec["reset"], 1)),
            )

    async def run(self, steps):
        """Run a test to its end; raises what it raises."""
        await Timer(
            1, "step"
        )  # A write before time moves would keep Icarus from starting continuous assignments.
        self.steps, self.running, self.failure = steps, True, None
        self.resume()
        while self.running:
            await Timer(500 * self.settle, "step")
        if self.failure is not None:
            raise self.failure
        if self.first:
            raise AssertionError(self.report())

    def resume(self):
        try:
            wait = next(self.steps)
        except StopIteration:
            self.running = False
        except Exception as failure:
            self.running, self.failure = False, failure
        else:
            simulator.register_timed_callback(wait, self.resume)

    def drive(self, inputs):
        self.inputs = inputs
        for put, value in zip(self.drivers, inputs):  # noqa: B905
            put(value)

    def check(self, when):
        """Compare every output with the reference model, bit by bit: an X is never right."""
        self.following, expected = self.reference(
            self.width, self.option, self.state, self.inputs
        )
        self.checks += 1
        wrong = False
        for (name, get, form), value in zip(self.outputs, expected):  # noqa: B905
            if get() != format(value, form):
                wrong = True
                if not self.first:
                    self.first = (
                        f"{self.moment(when)}: {name} is {get()}, expected {value:{form}}"
                    )
                    self.last, self.ns = self.checks + MORE, get_sim_time("ns")
                break
        if self.first:
            self.note(wrong, expected)

    def moment(self, when):
        """The check in words: the tested parameter, if any, when it is done, and the inputs."""
        ports = zip(self.spec["inputs"], self.inputs, strict=True)
        driven = ", ".join(f"{name}={value:#x}" for (name, _), value in ports)
        parameter = self.spec.get("parameter")
        tested = f"{parameter}={self.width}, " if parameter else ""
        return f"{tested}{when}, {driven}"

    def note(self, wrong, expected):
        """Count a check from the first wrong one on."""
        self.seen = [
            (get(), format(value, form))
            for (_, get, form), value in zip(self.outputs, expected, strict=True)
        ]
        self.wrong += wrong
        self.unknown += any(set(value) - set("01") for value, _ in self.seen)
        if wrong and not self.was_wrong:
            self.starts += 1
            self.at_reset += self.by_reset
        self.was_wrong = wrong
        if self.checks == self.last:
            raise AssertionError(self.report())

    def report(self):
        """The first wrong check in words, and the record: `checks` made, `wrong` ones, those with an
        `unknown` bit; how often a right check was followed by a wrong one (`starts`), and how often only a
        reset lay between the two (`at_reset`). Of a clocked design also values before rising edges: how
        many were `off`, and how many of these outputs' values would be if each came a cycle `late` or
        `early`. Last the time of the first wrong check.
        """
        counts = {
            name: getattr(self, name)
            for name in ("checks", "wrong", "unknown", "starts", "at_reset")
        }
        if "clock" in self.spec:
            counts |= {"off": 0, "late": 0, "early": 0}
            for output in zip(*self.cycles):  # noqa: B905
                off = differing(output, 0)
                if off:
                    counts["off"] += off
                    counts["late"] += differing(output, -1)
                    counts["early"] += differing(output, 1)
        record = " ".join(f"{name}={count}" for name, count in counts.items())
        return f"{self.first} [{record} ns={self.ns:.3f}]"

    def apply(self, every, when):
        """Drive one input tuple after the other and check each."""
        for inputs in every:
            self.drive(inputs)
            yield self.settle
            self.check(when)

    # Clocked designs. Each generator ends at a low clock, unless it says otherwise.

    def set_reset(self, on):
        self.reset(int(on != self.spec["active_low"]))
        self.by_reset |= on != self.in_reset
        if on and self.spec["asynchronous"]:
            self.state = self.cleared
        self.in_reset = on

    def rise(self, when="after a rising clock edge"):
        """A rising clock edge: the state moves on as of the last check, or is cleared in reset."""
        self.state = self.cleared if self.in_reset else self.following
        self.by_reset &= self.in_reset
        if self.seen:
            self.cycles.append(self.seen)
        self.clock(1)
        yield self.settle
        self.check(when)

    def fall(self):
        self.clock(0)
        yield self.settle
        self.check("after a falling clock edge")

    def cycle(self, inputs, when="after a rising clock edge"):
        """Inputs change at a low clock, then it rises and falls."""
        self.drive(inputs)
        yield self.settle
        self.check("before a rising clock edge")
        yield from self.rise(when)
        yield from self.fall()

    def start(self):
        """Out of the unknown: reset over two clock edges, unchecked, then released."""
        self.clock(0)
        self.drive(self.inputs)
        self.set_reset(False)
        yield self.settle
        self.set_reset(True)
        for level in (1, 0, 1, 0):
            yield self.settle
            self.clock(level)
        yield self.settle
        self.state = self.cleared
        self.set_reset(False)

    def leave_reset_state(self, high=False):
        """Clock random inputs until the outputs tell the state from the reset state; ends at a low or a high clock."""
        for _ in range(200):
            self.drive(self.draw(0.6))
            yield self.settle
            self.check("before a rising clock edge")
            yield from self.rise()
            if not high:
                yield from self.fall()
            self.drive(self.draw(0.6))
            yield self.settle
            self.check("between clock edges")
            now = self.reference(self.width, self.option, self.state, self.inputs)[1]
            if now != self.reference(self.width, self.option, self.cleared, self.inputs)[1]:
                return
            if high:
                yield from self.fall()
        raise AssertionError("the reference model never left its reset state")

    def burst(self, inputs, count):
        """`count` clock cycles with the same inputs, by the simulator's own clock, checked now and then."""
        self.drive(inputs)
        yield self.settle
        self.check("before a rising clock edge")
        clock = simulator.clock_create(self.clock_handle)
        clock.start(4 * self.settle, 2 * self.settle, True, IMMEDIATE)
        self.by_reset = False
        early = self.settle
        try:
            while count > 0:
                cycles = min(count, BURST_CHECK)
                yield 4 * self.settle * cycles - early
                count, early = count - cycles, 0
                for _ in range(cycles):
                    self.state = self.reference(self.width, self.option, self.state, inputs)[0]
                self.check("after many clock cycles with the same inputs")
        finally:
            clock.stop()

    def draw(self, density=0.5):
        return stimuli.draw(self.random, self.widths, [density] * len(self.widths))


def find(dut, name, width):
    """The simulator's handle of a port; raises AssertionError when it has another width."""
    handle = dut[name]
    if len(handle) != width:
        raise AssertionError(f"{name} has {len(handle)} bits, expected {width}")
    return handle._handle


def differing(output, shift):
    """How many values of an output differ from those expected `shift` cycles later. `output`: (value, expected) of each
    cycle.
    """
    values, expected = zip(*output)  # noqa: B905
    end = len(output) - 1
    return sum(a != b for a, b in zip(values[1:end], expected[1 + shift : end + shift]))  # noqa: B905


def driver(handle):
    return functools.partial(handle.set_signal_val_int, IMMEDIATE)


def test(steps):
    """A test of the bench from a generator function over a `Bench`."""

    async def run(dut, spec, reference):
        bench = Bench(dut, spec, reference, steps.__name__)
        await bench.run(steps(bench))

    return run


@test
def corners(bench):
    """Combinational: the corner cases of `stimuli.directed`."""
    yield from bench.apply(stimuli.directed(bench.random, bench.widths), "corner case")


@test
def vectors(bench):
    """Combinational: every input in random order where they are few, else many random ones."""
    yield from bench.apply(stimuli.vectors(bench.random, bench.widths), "random inputs")


@test
def reset_value(bench):
    """Reset clears, holds against clock edges, and lets go only at the first edge after its release."""
    bench.clock(0)
    bench.set_reset(False)
    bench.drive(bench.draw())
    yield bench.settle
    bench.set_reset(True)
    if not bench.spec["asynchronous"]:
        yield bench.settle
        bench.clock(1)
        bench.state = bench.cleared
    yield bench.settle
    bench.check("after reset")
    yield from bench.fall()
    for _ in range(3):
        yield from bench.cycle(bench.draw(0.9), "clock edge in reset")
    bench.set_reset(False)
    yield bench.settle
    bench.check("after release of reset")
    for _ in range(6):
        yield from bench.cycle(bench.draw(0.8))


@test
def reset_kind(bench):
    """An asynchronous reset acts between clock edges, whatever the clock's level; a synchronous one only at an edge."""
    yield from bench.start()
    for high in (False, True) * 4:
        yield from bench.leave_reset_state(high)
        bench.set_reset(True)
        yield bench.settle
        bench.check("reset between clock edges")
        bench.set_reset(False)
        yield bench.settle
        bench.check("release between clock edges")
        if high:
            yield from bench.fall()
        yield from bench.cycle(bench.draw(0.8), "clock edge after a short reset")
        yield from bench.leave_reset_state()
        bench.set_reset(True)
        yield from bench.cycle(bench.draw(0.8), "clock edge in reset")
        bench.set_reset(False)


@test
def edges(bench):
    """State moves at rising edges only: inputs that change while the clock is high or low are not taken."""
    yield from bench.start()
    for number in range(40):
        density = 0.7 if number % 20 < 12 else 0.1
        bench.drive(bench.draw(density))
        yield bench.settle
        bench.check("inputs change at low clock")
        yield from bench.rise()
        bench.drive(bench.draw(density))
        yield bench.settle
        bench.check("inputs change at high clock")
        yield from bench.fall()


@test
def cycles(bench):
    """A long random run through all phases with a reset now and then, then bursts, which reach the states that a random
    run does not: up to the last cycle before a whole round, reset there, and the round once more and on.
    """
    yield from bench.start()
    for inputs, reset, at_high_clock in stimuli.cycles(bench.random, bench.widths):
        bench.set_reset(reset)
        bench.drive(inputs)
        yield bench.settle
        bench.check("before a rising clock edge")
        yield from bench.rise()
        if at_high_clock:
            bench.drive(at_high_clock)
            yield bench.settle
            bench.check("inputs change at high clock")
        bench.clock(0)  # seen at the next check
    bench.set_reset(False)
    for inputs, count in bench.spec["bursts"]:
        for _ in range(2):
            bench.set_reset(True)
            yield from bench.cycle(inputs)
            bench.set_reset(False)
            yield from bench.burst(inputs, count - 3)
        for _ in range(16):
            yield from bench.cycle(bench.draw(0.7))
