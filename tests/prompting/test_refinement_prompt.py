"""What a further turn is told: the words of compiler and tests, within bounds, and nothing of the harness."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from rtl_core.errors import InfrastructureError
from rtl_core.problems.starter import starter_problems
from rtl_core.prompting.budget import build_prompt
from rtl_core.prompting.chat import Chat
from rtl_core.prompting.refinement import ASK, build_refinement, feedback, terse_feedback
from rtl_core.tinymodels import model_path
from rtl_core.types.verdict import InterfaceMismatch, MismatchKind, Outcome, Verdict


def verdict(outcome: Outcome, reasons: tuple[str, ...] = (), mismatches=(), **found) -> Verdict:
    return Verdict(outcome=outcome, stages=(), reasons=reasons, mismatches=mismatches, executor="test", **found)


@pytest.fixture(scope="module")
def problem():
    return next(p for p in starter_problems("train", 40, 0) if len(p.interface.ports) > 3)


@pytest.fixture(scope="module")
def chat():
    return Chat(AutoTokenizer.from_pretrained(model_path("student")))


def test_failing_checks_are_told_with_their_number():
    said = feedback(
        verdict(
            Outcome.TESTS_FAILED,
            ("corners: y is 3, not 5 [checks=9 wrong=1 unknown=0]", "vectors: failed"),
            tests_passed=2,
            tests_total=4,
        ),
        500,
    )
    assert said == "It fails 2 of 4 checks:\ncorners: y is 3, not 5\nvectors: failed"


def test_long_reasons_are_cut_and_the_rest_is_counted():
    said = feedback(verdict(Outcome.COMPILE_FAILED, ("a" * 30, "b" * 30, "c" * 30)), 65)
    assert said.splitlines()[1:] == ["a" * 30, "b" * 30, "and 1 more"]
    one = feedback(verdict(Outcome.COMPILE_FAILED, ("a" * 300,)), 65)
    assert one.splitlines()[1:] == ["a" * 65]


def test_an_answer_that_passed_or_was_never_judged_has_no_further_turn():
    with pytest.raises(ValueError, match="passed"):
        feedback(verdict(Outcome.PASSED), 100)
    with pytest.raises(InfrastructureError):
        feedback(verdict(Outcome.INFRASTRUCTURE_ERROR), 100)


def test_the_chat_shows_problem_answer_and_what_was_said(problem, chat):
    first = build_prompt(problem, chat, "bare", 256)
    failed = verdict(Outcome.COMPILE_FAILED, ("x.sv:1: syntax error",))
    found = build_refinement(
        problem, first, "module m; endmodule", failed, chat, style="chat", most_chars=500, max_tokens=1024
    )
    assert [m["role"] for m in found.messages] == ["user", "assistant", "user"]
    assert found.messages[0]["content"] == problem.prompt
    assert found.messages[1]["content"] == "module m; endmodule"
    assert "syntax error" in found.messages[2]["content"]
    assert found.messages[2]["content"].endswith(ASK)
    assert found.tokens_P[: len(first.tokens_P) - 3] == first.tokens_P[:-3]


def test_the_terse_style_restates_what_is_wrong_as_the_specification_would(problem, chat):
    port = next(p for p in problem.interface.ports if p.direction == "input")
    mismatches = (
        InterfaceMismatch(kind=MismatchKind.WRONG_MODULE, name="m", expected="m", got="adder"),
        InterfaceMismatch(kind=MismatchKind.MISSING_PORT, name=port.name, expected="input", got="nothing"),
    )
    failed = verdict(Outcome.INTERFACE_MISMATCH, mismatches=mismatches)
    width = f", {port.width} bits" if port.width > 1 else ""
    assert terse_feedback(failed, problem.interface) == f"Module m. Input {port.name}{width}."
    first = build_prompt(problem, chat, "bare", 256)
    found = build_refinement(problem, first, "x", failed, chat, style="terse", most_chars=500, max_tokens=256)
    assert len(found.messages) == 1
    assert found.messages[0]["content"].startswith(problem.prompt)
    checks = verdict(Outcome.TESTS_FAILED, ("reset_kind: failed", "cycles: failed"), tests_total=4)
    assert terse_feedback(checks, problem.interface) == "Check reset_kind. Check cycles."


def test_what_does_not_fit_the_budget_is_not_followed_up(problem, chat):
    first = build_prompt(problem, chat, "bare", 256)
    failed = verdict(Outcome.COMPILE_FAILED, ("error",))
    long = "assign y = a;\n" * 200
    assert build_refinement(problem, first, long, failed, chat, style="chat", most_chars=99, max_tokens=256) is None
