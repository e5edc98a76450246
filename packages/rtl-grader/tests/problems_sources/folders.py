"""Small folders of a user's own, as files: path -> text."""

from pathlib import Path

from rtl_grader.problems.folder.reader import Understanding
from rtl_grader.problems.sources.folder import understandings
from rtl_grader.types.problem import Problem

INVERTER = "module inv #(parameter W = 4) (input [W-1:0] a, output [W-1:0] y);\n  assign y = ~a;\nendmodule\n"
SPEC = "Module inv inverts its input a of W bits; the output is y.\n"
TEST = """\
import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def every_value(dut):
    for a in range(2 ** len(dut.a)):
        dut.a.value = a
        await Timer(1, "ns")
        assert dut.y.value == 2 ** len(dut.a) - 1 - a
"""
BENCH = """\
module tb; reg [3:0] a = 0; wire [3:0] y; integer i, bad = 0;
  inv dut(.a(a), .y(y));
  initial begin
    for (i = 0; i < 16; i = i + 1) begin a = i; #1 if (y !== ~a) bad = bad + 1; end
    if (bad == 0) $display("TEST PASSED"); else $display("%0d errors", bad);
    $finish;
  end
endmodule
"""
PLAIN = {"spec.md": SPEC, "rtl/inv.v": INVERTER}
WITH_BENCH = {**PLAIN, "tb/tb.v": BENCH, "problem.toml": ""}
WITH_TEST = {**PLAIN, "tb/test_inv.py": TEST, "problem.toml": ""}
MAKEFILE = """\
SIM ?= icarus
TOPLEVEL_LANG ?= verilog
PWD = $(shell pwd)
VERILOG_SOURCES += $(PWD)/../rtl/inv.v
ifeq ($(SIM), icarus)
\tCOMPILE_ARGS += -P $(COCOTB_TOPLEVEL).W=$(PARAM_W) -DFAST=1
endif
export PARAM_W ?= 3
COCOTB_TOPLEVEL = inv
COCOTB_TEST_MODULES = test_inv
PLUSARGS += +SEED=5
include $(shell cocotb-config --makefiles)/Makefile.sim
"""


def write_files(folder: Path, files: dict[str, str]) -> Path:
    """Write files, path -> text."""
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder


def reading(folder: Path, files: dict[str, str]) -> Understanding:
    """How a folder with these files is understood."""
    (only,) = understandings(write_files(folder / "own", files))
    return only


def problem_of(folder: Path, files: dict[str, str]) -> Problem:
    """The problem of a folder with these files."""
    understood = reading(folder, files)
    assert understood.problem is not None, understood.error
    return understood.problem
