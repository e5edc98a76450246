"""Test benches next to a design are removed, and no other text."""

import pytest

from rtl_grader.grading.design import without_test_benches
from rtl_grader.grading.screen import MAX_FILE_CHARS
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome, Stage
from tests.growth import assert_linear
from tests.nouns import a_problem

DESIGN = "module m(input clk, output reg q);\n  always @(posedge clk) q <= ~q; // not tb\nendmodule\n"
BENCH = """module tb;
  reg clk = 0; wire q;
  m dut(.clk(clk), .q(q));
  always #5 clk = ~clk;
  initial begin
    $dumpfile("w.vcd"); // endmodule
    #100 $finish;
  end
endmodule
"""
PARAMETERS = BENCH.replace("module tb;", "module tb #(parameter N = (2), M = 3) ();")
CALM = "module tb;\n  m dut();\n  initial begin\n    $stop;\n  end\nendmodule : tb\n"


def left(text, **changes):
    return without_test_benches(a_problem(**changes), {"rtl/m.sv": text})[0]["rtl/m.sv"]


@pytest.mark.parametrize("bench", [BENCH, PARAMETERS, CALM])
@pytest.mark.parametrize(
    "frame",
    [
        "{design}\n{bench}",
        "{bench}{design}",
        "`timescale 1ns/1ps\n{design}`timescale 1ns/1ns\n{bench}",
        "`define W 8\n`ifdef X\n`define Y\n`endif\n{design}// the bench\n{bench}/* end */",
        "package p;\n  typedef logic t;\nendpackage : p\n{bench}{design}",
        "{design}import p::*;\n{bench}",
        "// synthesis translate_off\n{bench}// synthesis translate_on\n{design}",
    ],
)
def test_a_bench_is_replaced_by_empty_lines_and_the_rest_is_unchanged(frame, bench):
    files, told = without_test_benches(
        a_problem(), {"rtl/m.sv": frame.format(design=DESIGN, bench=bench)}
    )
    assert files == {"rtl/m.sv": frame.format(design=DESIGN, bench="\n" * bench.count("\n"))}
    assert told == ["rtl/m.sv: the test bench tb was left out"]
    assert without_test_benches(a_problem(), files) == (files, [])


def test_benches_and_their_helpers_without_ports_are_removed():
    helper = "module clocks;\n  reg c;\n  initial forever #5 c = 1;\nendmodule\n"
    user = BENCH.replace("always #5", "clocks cs(); always #5")
    assert left(DESIGN + user + helper).strip() == DESIGN.strip()
    assert left(DESIGN + BENCH + BENCH.replace("tb", "tb2")).strip() == DESIGN.strip()


@pytest.mark.parametrize(
    "text",
    [
        BENCH,
        DESIGN,
        BENCH + BENCH.replace("tb", "tb2"),
        DESIGN + BENCH.replace("module tb;", "module tb(input x);"),
        DESIGN + BENCH.replace("module tb;", "module tb(x); input x;"),
        DESIGN.replace("always", "tb u(); always") + BENCH,
        DESIGN.replace("always", "\\tb  u(); always") + BENCH,
        DESIGN.replace("q <= ~q", "q <= tb.clk") + BENCH,
        DESIGN + BENCH.replace("initial begin", "initial begin `GO"),
        DESIGN
        + BENCH.replace("initial begin", "`ifdef X\ninitial begin end\n`endif\ninitial begin"),
        DESIGN + BENCH.replace("initial begin", "`timescale 1ns/1ps\ninitial begin"),
        "`ifdef SIMULATION\n" + BENCH + "`endif\n" + DESIGN,
        "`ifndef GUARD\n`define GUARD\n" + DESIGN + BENCH + "`endif\n",
        DESIGN.replace("endmodule", "`ifdef A\nendmodule\n`endif") + BENCH,
        "`define END endmodule\n" + DESIGN.replace("endmodule", "`END") + BENCH,
        "`define WHOLE \\\n" + BENCH + DESIGN,
        "`define PASTE(x) end``x\n" + DESIGN + BENCH,
        "`USE(\n" + BENCH + ")\n" + DESIGN,
        "(* keep *)\n" + BENCH + DESIGN,
        "extern\n" + BENCH + DESIGN,
        DESIGN + BENCH + "/* open",
        DESIGN + BENCH + 'wire "open\n',
        DESIGN.replace("endmodule", BENCH + "endmodule"),
        DESIGN + BENCH + "endmodule\n",
        DESIGN + BENCH.replace("initial", "// initial"),
        DESIGN + BENCH.replace("tb", "\\t-b "),
        DESIGN
        + "module constants;\n  reg [7:0] rom [0:3];\n  initial rom[0] = 1;\nendmodule\n",
        DESIGN + BENCH + "bind tb m extra();\n",
        "/*\n" + BENCH + "*/\n" + DESIGN,
    ],
)
def test_text_that_is_not_certainly_a_bench_is_kept(text):
    assert left(text) == text


def test_a_module_that_the_problem_names_is_kept():
    text = DESIGN + BENCH
    assert left(text, targets=("rtl/m.sv", "rtl/tb.sv")) == text
    assert left(text, harness={"src/.env": "TOPLEVEL=tb\n"}) == text
    assert left(text, harness={"src/test_runner.py": 'runner.test(hdl_toplevel="tb")'}) == text
    assert left(text, harness={"src/top.v": "module top; tb t(); endmodule"}) == text
    assert left(text, context={"rtl/top.v": "module top; tb t(); endmodule"}) == text
    # A Python variable `tb` is no such name.
    assert left(
        text, harness={"src/test_m.py": "tb = TB(dut)  # tb"}
    ) == DESIGN + "\n" * BENCH.count("\n")


def test_a_bench_that_another_file_of_the_answer_uses_is_kept():
    files = {"rtl/m.sv": DESIGN + BENCH, "rtl/n.sv": "module n;\n  tb t();\nendmodule\n"}
    assert without_test_benches(a_problem(targets=tuple(files)), files) == (files, [])


@pytest.mark.parametrize(
    "pattern",
    [
        BENCH,
        BENCH.replace("tb", "t{n}"),
        "module ",
        "module a;initial #1;endmodule ",
        "`define ",
        "`ifdef ",
        "\\ ",
        "\\",
        '"',
        "/*",
        "endmodule initial ",
        "\0",
        "\ud800",
    ],
)
def test_hostile_text_takes_linear_time_and_raises_nothing(pattern):
    def text(size):
        return "".join(pattern.replace("{n}", str(n)) for n in range(size // len(pattern) + 1))

    assert_linear(left, lambda size: (DESIGN + text(size))[:size])
    assert_linear(left, lambda size: (DESIGN + text(size))[: size - len(BENCH)] + BENCH)


def test_a_file_that_is_too_long_for_the_screen_is_not_changed():
    text = DESIGN + BENCH + " " * MAX_FILE_CHARS
    assert left(text) == text


def test_a_right_answer_with_its_bench_passes_and_a_wrong_one_fails(grader, examples):
    lfsr = examples["cvdp_copilot_lfsr_0001"]
    ((path, code),) = lfsr.golden.items()
    bench = "\nmodule tb;\n  reg c = 0;\n  always #5 c = ~c;\n  lfsr_8bit dut(.clock(c));\n  initial #99 $finish;\nendmodule\n"
    for answer in (code + bench, bench + code):
        verdict = grader.grade(lfsr, Answer(files={path: answer}))
        assert verdict.outcome is Outcome.PASSED, verdict.reasons
        assert "test bench tb was left out" in verdict.stage(Stage.FORMAT).reasons[0]
    wrong = code.replace("lfsr_out[6] ^", "lfsr_out[5] ^")
    assert wrong != code
    assert (
        grader.grade(lfsr, Answer(files={path: wrong + bench})).outcome is Outcome.TESTS_FAILED
    )
