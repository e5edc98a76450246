"""The bench: cocotb tests, which are run with each set of parameters of problem.toml."""

import random

import cocotb
from cocotb.triggers import Timer


@cocotb.test()
async def sums_saturate(dut):
    largest = 2 ** len(dut.a) - 1
    for a in range(largest + 1):
        b = random.choice([1, a, largest])
        dut.a.value = a
        dut.b.value = b
        await Timer(1, "ns")
        assert dut.sum.value == min(a + b, largest), f"{a} + {b} is {dut.sum.value}"
