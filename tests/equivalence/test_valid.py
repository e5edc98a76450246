"""Without a golden answer, latency and outputs that nobody is to read do not make an answer doubtful; other values do."""

import pytest

from rtl_core.equivalence.consensus import by_consensus
from rtl_core.validation.doubts import EFFORT
from tests.equivalence.test_proof import problem_of

HEAD = """\
module m(input clk, input rst_n, input in_valid, input [7:0] a, output reg out_valid, output reg [7:0] y);
"""
ONE = (
    HEAD
    + """\
  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin out_valid <= 0; y <= 0; end else begin out_valid <= in_valid; y <= a + 3; end
endmodule
"""
)
HELD = ONE.replace("y <= a + 3;", "if (in_valid) y <= a + 8'd3;")
LATER = (
    HEAD
    + """\
  reg v; reg [7:0] b;
  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin v <= 0; out_valid <= 0; b <= 0; y <= 0; end
    else begin v <= in_valid; b <= a; out_valid <= v; y <= b + 3; end
endmodule
"""
)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("last", "result"),
    [
        pytest.param(LATER, "same", marks=pytest.mark.slow),
        (LATER.replace("b + 3", "b + 4"), "different"),
        (LATER.replace("out_valid <= v;", "out_valid <= v && b != 7;"), "different"),
        (ONE.replace("out_valid <= in_valid;", "out_valid <= 1;"), "different"),
    ],
)
def test_the_same_values_in_order_are_one_class(grader, last, result):
    texts = [ONE, HELD, ONE.replace("a + 3", "3 + a"), last]
    answers = [{"rtl/m.sv": text} for text in texts]
    problem = problem_of(ONE)
    found = by_consensus(grader.executor, lambda files: problem, answers, grader.limits, EFFORT)
    assert [one.result for one in found] == ["same"] * 3 + [result], found
