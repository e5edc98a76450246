"""Classes of answers that behave alike: which is the majority, and which answers are doubtful."""

import pytest

from rtl_grader.equivalence.consensus import by_consensus, places
from rtl_grader.equivalence.pair import Comparison
from rtl_grader.hdl.text import compact_files
from rtl_grader.validation.doubts import EFFORT
from tests.equivalence.test_proof import problem_of


def held(behaviour):
    """Compare answers whose behaviour is a letter; `x` always gives X and agrees with none, `?` cannot be simulated, `-` not be proved."""

    def compare(golden, other):
        if "?" in (behaviour[golden], behaviour[other]) or behaviour[golden] == "x":
            return Comparison("unknown", "no")
        if behaviour[golden] != behaviour[other] == "-":
            return Comparison("unknown", "a delay")
        return Comparison(
            "same" if behaviour[golden] == behaviour[other] else "different",
            f"{golden}/{other}",
        )

    return compare


@pytest.mark.parametrize(
    ("behaviour", "results"),
    [
        ("aaab", "sssd"),
        ("aabb", "uuuu"),
        ("ab", "uu"),
        ("a", "u"),
        ("aaax", "sssd"),
        ("xaaa", "dsss"),
        ("aa?", "ssu"),
        ("aaa-b", "sssud"),
        ("bcaadea", "uuuuuuu"),
        ("bcaadeaa", "ddssddss"),
        ("", ""),
    ],
)
def test_answers_outside_the_majority_are_doubtful(behaviour, results):
    found = places([1] * len(behaviour), held(behaviour))
    assert "".join(one.result[0] for one in found) == results


@pytest.mark.parametrize(
    ("other", "copy"),
    [
        ('assign  y = // sum\n  "a  b"; /* end */\n', True),
        ('assign y = "a b";', False),
        ('assign y = "c  d";', False),
        ('assign y = "//";', False),
    ],
)
def test_a_copy_differs_in_comments_and_white_space_alone(other, copy):
    assert (
        compact_files({"rtl/m.v": other}) == compact_files({"rtl/m.v": 'assign y = "a  b";'})
    ) == copy
    assert compact_files({"rtl/m.v": "wire \\a+b ;"}) != compact_files(
        {"rtl/m.v": "wire \\a-b ;"}
    )
    directive = compact_files({"rtl/m.v": "\n`define A 1\n\n  assign y = 1;"})
    assert directive == compact_files({"rtl/m.v": "`define  A 1 // one\nassign y = 1;"})
    assert directive != compact_files({"rtl/m.v": "`define A 1 assign y = 1;"})


def test_texts_are_weighted_by_how_often_they_were_written():
    found = places([1, 3, 1], held("abb"))
    assert [one.result for one in found] == ["different", "same", "same"]
    assert [one.share for one in found] == pytest.approx([0.2, 0.8, 0.8])
    assert found[0].detail.startswith("differs from 4 of 5 independent texts: ")


HEAD = "module m(input clk, input rst_n, input in_valid, input [7:0] a, output reg out_valid, output reg [7:0] y);"
ONE = f"""{HEAD}
  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin out_valid <= 0; y <= 0; end else begin out_valid <= in_valid; y <= a + 3; end
endmodule
"""
HELD = ONE.replace("y <= a + 3;", "if (in_valid) y <= a + 8'd3;")
LATER = f"""{HEAD}
  reg v; reg [7:0] b;
  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin v <= 0; out_valid <= 0; b <= 0; y <= 0; end
    else begin v <= in_valid; b <= a; out_valid <= v; y <= b + 3; end
endmodule
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last", "result"),
    [
        (LATER, "same"),
        (LATER.replace("b + 3", "b + 4"), "different"),
        (LATER.replace("out_valid <= v;", "out_valid <= v && b != 7;"), "different"),
        (ONE.replace("out_valid <= in_valid;", "out_valid <= 1;"), "different"),
    ],
)
def test_latency_and_outputs_that_are_not_valid_do_not_separate_answers(grader, last, result):
    texts = [ONE, HELD, ONE.replace("a + 3", "3 + a"), last]
    answers = [{"rtl/m.sv": text} for text in texts]
    problem = problem_of(ONE)
    found = by_consensus(grader.executor, lambda files: problem, answers, grader.limits, EFFORT)
    assert [one.result for one in found] == ["same"] * 3 + [result], found
