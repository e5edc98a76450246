"""Problems whose golden answer is the judge."""

import pytest

from rtl_grader.problems.judged import is_judged, judged_problem, tops_of

ADDER = "module adder #(parameter W = 4) (input [W-1:0] a, b, output [W:0] y);\n  assign y = a + b;\nendmodule\n"


def problem(golden=ADDER, **fields):
    return judged_problem(
        id="p", source="pairs", category="cid003", difficulty="easy", prompt="Add.",
        golden={"rtl/adder.sv": golden}, top="adder", **fields,
    )  # fmt: skip


def test_a_judged_problem_demands_the_golden_answers_interface():
    made = problem()
    assert is_judged(made.harness)
    assert [port.width for port in made.interface.ports] == [4, 4, 5]


def test_another_golden_answer_is_another_problem():
    assert problem().fingerprint != problem(ADDER.replace("a + b", "a - b")).fingerprint


def test_a_golden_answer_without_its_top_module_is_refused():
    with pytest.raises(ValueError, match="cannot be read"):
        problem("module other (input a); endmodule")


@pytest.mark.parametrize(
    ("text", "top"),
    [
        ("module a (input x); b #(4) u (x); endmodule module b (input x); endmodule", "a"),
        ("module b (input x); endmodule\nmodule a (input x); b u (.x(x)); endmodule", "a"),
        ("module a; endmodule module c; endmodule", "c"),
        ("// module a\n", None),
    ],
)
def test_the_top_module_is_the_one_that_no_other_instantiates(text, top):
    assert tops_of(text)[-1:] == ([top] if top else [])
