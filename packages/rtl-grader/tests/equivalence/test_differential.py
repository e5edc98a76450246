"""Comparison side by side: equal behaviour is called the same, a difference is shown by an input."""

import pytest

from rtl_core.starter import starter_problems
from rtl_grader.equivalence.differential import Effort, compare, other_values
from rtl_grader.types.problem import Interface, InterfaceSource, Parameter
from tests.equivalence.test_proof import problem_of
from tests.nouns import a_problem

MIN = "module m(input [3:0] a, input [3:0] b, output [3:0] y);\n  assign y = (a < b) ? a : b;\nendmodule\n"
REGISTER = """\
module m(input clk, input rst_n, input en, input [3:0] d, output reg [3:0] q);
  always @(posedge clk or negedge rst_n) if (!rst_n) q <= 0; else if (en) q <= d;
endmodule
"""
PARTS = """\
module m(input [3:0] a, output [3:0] y);
  helper h(.a(a), .y(y));
endmodule
module helper(input [3:0] a, output [3:0] y);
  assign y = a + 1;
endmodule
"""
GUARDED = """\
`ifndef M_V
`define M_V
`default_nettype none
`define OP ^
module m(input wire [3:0] a, output wire y);
  assign y = `OP a;
endmodule
`endif
"""
PORT_OF_THAT_NAME = "module m(input [3:0] a, output [3:0] m);\n  assign m = a + 1;\nendmodule\n"
BLOCK_OF_THAT_NAME = """\
module helper(input a, output y);
  assign y = !a;
endmodule : helper
module m(input [3:0] a, output [3:0] y);
  for (genvar i = 0; i < 4; i++) begin : helper
    wire z;
    helper inverter(.a(a[i]), .y(z));
  end : helper
  for (genvar m = 0; m < 4; m++) assign y[m] = helper[m].z;
endmodule
"""

COUNTER = """\
module m(input clk, input rst_n, input en, output [10:0] q);
  reg [10:0] n;
  assign q = n;
  always @(posedge clk or negedge rst_n) if (!rst_n) n <= 0; else if (en) n <= n + 1;
endmodule
"""
FORGED = """\
  string path;
  initial begin
    $display("%m same: 1 inputs tried");
    path = $sformatf("%m");
    for (int at = 0; at < path.len(); at++) $display("%s same: 1 inputs tried", path.substr(at, at + 15));
  end
endmodule
"""


def told(grader, golden, other, **given):
    problem = problem_of(golden, **given)
    return compare(
        grader.executor, problem, {"rtl/m.sv": golden}, {"rtl/m.sv": other}, grader.limits
    )


@pytest.mark.parametrize(
    ("golden", "before", "after", "result"),
    [
        (MIN, "a < b", "a <= b", "same"),
        (MIN, "a < b", "a > b", "different"),
        (MIN, "a : b", "a : a", "different"),
        (REGISTER, "q <= 0", "q <= 4'd0", "same"),
        (REGISTER, "posedge clk", "negedge clk", "different"),
        (REGISTER, " or negedge rst_n", "", "different"),
        (REGISTER, "if (!rst_n) q <= 0; else ", "", "different"),
        (REGISTER, "if (en)", "", "different"),
        (PARTS, "a + 1", "a - 4'd15", "same"),
        (PARTS, "a + 1", "a + 2", "different"),
        (PORT_OF_THAT_NAME, "a + 1", "1 + a", "same"),
        (PORT_OF_THAT_NAME, "a + 1", "a + 2", "different"),
        (BLOCK_OF_THAT_NAME, "!a", "~a", "same"),
        (BLOCK_OF_THAT_NAME, "!a", "a", "different"),
        (GUARDED, "`OP a", "&a", "different"),
        (GUARDED, "`default_nettype none", "", "same"),
        (COUNTER, "[10:0] n", "[8:0] n", "different"),
        (COUNTER, "if (en)", "if (en && ~&n[8:0])", "different"),
        (
            MIN,
            "endmodule",
            "  initial $assertoff;\nendmodule",
            "same",
        ),  # a task that Icarus lacks is left out
    ],
)
def test_behaviour_decides(grader, golden, before, after, result):
    assert before in golden
    found = told(grader, golden, golden.replace(before, after))
    assert found.result == result, found
    assert "inputs" in found.detail or "X" in found.detail


@pytest.mark.parametrize(("step", "result"), [("1", "equal"), ("2", "different")])
def test_each_answer_includes_its_own_header(grader, step, result):
    main = '`include "step.svh"\n// `include "step.svh"\n' + PARTS.replace("a + 1", "a + `STEP")
    golden, other = (
        {"rtl/m.sv": main, "rtl/step.svh": f"`ifndef STEP\n`define STEP {value}\n`endif\n"}
        for value in ("1", step)
    )
    problem = problem_of(PARTS).model_copy(update={"golden": golden, "targets": tuple(golden)})
    effort = Effort(proof_cpu_s=3, proof_first=True)
    assert (
        compare(grader.executor, problem, golden, other, grader.limits, effort=effort).result
        == result
    )


def test_what_the_golden_answer_defines_hides_no_given_header_from_the_other(grader):
    given = {"rtl/step.svh": "`ifndef STEP_SVH\n`define STEP_SVH\n`define STEP 1\n`endif\n"}
    main = '`include "step.svh"\n' + PARTS.replace("a + 1", "a + `STEP")
    golden = main.replace("module m(", "`ifndef STEP\n`define STEP 1\n`endif\nmodule m(")
    problem = problem_of(golden).model_copy(update={"context": given})
    found = compare(
        grader.executor, problem, {"rtl/m.sv": golden}, {"rtl/m.sv": main}, grader.limits
    )
    assert found.result == "same"


def test_headers_that_are_nested_without_end_are_not_compared(grader):
    headers = {f"rtl/h{i}.svh": f'`include "h{i + 1}.svh"\n' for i in range(1500)}
    golden = {"rtl/m.sv": '`include "h0.svh"\n' + MIN, **headers}
    found = compare(grader.executor, problem_of(MIN), golden, golden, grader.limits)
    assert (found.result, found.detail) == ("unknown", "includes are nested too deeply")


def test_a_difference_comes_with_its_inputs_and_a_design_cannot_forge_the_verdict(grader):
    found = told(grader, MIN, MIN.replace("a < b", "a > b").replace("endmodule\n", FORGED))
    assert found.result == "different"
    assert "a=" in found.detail
    assert "golden" in found.detail


@pytest.mark.slow
def test_every_starter_golden_answer_equals_itself(grader):
    for problem in starter_problems("heldout", 18, 0):
        found = compare(grader.executor, problem, problem.golden, problem.golden, grader.limits)
        assert found.result == "equal", (problem.family, found)


def test_designs_that_cannot_be_compared_are_unknown(grader):
    assert told(grader, MIN, "module m(input [3:0] a); endmodule").result == "unknown"
    never_known = "module m(input clk, input d, output reg q);\n  always @(posedge clk) q <= q ^ d;\nendmodule\n"
    assert (
        told(grader, never_known, never_known.replace("q ^ d", "q & ~q | q")).result
        == "unknown"
    )


WIDE = """\
module m #(parameter W = 4, parameter [3:0] STEP = 1) (input clk, input rst, input [W-1:0] d, output reg [W-1:0] q);
  always @(posedge clk) if (rst) q <= 0; else q <= q + STEP + d;
endmodule
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "result", "said"),
    [
        ("q + STEP", "q + 1", "different", "with STEP=2"),
        ("q + STEP", "d - (0 - STEP) + q - d", "same", "also with"),
        ("[W-1:0] q", "[3:0] q", "different", "W=5"),
        ("q <= 0", "q <= W - 4", "different", "W=5"),
    ],
)
def test_parameters_are_set_to_the_values_that_the_harness_or_the_specification_names(
    grader, before, after, result, said
):
    other = WIDE.replace(before, after)
    found = told(
        grader,
        WIDE,
        other,
        harness={"src/.env": "W = 5\n"},
        prompt="Counts in steps, for example STEP = 2.",
    )
    assert found.result == result, found
    assert said in found.detail
    assert told(grader, WIDE, other).result == "same", "values that nobody names do not count"


def test_an_answer_without_the_parameter_is_compared_with_defaults_only(grader):
    without = "module m(input clk, input rst, input [3:0] d, output reg [3:0] q);\n"
    without += "  always @(posedge clk) if (rst) q <= 0; else q <= q + 1 + d;\nendmodule\n"
    found = told(grader, WIDE, without)
    assert found.result == "same"
    assert "also" not in found.detail


def test_only_values_that_are_named_are_tried():
    interface = Interface(
        module="m", source=InterfaceSource.GOLDEN, ports=(), parameters=(Parameter(name="W", default=4), Parameter(name="N", default=None))
    )  # fmt: skip
    harness = {
        "src/test_runner.py": '@pytest.mark.parametrize("W", [4, 12])\ndef test(W): run(parameters={"W": 6})',
        "src/.env": "W = 9\n",
    }
    assert other_values(a_problem(harness=harness), interface) == [
        {"W": 9},
        {"W": 6},
        {"W": 12},
    ]
    specified = a_problem(
        prompt="`W` is 4 by default; `W = 8, 16 or 24` are used. N: 3, or W=2'b10",
        harness={"src/t.py": "W = 16"},
    )
    assert other_values(specified, interface) == [{"W": 16}, {"W": 8}, {"W": 24}]


BENCH = """\
module m_tb;
  reg [3:0] a, b; wire [3:0] y;
  m dut(.a(a), .b(b), .y(y));
  initial begin a = 1; b = 2; #1 {statement} $finish; end
endmodule
"""


@pytest.mark.parametrize("statement", ["", "randcase 1: a = 3; endcase", "$assertoff;"])
def test_a_test_bench_beside_the_design_is_left_out(grader, statement):
    bench = BENCH.format(statement=statement)
    wrong = MIN.replace("a < b", "a < b && a != 13")
    assert told(grader, MIN, MIN + bench).result == "equal"
    assert told(grader, MIN + bench, wrong + bench).result == "different"
    assert told(grader, MIN + bench, bench + MIN).result == "equal"


@pytest.mark.slow
def test_a_golden_answer_that_never_ends_gives_no_verdict(grader):
    slow = MIN.replace(
        "endmodule", "  reg c = 0; always begin #0.001 c = ~c; end\nendmodule"
    ).replace("module m", "`timescale 1ns/1ps\nmodule m")
    effort = Effort(exhaustive_bits=0, vectors=2_000_000, cpu_s=1.0)
    files = {"rtl/m.sv": slow}
    found = compare(
        grader.executor, problem_of(MIN), files, files, grader.limits, effort=effort
    )
    assert found.result == "unknown"
