"""Cells, flip-flops and longest path of designs, and their reward."""

import pytest

from rtl_core.learning.reward import TERMS, Graded
from rtl_grader.equivalence.effort import Effort
from rtl_grader.grading.grader import Grader
from rtl_grader.types.answer import Answer
from rtl_grader.types.netlist import Netlist
from rtl_grader.validation.doubts import DesignCache, audit_passes
from tests.equivalence.test_proof import COUNTER, problem_of
from tests.validation.conftest import inverter

CHAIN = "module m(input clk, input a, b, c, output reg q, output y);\n  assign y = (a & b) ^ (c | q);\n  always @(posedge clk) q <= y;\nendmodule\n"


def size(grader: Grader, text: str) -> Netlist | None:
    return DesignCache().netlist(grader, problem_of(text), {"rtl/m.sv": text})[0]


def test_cells_are_counted(grader):
    assert size(grader, CHAIN) == Netlist(cells=4, flip_flops=1, levels=2)
    wires = "module m(input a, output y);\n  assign y = a;\nendmodule\n"
    assert size(grader, wires) == Netlist(cells=0, flip_flops=0, levels=0)


def test_a_wider_design_has_more_cells_and_flip_flops(grader):
    narrow, wide = (size(grader, COUNTER.replace("W = 8", f"W = {bits}")) for bits in (8, 16))
    assert (narrow.flip_flops, wide.flip_flops) == (8, 16)
    assert wide.cells > narrow.cells
    assert wide.levels > narrow.levels


@pytest.mark.parametrize(
    "text",
    [
        "module m(input a, output y);\n  assign y = a & z;\n  assign z = y;\n  wire z;\nendmodule\n",
        'module m(input a, output y);\n  initial $info("{\\"cells\\": 0}");\n  missing u(a, y);\nendmodule\n',
    ],
)
def test_a_design_that_cannot_be_synthesised_has_no_size(grader, text):
    assert size(grader, text) is None


def test_sizes_are_relative_to_the_golden_answer_and_cached(grader, planted):
    problem, cache = planted(), DesignCache()
    forms = ("~a", "{4{a == a}} & ~a", "a == 13 ? 5 : ~a")
    answers = [{"rtl/inv.sv": inverter(form)} for form in forms]
    golden, longer, wrong = (
        one.netlist
        for one in audit_passes(grader, problem, answers, Effort.of_cycles(100), cache)
    )
    assert golden == longer == Netlist(4, 0, 1, 1.0, 1.0)
    assert wrong.relative_area is None, "a doubtful pass has no relative size"
    assert cache.netlist(grader, problem, answers[0])[1] == 0.0


def test_without_a_golden_answer_sizes_are_relative_to_the_median_pass(grader, planted):
    forms = ("~a", "4'd15 ^ a", "~a | {4{^a & ~^a}}")
    answers = [{"rtl/inv.sv": inverter(form)} for form in forms]
    problem = planted(golden=None)
    grader.grade(problem, Answer(files=answers[0]))
    told = audit_passes(grader, problem, answers, Effort.of_cycles(100), DesignCache())
    assert [one.netlist and one.netlist.relative_area for one in told] == [1.0, 1.0, 1.0]


def test_terms_give_less_to_larger_designs_and_nothing_to_unknown_sizes(grader, planted):
    problem = planted()
    verdict = grader.grade(problem, Answer(files={"rtl/inv.sv": inverter()}))
    paid = [
        Graded(problem, verdict, "", (), "stop", netlist)
        for netlist in (
            Netlist(9, 0, 4).beside(9, 9),
            Netlist(29, 0, 4).beside(9, 4),
            Netlist(9, 0, 4),
            None,
        )
    ]
    assert [TERMS["area"].value(one) for one in paid] == [1 / 2, 1 / 4, 0, 0]
    assert [TERMS["depth"].value(one) for one in paid] == [pytest.approx(2 / 3), 1 / 2, 0, 0]
