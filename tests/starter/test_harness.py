"""The harness of every family passes the golden answer and no design with another behaviour."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from benchmarks.starter_strength import relatives
from rtl_core.starter import BY_NAME, FAMILIES, Spec, problem_of, starter_specs
from rtl_core.starter.record import target_of
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome
from rtl_grader.validation.stubs import stubs
from tests.nouns import golden_answer, textbook_answer

HELDOUT = [
    spec
    for tier in FAMILIES
    for spec in starter_specs("heldout", len(FAMILIES[tier]), seed=11, tier=tier)
]


def by_family(specs):
    return pytest.mark.parametrize("spec", specs, ids=[spec.family for spec in specs])


def judge(grader, spec, codes):
    """Verdicts of several answers to a specification, two at a time."""
    problem = problem_of(spec)
    with ThreadPoolExecutor(2) as pool:
        return list(
            pool.map(
                lambda code: grader.grade(problem, Answer(files={target_of(spec): code})), codes
            )
        )


def wrong_answers(spec: Spec) -> dict[str, str]:
    """Designs with the right interface and a wrong option, reset or clock edge, with constant outputs, or passing an input through."""
    problem, golden = problem_of(spec), golden_answer(spec)
    wrong = dict(relatives(spec, problem.golden)) | stubs(problem).of(
        ("zeros", "ones", "inputs")
    )
    wrong = {
        name: text for name, files in wrong.items() for text in files.values() if text != golden
    }
    if BY_NAME[spec.family].sequential:
        wrong["falling edge"] = golden.replace(f"posedge {spec.clock}", f"negedge {spec.clock}")
    return wrong


@pytest.mark.corpus
@by_family(HELDOUT)
def test_the_golden_answer_passes_with_any_seed(grader, other_seed, spec):
    problem, family = problem_of(spec), BY_NAME[spec.family]
    tests = (4 if family.sequential else 2) * (
        3 if family.parameter(spec) else 1
    )  # three values of a parameter
    for seeded in (grader, other_seed):
        verdict = seeded.grade(problem, Answer(files=problem.golden))
        assert verdict.passed, verdict.reasons
        assert verdict.tests_passed == verdict.tests_total == tests


@pytest.mark.corpus
@by_family(HELDOUT)
def test_wrong_designs_fail(grader, spec):
    wrong = wrong_answers(spec)
    for name, verdict in zip(wrong, judge(grader, spec, wrong.values()), strict=True):
        assert verdict.outcome is Outcome.TESTS_FAILED, f"{name}: {verdict.outcome}"


@by_family([spec for spec in HELDOUT if spec.family in ("adder", "counter", "arbiter", "fifo")])
def test_a_textbook_answer_is_an_interface_mismatch(grader, spec):
    (verdict,) = judge(grader, spec, [textbook_answer(spec)])
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert verdict.mismatches


def test_the_message_of_a_failing_test_ends_with_counts(grader):
    spec = replace(next(spec for spec in HELDOUT if spec.family == "counter"), width=6)
    q = spec.ports[1]
    body = (
        golden_answer(spec)
        .replace(q, "right__")
        .replace("output reg [5:0] right__", f"output reg [5:0] {q}")
    )
    late = f"  reg [5:0] right__;\n  always @(posedge {spec.clock}) {q} <= right__;\n"
    (verdict,) = judge(grader, spec, [body.replace(");\n", f");\n{late}", 1)])
    assert len(verdict.reasons) == 4
    for reason in verdict.reasons:
        found = {
            name: int(n) for name, n in re.findall(r"(\w+)=(\d+)[ \]]", reason.split("[")[-1])
        }
        assert set(found) == {
            "checks",
            "wrong",
            "unknown",
            "starts",
            "at_reset",
            "off",
            "late",
            "early",
        }
        assert 0 < found["wrong"] <= found["checks"]
        assert found["late"] == 0 < found["off"]  # each value is right, but a cycle late
        assert found["early"] > 0


def test_a_failing_test_reports_driven_expected_and_actual_values(grader):
    spec = next(spec for spec in HELDOUT if spec.family == "counter")
    other = replace(spec, option="up" if spec.option == "down" else "down")
    (verdict,) = judge(grader, spec, [golden_answer(other)])
    assert 0 < verdict.tests_passed + 1 <= verdict.tests_total
    assert any(
        "expected" in reason and spec.ports[1] in reason for reason in verdict.reasons
    ), verdict.reasons
