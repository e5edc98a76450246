"""The bench: cocotb tests, which are run with each set of parameters of problem.toml."""

import random

import cocotb
from cocotb.triggers import Timer


@cocotb.test()
async def sums_saturate(dut):
    largest = 2 ** len(dut.a) - 1
    pairs = [(0, 0), (largest, 1), (largest, largest)]
    pairs += [(random.randint(0, largest), random.randint(0, largest)) for _ in range(200)]
    for a, b in pairs:
        dut.a.value, dut.b.value = a, b
        await Timer(1, "ns")
        assert dut.sum.value == min(a + b, largest), f"{a} + {b} is {dut.sum.value}"
