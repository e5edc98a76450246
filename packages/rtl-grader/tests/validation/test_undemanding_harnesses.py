"""A harness that cannot fail is weak, also where nothing but its own code tells the interface."""

import pytest

from rtl_core.reporting.problem_audit import contradictions
from rtl_grader.problems.sources.rtllm import read_rtllm
from rtl_grader.types.problem import InterfaceSource
from rtl_grader.validation.level import Level, quick_level
from rtl_grader.validation.stubs import stubs
from rtl_grader.validation.validate import validate_problem
from tests.nouns import COMPOSE, read_problem

RUN = """\
from cocotb_tools.runner import get_runner
from cocotb_tools.check_results import get_results
import os, sys
runner = get_runner("icarus")
runner.build(sources=os.environ["VERILOG_SOURCES"].split(), hdl_toplevel="uart", always=True, timescale=("1ns", "1ps"))
tests, failed = get_results(runner.test(hdl_toplevel="uart", test_module="test_uart"))
sys.exit(failed or not tests)
"""
TEST = """\
import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

async def reset(signal):
    signal.value = 1
    await Timer(25, "ns")
    signal.value = 0

@cocotb.test()
async def sends(dut):
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    dut.data.value = (1 << 100) - 1
    await reset(dut.rst)
    seen = []
    for _ in range(40):
        await RisingEdge(dut.clk)
        {look}
    {check}
"""
LOGS = ("seen.append(int(dut.tx.value))", "print('FAIL' if seen != [1] else 'PASS')")
MOVES = (
    "seen.append(int(dut.tx.value) & 7)",
    "assert len(set(seen)) > 4 and int(dut.busy.value) >= 0",
)
BLIND = ("seen.append(0)", "assert seen")
CHECKS = ("seen.append(int(dut.tx.value) & 1)", "assert seen[:8] == [1, 0, 1, 1, 0, 0, 1, 0]")
STUBS = Level("full", 0, (1,), ("zeros", "ones", "clock", "counter"))


def problem(look, check, targets=("rtl/uart.sv", "rtl/parity.sv")):
    sources = " ".join(f"/code/{path}" for path in targets)
    settings = (
        f"SIM = icarus\nTOPLEVEL = uart\nVERILOG_SOURCES = {sources}\nPYTHONPATH = /src\n"
    )
    harness = {
        "src/run.py": RUN,
        "src/test_uart.py": TEST.format(look=look, check=check),
        "src/.env": settings,
    }
    return read_problem(
        prompt="Design the sender `uart` as docs/uart.md says.", targets=targets,
        context={"docs/uart.md": "| Port | Direction |\n|---|---|\n| `busy` | output |\n"},
        harness={"docker-compose.yml": COMPOSE.format("python3 /src/run.py"), **harness},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "status", "said"),
    [
        (LOGS, "weak", "a stub is paid: all outputs 0"),
        (MOVES, "weak", "a stub is paid: a free-running counter on all outputs"),
        (BLIND, "weak", "a stub is paid: all outputs 0"),
        (CHECKS, "fit_without_golden", "none was paid"),
    ],
    ids=["it only logs", "it wants movement", "it names no output", "it checks"],
)
def test_a_harness_that_names_no_output_is_tried_with_stubs(grader, parts, status, said):
    given = problem(*parts)
    assert given.interface.source is InterfaceSource.HARNESS
    assert not [port for port in given.interface.ports if port.direction == "output"]
    found = validate_problem(given, grader, level=STUBS)
    assert (found.status, said in found.evidence["reason"]) == (status, True), found.evidence


def test_a_quick_look_finds_a_harness_that_only_logs(grader):
    assert validate_problem(problem(*LOGS), grader, level=quick_level(2, 1)).status == "weak"


def test_directions_are_guessed_by_name_and_specification():
    text = stubs(problem(*MOVES)).files["counter"]["rtl/uart.sv"]
    assert all(
        f"  {line}" in text
        for line in ("input clk", "input rst", "input [1023:0] data", "output [31:0] tx")
    )
    assert all(f"assign {name} = count__;" in text for name in ("tx", "busy"))
    assert "assign rst" not in text
    assert stubs(problem(*MOVES)).files["zeros"]["rtl/parity.sv"] == "// nothing\n"


def test_a_port_that_the_description_does_not_name_is_a_contradiction(data):
    problems = {problem.id: problem for problem in read_rtllm(data / "RTLLM").problems}
    (line,) = contradictions(problems["rtllm_sequence_detector"])
    assert "rst_n" in line
    assert not [
        line
        for name in ("adder_8bit", "counter_12", "fsm")
        for line in contradictions(problems[f"rtllm_{name}"])
    ]
