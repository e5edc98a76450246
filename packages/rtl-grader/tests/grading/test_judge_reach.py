"""What the golden answer's inputs and parameters reach, and what is said where it cannot judge."""

import pytest

from rtl_grader import Grader
from rtl_grader.problems.judged import judged_problem
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome

MAC = """\
module mac(input clk, input rst, input en, input signed [7:0] a, b, output reg signed [19:0] sum);
  wire signed [15:0] product = a * b;
  wire signed [20:0] next = sum + product;
  always @(posedge clk)
    if (rst) sum <= 0;
    else if (en) sum <= next > 524287 ? 524287 : next < -524288 ? -524288 : next[19:0];
endmodule
"""
ENCODER = """\
module encoder #(parameter W = 16, parameter BITS = $clog2(W)) (
  input [W-1:0] one_hot, output reg [BITS-1:0] at
);
  always @* begin : search
    reg [BITS:0] i;
    at = 0;
    for (i = 0; i < W; i = i + 1) at = at | ({BITS{one_hot[i[BITS-1:0]]}} & i[BITS-1:0]);
  end
endmodule
"""
COUNT = """\
module count #(parameter STEPS = 4) (input [7:0] a, output reg [3:0] ones);
  always @* begin : add
    reg [2:0] i;
    ones = 0;
    for (i = 0; i < STEPS; i = i + 1) ones = ones + a[i];
  end
endmodule
"""
TOO_NEW = (
    "module pick(input [3:0] a, output y);\n  assign y = a inside {4'h1, 4'h2};\nendmodule\n"
)


def judged(golden, prompt):
    top = golden.split()[1].split("(")[0]
    return judged_problem(
        id=top, source="pairs", category="cid003", difficulty="easy", prompt=prompt,
        golden={"rtl/design.sv": golden}, top=top,
    )  # fmt: skip


def verdict(grader, golden, text, prompt="Write it."):
    return grader.grade(judged(golden, prompt), Answer(files={"rtl/design.sv": text}))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("next > 524287 ? 524287", "0 ? 0"), ("next < -524288", "next < -600000")],
)
def test_sums_reach_the_limits_at_which_they_saturate(grader, right, wrong):
    assert verdict(grader, MAC, MAC.replace(right, wrong)).outcome is Outcome.TESTS_FAILED


@pytest.mark.slow
def test_a_parameter_that_follows_from_another_one_is_not_set_alone(grader):
    result = verdict(grader, ENCODER, ENCODER, "The parameters are W and BITS.")
    assert result.passed, result.reasons
    smaller = ENCODER.replace("i < W", "i < 16")
    assert not verdict(grader, ENCODER, smaller, "The parameters are W and BITS.").passed


@pytest.mark.slow
def test_values_of_parameters_with_which_the_golden_answer_never_ends_are_left_out(executor):
    limits = Grader(executor).limits.model_copy(update={"cpu_s": 4.0, "cpu_floor_s": 1.0})
    grader = Grader(executor, limits=limits)
    result = verdict(grader, COUNT, COUNT, "The parameter is STEPS.")
    grader.close()
    assert result.passed, result.reasons


def test_an_old_simulator_is_named_with_the_remedies(grader):
    (reason,) = verdict(grader, TOO_NEW, TOO_NEW).reasons
    assert "cannot read valid SystemVerilog" in reason
    assert 'judge = {proof = "undecided"}' in reason
