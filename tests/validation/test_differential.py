"""Side by side: what behaves alike is called the same, what does not is shown by an input."""

from __future__ import annotations

import pytest

from rtl_core.grading.grader import Grader
from rtl_core.problems.interface import parse_interface
from rtl_core.problems.problem import InterfaceSource, Problem
from rtl_core.problems.starter import starter_problems
from rtl_core.validation.differential import Comparison, compare

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


def told(grader: Grader, golden: str, other: str, context: dict[str, str] | None = None) -> Comparison:
    interface = parse_interface({**(context or {}), "rtl/m.sv": golden}, "m", InterfaceSource.GOLDEN)
    problem = Problem(
        id="p", source="cvdp", category="cid003", difficulty="easy", prompt="p", targets=("rtl/m.sv",), harness={},
        context=context or {}, golden={"rtl/m.sv": golden}, interface=interface,
    )  # fmt: skip
    return compare(grader.executor, problem, {"rtl/m.sv": golden}, {"rtl/m.sv": other}, grader.limits)


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
    ],
)
def test_behaviour_decides(grader: Grader, golden: str, before: str, after: str, result: str) -> None:
    assert before in golden
    found = told(grader, golden, golden.replace(before, after))
    assert found.result == result, found
    assert "inputs" in found.detail or "X" in found.detail


def test_a_difference_comes_with_the_inputs_that_show_it(grader: Grader) -> None:
    found = told(grader, MIN, MIN.replace("a < b", "a > b"))
    assert "a=" in found.detail
    assert "golden" in found.detail


def test_every_starter_golden_answer_is_the_same_as_itself(grader: Grader) -> None:
    for problem in starter_problems("heldout", 18, 0):
        assert problem.golden is not None
        found = compare(grader.executor, problem, problem.golden, problem.golden, grader.limits)
        assert found.result == "same", (problem.family, found)


def test_what_cannot_be_compared_is_unknown_and_never_the_same(grader: Grader) -> None:
    assert told(grader, MIN, "module m(input [3:0] a); endmodule").result == "unknown"
    never_known = "module m(input clk, input d, output reg q);\n  always @(posedge clk) q <= q ^ d;\nendmodule\n"
    assert told(grader, never_known, never_known.replace("q ^ d", "q & ~q | q")).result == "unknown"
