"""Passes are audited during training: each answer once, and within a share of the grading time."""

import math

import pytest

from rtl_grader.types.answer import Answer
from rtl_grader.validation.doubts import Doubts, doubt_of_golden
from tests.validation.conftest import inverter

RIGHT, WRONG = {"rtl/inv.sv": inverter()}, {"rtl/inv.sv": inverter("a == 13 ? 5 : ~a")}


def test_each_answer_is_compared_once(grader, planted):
    problem, doubts = planted(), Doubts()
    grader.grade(problem, Answer(files=RIGHT))
    told = doubts.look(grader, problem, [RIGHT, WRONG, RIGHT], math.inf)
    assert [one.result for one in told if one] == ["equal", "different", "equal"]
    spent = doubts.spent_s
    assert spent > 0
    assert doubts.look(grader, problem, [WRONG], 1e-9) == [told[1]], (
        "a known answer costs nothing"
    )
    assert doubts.spent_s == spent
    copied = {"rtl/inv.sv": RIGHT["rtl/inv.sv"] + "// other\n"}
    assert doubts.look(grader, problem, [copied], 1e-9) == [told[0]], "comments do not matter"
    other = {"rtl/inv.sv": inverter("4'd15 - a")}
    assert doubts.look(grader, problem, [other], 1e-9) == [None], "there is no time for more"


def test_the_time_is_a_share_of_the_grading_time(grader, planted):
    problem, doubts = planted(), Doubts()
    grader.grade(problem, Answer(files=RIGHT))
    assert doubts.look(grader, problem, [RIGHT], 10.0) == [None], (
        "no answer of a step was graded"
    )
    doubts.graded_s += 1.0
    other = {"rtl/inv.sv": inverter("4'd15 - a")}
    (found,) = doubts.look(grader, problem, [other], 0.01)
    assert found is not None
    assert doubts.spent_s > 0.01
    assert doubts.look(grader, problem, [WRONG], 0.01) == [None], "the share is used up"


def test_without_an_answer_a_golden_answer_is_not_doubted(grader, planted):
    opinion, answer = doubt_of_golden(grader, planted(), [])
    assert (opinion.result, opinion.detail, answer) == ("unknown", "no answer has files", {})


@pytest.mark.parametrize(
    ("texts", "results"),
    [(2, [None] * 2), (3, ["same"] * 3), (4, ["same"] * 3 + ["different"])],
)
def test_without_a_golden_answer_three_distinct_texts_are_needed(
    grader, planted, texts, results
):
    forms = ("~a", "4'd15 - a", "a ^ 4'hf", "a")[:texts]
    answers = [{"rtl/inv.sv": inverter(form)} for form in forms]
    problem = planted(golden=None)
    grader.grade(problem, Answer(files=answers[0]))
    told = Doubts().look(grader, problem, answers, math.inf)
    assert [one and one.result for one in told] == results
