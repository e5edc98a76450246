"""The problems that are attacked, by key.

`starter/...` and `own/...` are always there. The others are read from the published sets (RTL_DISTILL_DATA); what is not
there is left out, save CVDP's LFSR, which `own/lfsr` then replaces.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rtl_core.problems.cvdp import problem_from_record, read_cvdp
from rtl_core.problems.interface import derive_interface
from rtl_core.problems.sources.rtllm import read_rtllm
from rtl_core.problems.sources.verilog_eval import read_verilog_eval
from rtl_core.problems.starter import Spec, problem_of
from rtl_core.problems.starter.record import COMPOSE
from rtl_core.problems.testbench import Bench, bench_harness
from rtl_core.types.problem import Problem

DATA = Path(os.environ.get("RTL_DISTILL_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
OWN = Path(__file__).parent / "own"
"""Test benches of the red team's own problems."""

SPECS = {
    "counter": Spec("counter", "cnt", ("en", "q"), 14, "up"),
    "counter6": Spec("counter", "cnt", ("en", "q"), 6, "up"),
    "down": Spec("counter", "cnt", ("en", "q"), 10, "down"),
    "adder": Spec("adder", "add", ("a", "b", "y", "co"), 16, "plain"),
    "saturating": Spec("saturating", "sat", ("a", "b", "y"), 12, "adder"),
    "mux": Spec("mux", "sel", ("a", "b", "s", "y"), 16, "first"),
    "comparator": Spec("comparator", "cmp", ("a", "b", "y"), 12, "<="),
    "parity": Spec("parity", "par", ("d", "y"), 16, "odd"),
    "toggle": Spec("toggle", "tog", ("t", "q"), 8, ""),
    "register": Spec("register", "rgs", ("en", "d", "q"), 12, ""),
    "shift": Spec("shift", "shf", ("din", "q"), 12, "left"),
    "accumulator": Spec("accumulator", "acc", ("en", "d", "q"), 12, ""),
    "decoder": Spec("decoder", "dec", ("s", "y"), 14, "high"),
    "edge": Spec("edge", "edg", ("d", "y"), 12, "rising"),
    "arbiter": Spec("arbiter", "arb", ("req", "gnt"), 12, "lowest"),
    "priority": Spec("priority_encoder", "pri", ("d", "y"), 12, "highest"),
    "scaled": Spec("scaled", "mul", ("a", "b", "y", "WIDTH"), 8, "product"),
    "fifo": Spec("fifo", "buf0", ("push", "pop", "d", "q", "full", "empty"), 12, "8"),
    "round_robin": Spec("round_robin", "rra", ("req", "gnt"), 8, "up"),
    "pipeline": Spec("pipeline", "pip", ("a", "b", "c", "y"), 12, "xor then add"),
}
"""Explicit specifications, so that an attack's text and its problem stay together whatever the draws are."""

CVDP = {
    "cvdp/lfsr": "cvdp_copilot_lfsr_0001",
    "cvdp/arbiter": "cvdp_agentic_fixed_arbiter_0001",
    "single/gray": "cvdp_copilot_binary_to_gray_0013",
    "single/barrel": "cvdp_copilot_barrel_shifter_0037",
    "single/sorter": "cvdp_copilot_sorter_0001",
}

_COMPOSE = COMPOSE.replace(
    "python3 /src/test_runner.py", "pytest -s -o cache_dir=/code/rundir/.cache /src/test_runner.py -v"
)
_RUNNER = """\
import os

import pytest
from cocotb_tools.runner import get_runner


@pytest.mark.parametrize("parameters", {sets})
def test_runner(parameters):
    runner = get_runner(os.environ["SIM"])
    top = os.environ["TOPLEVEL"]
    runner.build(sources=os.environ["VERILOG_SOURCES"].split(), hdl_toplevel=top, always=True, clean=True,
                 parameters=parameters, includes=["/code/rtl"], timescale=("1ns", "1ns"))
    runner.test(hdl_toplevel=top, test_module=os.environ["MODULE"])
"""
_GRAY_TEST = """\
import cocotb
from cocotb.triggers import Timer


@cocotb.test()
async def gray(dut):
    width = int(dut.WIDTH.value)
    for value in range(2**width):
        dut.binary_in.value = value
        await Timer(10, unit="ns")
        assert int(dut.gray_out.value) == value ^ (value >> 1)
"""
_SHIFT_TEST = """\
import random

import cocotb
from cocotb.triggers import Timer


@cocotb.test()
async def shift(dut):
    for _ in range(40):
        dut.data.value = random.getrandbits(8)
        dut.amount.value = random.getrandbits(3)
        await Timer(10, unit="ns")
        assert int(dut.shifted.value) == int(dut.data.value) >> int(dut.amount.value)
"""
_LFSR_TEST = """\
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge


async def sequence(dut, seed):
    cocotb.start_soon(Clock(dut.clock, 10, unit="ns").start())
    dut.reset.value = 0
    dut.lfsr_seed.value = seed
    await FallingEdge(dut.clock)
    await RisingEdge(dut.clock)
    await RisingEdge(dut.clock)
    dut.reset.value = 1
    for i in range(64):
        await RisingEdge(dut.clock)
        now = int(dut.lfsr_out.value)
        if i == 1:
            assert now == wanted
        low = now & 1
        wanted = (now >> 1) | low << 7
        for bit in (5, 4, 0):
            wanted ^= low << bit


@cocotb.test()
async def first(dut):
    await sequence(dut, random.randint(1, 255))


@cocotb.test()
async def second(dut):
    await sequence(dut, random.randint(1, 255))
"""
_PAIR_TEST = """\
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge


@cocotb.test()
async def adds(dut):
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    for _ in range(40):
        dut.a.value, dut.b.value = (a := random.randint(0, 255)), (b := random.randint(0, 255))
        await FallingEdge(dut.clk)
        await FallingEdge(dut.clk)
        assert int(dut.y.value) == (a + b) & 255
"""


def _cocotb(
    name: str,
    top: str,
    prompt: str,
    test: str,
    sources: tuple[str, ...],
    *,
    targets: tuple[str, ...] | None = None,
    context: Mapping[str, str] | None = None,
    sets: str = "[{}]",
) -> Problem:
    """A problem of the red team's own; `sets` are the parameters of each run, as a list in Python."""
    environment = {
        "SIM": "icarus",
        "TOPLEVEL_LANG": "verilog",
        "VERILOG_SOURCES": " ".join(f"/code/{path}" for path in sources),
        "TOPLEVEL": top,
        "MODULE": f"test_{top}",
        "PYTHONPATH": "/src",
    }
    files = {
        "docker-compose.yml": _COMPOSE,
        "src/.env": "".join(f"{key} = {value}\n" for key, value in environment.items()),
        "src/test_runner.py": _RUNNER.replace("{sets}", sets),
        f"src/test_{top}.py": test,
    }
    record = {
        "id": f"redteam_{name}",
        "categories": ["cid003", "easy"],
        "input": {"prompt": prompt, "context": dict(context or {})},
        "output": {"response": "", "context": dict.fromkeys(targets or sources, "")},
        "harness": {"files": files},
    }
    return problem_from_record(record, source="redteam")


def _bench(name: str, top: str, marker: str, passed: str) -> Problem:
    target = "rtl/inc8.sv"
    bench = Bench(
        sources={"test.sv": (OWN / f"{name}.sv").read_text()},
        design=target,
        dut="inc8",
        top=top,
        marker=marker,
        passed=passed,
    )
    golden = {target: "module inc8(input clk, input [7:0] d, output reg [7:0] q);\nalways @(posedge clk) q <= d + 1;\nendmodule\n"}  # fmt: skip
    prompt = "Module inc8: a register that takes d + 1. Inputs clk, d (8 bits). Output q, 8 bits.\n"
    harness = bench_harness(bench)
    return Problem(
        id=f"redteam_{name}", source="redteam", category="cid003", difficulty="easy", prompt=prompt, targets=(target,),
        harness=harness, golden=golden,
        interface=derive_interface(prompt=prompt, context={}, targets=(target,), harness=harness, golden=golden),
    )  # fmt: skip


@cache
def own() -> dict[str, Problem]:
    """Problems of the red team's own, one for each kind of harness, so that something runs without any data."""
    lfsr = "Module lfsr_8bit: an 8-bit Galois LFSR.\n\nInputs: clock, reset (active low), lfsr_seed[7:0]. Output: lfsr_out[7:0].\n"
    gray = "Module binary_to_gray: binary to Gray code. Parameter WIDTH. Input binary_in[WIDTH-1:0]. Output gray_out[WIDTH-1:0].\n"
    pair = "Module pair adds a and b in a register; module part does the addition. Inputs clk, a[7:0], b[7:0]. Output y[7:0].\n"
    shift = "Module shifter: shifted is data[7:0], shifted right by amount[2:0].\n"
    return {
        "own/shift": _cocotb("shift", "shifter", shift, _SHIFT_TEST, ("rtl/shifter.sv",)),
        "own/lfsr": _cocotb("lfsr", "lfsr_8bit", lfsr, _LFSR_TEST, ("rtl/lfsr_8bit.sv",)),
        "own/gray": _cocotb(
            "gray", "binary_to_gray", gray, _GRAY_TEST, ("rtl/binary_to_gray.sv",),
            sets='[{"WIDTH": 4}, {"WIDTH": 6}, {"WIDTH": 8}]',
        ),
        "own/pair": _cocotb(
            "pair", "pair", pair, _PAIR_TEST, ("rtl/pair.sv", "rtl/part.sv"),
            targets=("rtl/pair.sv", "rtl/part.sv", "rtl/defs.inc", "rtl/defs.svh", "rtl/notes.txt"),
            context={"rtl/given.svh": "`define GIVEN_W 8\n", "rtl/table.hex": "".join(f"{i:02x}\n" for i in range(256))},
        ),
        "own/bench": _bench("bench", "tb", "Mismatches:", r" +0 in +[1-9][0-9]* samples"),
        "own/loud": _bench("loud", "main", "Your Design Passed", ""),
    }  # fmt: skip


@cache
def published() -> dict[str, Problem]:
    """What of the published sets is at hand."""
    found: dict[str, Problem] = {}
    paths = [*sorted((DATA / "cvdp").glob("*v1.1.0_example*no_commercial*.jsonl")), DATA / "cvdp-single/problems.jsonl"]
    by_id = {problem.id: problem for path in paths if path.is_file() for problem in read_cvdp(path).problems}
    found |= {key: by_id[name] for key, name in CVDP.items() if name in by_id}
    if (DATA / "verilog-eval").is_dir():
        for problem in read_verilog_eval(DATA / "verilog-eval").problems:
            found["ve/" + problem.id.removeprefix("verilog_eval_")[:7]] = problem
    if (DATA / "RTLLM").is_dir():
        for problem in read_rtllm(DATA / "RTLLM").problems:
            found["rtllm/" + problem.id.removeprefix("rtllm_")] = problem
    return found


@cache
def find(key: str) -> Problem | None:
    """The problem of a key, or None where its set is not at hand. Raises KeyError for a starter or own key that is none."""
    kind, _, name = key.partition("/")
    if kind == "starter":
        return problem_of(SPECS[name])
    if kind == "own":
        return own()[key]
    return published().get(key) or (own()["own/lfsr"] if key == "cvdp/lfsr" else None)
