"""Feedback on a failed answer: the words of compiler and tests, limited in length, without the harness."""

import pytest

from rtl_core.errors import InfrastructureError
from rtl_core.prompting.hints import feedback
from rtl_grader.types.verdict import Outcome
from tests.nouns import a_verdict


def test_failing_checks_are_reported_with_their_number():
    reasons = ("corners: y is 3, not 5 [checks=9 wrong=1 unknown=0]", "vectors: failed")
    said = feedback(
        a_verdict(Outcome.TESTS_FAILED, *reasons, tests_passed=2, tests_total=4), 500
    )
    assert said == "It fails 2 of 4 checks:\ncorners: y is 3, not 5\nvectors: failed"


def test_long_reasons_are_cut_and_the_rest_is_counted():
    said = feedback(a_verdict(Outcome.COMPILE_FAILED, "a" * 30, "b" * 30, "c" * 30), 65)
    assert said.splitlines()[1:] == ["a" * 30, "b" * 30, "and 1 more"]
    one = feedback(a_verdict(Outcome.COMPILE_FAILED, "a" * 300), 65)
    assert one.splitlines()[1:] == ["a" * 65]


def test_an_answer_that_passed_or_was_not_graded_gets_no_feedback():
    with pytest.raises(ValueError, match="passed"):
        feedback(a_verdict(Outcome.PASSED), 100)
    with pytest.raises(InfrastructureError, match="no disk"):
        feedback(a_verdict(Outcome.INFRASTRUCTURE_ERROR, "no disk"), 100)
