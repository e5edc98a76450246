"""Drives a design and its reference model side by side and compares every output after every change.

`spec` holds width, option, the data ports as (name, width) in header order and, for a clocked design, clock, reset,
active_low, asynchronous and reset_state. `reference(width, option, state, inputs)` gives (next state, outputs now).
"""

import itertools
import random

import cocotb
from cocotb.triggers import Timer

CORNER_LIMIT = 64
RANDOM_VECTORS = 48
# (cycles, probability of a high even input, of a high odd one): what fills also empties, what counts also comes to rest.
PHASES = ((14, 0.95, 0.15), (14, 0.15, 0.95), (14, 0.5, 0.5), (10, 0.95, 0.95), (28, 0.04, 0.04))


class Bench:
    def __init__(self, dut, spec, reference):
        self.spec, self.reference = spec, reference
        self.state = spec.get("reset_state")
        self.inputs = (0,) * len(spec["inputs"])
        self.settle = Timer(1, "ns")
        self.random = random.Random(cocotb.RANDOM_SEED)
        ports = {name: find(dut, name, width) for name, width in spec["inputs"] + spec["outputs"]}
        self.drivers = [ports[name] for name, _ in spec["inputs"]]
        self.outputs = [(name, ports[name]) for name, _ in spec["outputs"]]
        if "clock" in spec:
            self.clock, self.reset = find(dut, spec["clock"], 1), find(dut, spec["reset"], 1)

    def drive(self, inputs):
        self.inputs = inputs
        for handle, value in zip(self.drivers, inputs, strict=True):
            handle.value = value

    async def check(self, when):
        """Let the design settle, then compare every output with the reference model."""
        await self.settle
        _, expected = self.reference(self.spec["width"], self.spec["option"], self.state, self.inputs)
        for (name, handle), value in zip(self.outputs, expected, strict=True):
            got, wanted = str(handle.value), format(value, f"0{len(handle)}b")
            if got != wanted:
                names = ", ".join(f"{n}={v:#x}" for (n, _), v in zip(self.spec["inputs"], self.inputs, strict=True))
                raise AssertionError(f"{when}, {names}: {name} is {got}, expected {wanted}")

    # Clocked designs

    def set_reset(self, on):
        self.reset.value = int(on != self.spec["active_low"])
        if on and self.spec["asynchronous"]:
            self.state = self.spec["reset_state"]
        self.in_reset = on

    async def rise(self, when):
        """A rising clock edge: the state moves on, or is cleared in reset."""
        following, _ = self.reference(self.spec["width"], self.spec["option"], self.state, self.inputs)
        self.state = self.spec["reset_state"] if self.in_reset else following
        self.clock.value = 1
        await self.check(when)

    async def fall(self):
        self.clock.value = 0
        await self.check("after a falling clock edge")

    async def cycle(self, inputs, when="after a rising clock edge"):
        self.drive(inputs)
        await self.check("before a rising clock edge")
        await self.rise(when)
        await self.fall()

    async def start(self):
        """Out of the unknown: reset over two clock edges, unchecked, then released."""
        self.clock.value = 0
        self.drive(self.inputs)
        self.set_reset(False)
        await self.settle
        self.set_reset(True)
        for level in (1, 0, 1, 0):
            await self.settle
            self.clock.value = level
        await self.settle
        self.state = self.spec["reset_state"]
        self.set_reset(False)

    async def leave_reset_state(self, high=False):
        """Clock random inputs until the outputs tell the state from the reset state; ends at a low or a high clock."""
        width, option, cleared = self.spec["width"], self.spec["option"], self.spec["reset_state"]
        for _ in range(200):
            self.drive(self.draw(0.6))
            await self.check("before a rising clock edge")
            await self.rise("after a rising clock edge")
            if not high:
                await self.fall()
            self.drive(self.draw(0.6))
            await self.check("between clock edges")
            now = self.reference(width, option, self.state, self.inputs)[1]
            if now != self.reference(width, option, cleared, self.inputs)[1]:
                return
            if high:
                await self.fall()
        raise AssertionError("the reference model never left its reset state")

    # Stimulus

    def draw(self, even=0.5, odd=None):
        """Random inputs; one-bit inputs (by their number even, odd) are high with these probabilities; a word is often
        near the one before it.
        """
        values: list[int] = []
        for number, (_, width) in enumerate(self.spec["inputs"]):
            top = (1 << width) - 1
            density = odd if odd is not None and number % 2 else even
            value = self.random.randint(0, top) if width > 1 else int(self.random.random() < density)
            if width > 1 and self.random.random() < 0.2:
                value = self.random.choice((0, top, 1 << self.random.randrange(width)))
            if values and width > 1 and self.random.random() < 0.4:
                value = (values[-1] + self.random.choice((-1, 0, 0, 1))) & top
            values.append(value)
        return tuple(values)

    def corners(self):
        """All inputs when they are few, else a cross product of telling values."""
        widths = [width for _, width in self.spec["inputs"]]
        if sum(widths) <= 6:
            return list(itertools.product(*(range(1 << width) for width in widths)))
        every = list(itertools.product(*(telling(width) for width in widths)))
        return every if len(every) <= CORNER_LIMIT else self.random.sample(every, CORNER_LIMIT)


def find(dut, name, width):
    handle = dut[name]
    if len(handle) != width:
        raise AssertionError(f"{name} has {len(handle)} bits, expected {width}")
    return handle


def telling(width):
    """0, 1, all ones, neighbours of the middle, alternating bits, and each single bit of a word that stands alone."""
    top = (1 << width) - 1
    alternating = top // 3
    middle = 1 << (width - 1)
    values = {0, 1, top, top - 1, middle, middle - 1, alternating, top ^ alternating}
    if width <= 16:
        values |= {1 << bit for bit in range(0, width, 2)} | {top >> bit for bit in range(1, width, 3)}
    return sorted(value for value in values if 0 <= value <= top)


async def corners(dut, spec, reference):
    """Combinational: every input, or the telling ones."""
    bench = Bench(dut, spec, reference)
    for inputs in bench.corners():
        bench.drive(inputs)
        await bench.check("corner case")


async def vectors(dut, spec, reference):
    """Combinational: random inputs."""
    bench = Bench(dut, spec, reference)
    for _ in range(RANDOM_VECTORS):
        bench.drive(bench.draw())
        await bench.check("random inputs")


async def reset_value(dut, spec, reference):
    """Reset clears, holds against clock edges, and lets go only at the first edge after its release."""
    bench = Bench(dut, spec, reference)
    bench.clock.value = 0
    bench.set_reset(False)
    bench.drive(bench.draw())
    await bench.settle
    bench.set_reset(True)
    if not spec["asynchronous"]:
        await bench.settle
        bench.clock.value = 1
        bench.state = spec["reset_state"]
    await bench.check("after reset")
    await bench.fall()
    for _ in range(3):
        await bench.cycle(bench.draw(0.9), "clock edge in reset")
    bench.set_reset(False)
    await bench.check("after release of reset")
    for _ in range(6):
        await bench.cycle(bench.draw(0.8))


async def reset_kind(dut, spec, reference):
    """An asynchronous reset acts between clock edges, whatever the clock's level; a synchronous one only at an edge."""
    bench = Bench(dut, spec, reference)
    await bench.start()
    for high in (False, True, False):
        await bench.leave_reset_state(high)
        bench.set_reset(True)
        await bench.check("reset between clock edges")
        bench.set_reset(False)
        await bench.check("release between clock edges")
        if high:
            await bench.fall()
        await bench.cycle(bench.draw(0.8), "clock edge after a short reset")
        await bench.leave_reset_state()
        bench.set_reset(True)
        await bench.cycle(bench.draw(0.8), "clock edge in reset")
        bench.set_reset(False)


async def edges(dut, spec, reference):
    """State moves at rising edges only: inputs that change while the clock is high or low are not taken."""
    bench = Bench(dut, spec, reference)
    await bench.start()
    for number in range(20):
        density = 0.7 if number < 12 else 0.1
        bench.drive(bench.draw(density))
        await bench.check("inputs change at low clock")
        await bench.rise("after a rising clock edge")
        bench.drive(bench.draw(density))
        await bench.check("inputs change at high clock")
        await bench.fall()


async def cycles(dut, spec, reference):
    """A long random run through all phases, with a reset now and then."""
    bench = Bench(dut, spec, reference)
    await bench.start()
    for length, even, odd in PHASES:
        for number in range(length):
            bench.set_reset(even != odd and number < 2 and bench.random.random() < 0.5)
            await bench.cycle(bench.draw(even, odd))
