"""Golden answers whose processes race: what the language leaves open is neither refused nor compared."""

import pytest

from rtl_grader.equivalence.differential import compare
from rtl_grader.grading.limits import Limits
from rtl_grader.problems.judged import judged_problem
from rtl_grader.types.answer import Answer

COUNT = "  always @(posedge clk) count = count + 1;\n"
USE = """\
  always @(posedge clk)
    if (rst) begin count_seen = count; hits <= 0; end
    else if (d == 8'h11) hits <= hits + 1;
"""
HEAD = """\
module m(input clk, rst, input [7:0] d, output reg [7:0] count_seen, hits);
  reg [7:0] count;
  initial count = 27;
"""
GOLDEN = f"{HEAD}{COUNT}{USE}endmodule\n"
REVERSED = f"{HEAD}{USE}{COUNT}endmodule\n"
NONBLOCKING = GOLDEN.replace("count = count + 1", "count <= count + 1")
WRONG = GOLDEN.replace("8'h11", "8'h12")
FROZEN = GOLDEN.replace("count = count + 1", "count = 99")


def judged_by(golden):
    return judged_problem(
        id="race",
        source="own",
        category="cid003",
        difficulty="easy",
        prompt="Write m.",
        golden={"rtl/m.sv": golden},
        top="m",
    )


@pytest.mark.parametrize(
    ("text", "is_right"),
    [(GOLDEN, True), (REVERSED, True), (NONBLOCKING, True), (WRONG, False), (FROZEN, False)],
    ids=["itself", "reversed", "nonblocking", "wrong", "frozen"],
)
def test_an_answer_is_right_in_either_order_of_the_processes(grader, text, is_right):
    problem = judged_by(GOLDEN)
    answer = {"rtl/m.sv": text}
    assert grader.grade(problem, Answer(files=answer)).passed == is_right
    result = compare(grader.executor, problem, problem.golden, answer, Limits())
    assert result.agrees == is_right, result.detail


def test_a_golden_answer_of_which_only_the_order_decides_cannot_judge(grader):
    text = """\
module m(input clk, rst, output reg [7:0] q);
  reg [7:0] count;
  always @(posedge clk) if (rst) count = 0; else count = count + 1;
  always @(posedge clk) q = ~{8{count[0]}};
endmodule
"""
    problem = judged_by(text)
    verdict = grader.grade(problem, Answer(files=problem.golden))
    assert "the order of its processes decides all outputs that change" in " ".join(
        verdict.reasons
    )
