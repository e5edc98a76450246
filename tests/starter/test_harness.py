"""The harness of every family pays the golden answer and nothing that behaves otherwise."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from benchmarks.starter_strength import relatives
from rtl_core.problems.starter import Spec, golden_answer, problem_of, starter_specs, textbook_answer
from rtl_core.problems.starter.catalog import BY_NAME, FAMILIES
from rtl_core.problems.starter.record import target_of
from rtl_core.types.answer import Answer
from rtl_core.types.verdict import Outcome
from rtl_core.validation.stubs import stubs

HELDOUT = [
    *starter_specs("heldout", len(FAMILIES["starter"]), seed=11),
    *starter_specs("heldout", len(FAMILIES["hard"]), seed=11, tier="hard"),
]


def by_family(specs):
    return pytest.mark.parametrize("spec", specs, ids=[spec.family for spec in specs])


def judge(grader, spec, codes):
    """Verdicts of several answers to one specification, two at a time."""
    problem = problem_of(spec)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda code: grader.grade(problem, Answer(files={target_of(spec): code})), codes))


def wrong_answers(spec: Spec) -> dict[str, str]:
    """Right interface, and a wrong option, reset polarity, reset kind or clock edge, constants, or an input passed through."""
    problem, golden = problem_of(spec), golden_answer(spec)
    wrong = dict(relatives(spec, problem.golden)) | stubs(problem).of(("zeros", "ones", "inputs"))
    wrong = {name: text for name, files in wrong.items() for text in files.values() if text != golden}
    if BY_NAME[spec.family].sequential:
        wrong["falling edge"] = golden.replace(f"posedge {spec.clock}", f"negedge {spec.clock}")
    return wrong


def expected_tests(spec: Spec) -> int:
    """Two for a combinational design, or four; for each of three values of a parameter if there is one."""
    family = BY_NAME[spec.family]
    return (4 if family.sequential else 2) * (3 if family.parameter(spec) else 1)


@pytest.mark.corpus
@by_family(HELDOUT)
def test_golden_answer_passes_whatever_the_seed(grader, other_seed, spec):
    problem = problem_of(spec)
    for judge_of_seed in (grader, other_seed):
        verdict = judge_of_seed.grade(problem, Answer(files=problem.golden))
        assert verdict.passed, verdict.reasons
        assert verdict.tests_passed == verdict.tests_total == expected_tests(spec)


@pytest.mark.corpus
@by_family(HELDOUT)
def test_wrong_option_polarity_kind_and_edge_fail(grader, spec):
    wrong = wrong_answers(spec)
    for name, verdict in zip(wrong, judge(grader, spec, wrong.values()), strict=True):
        assert verdict.outcome is Outcome.TESTS_FAILED, f"{name}: {verdict.outcome}"


@by_family([spec for spec in HELDOUT if spec.family in ("adder", "counter", "arbiter", "fifo")])
def test_textbook_answer_is_an_interface_mismatch(grader, spec):
    (verdict,) = judge(grader, spec, [textbook_answer(spec)])
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert verdict.mismatches


def test_a_failing_test_goes_on_and_ends_its_message_with_a_record(grader):
    spec = replace(next(spec for spec in HELDOUT if spec.family == "counter"), width=6)
    q = spec.ports[1]
    body = golden_answer(spec).replace(q, "right__").replace("output reg [5:0] right__", f"output reg [5:0] {q}")
    late = f"  reg [5:0] right__;\n  always @(posedge {spec.clock}) {q} <= right__;\n"
    (verdict,) = judge(grader, spec, [body.replace(");\n", f");\n{late}", 1)])
    counts = [
        {name: int(n) for name, n in re.findall(r"(\w+)=(\d+)[ \]]", reason.split("[")[-1])}
        for reason in verdict.reasons
    ]
    assert len(counts) == 4
    for found in counts:
        assert set(found) == {"checks", "wrong", "unknown", "starts", "at_reset", "off", "late", "early"}
        assert 0 < found["wrong"] <= found["checks"]
        assert found["late"] == 0 < found["off"]  # each value is right, a cycle late
        assert found["early"] > 0


def test_a_failing_test_says_what_was_driven_expected_and_got(grader):
    spec = next(spec for spec in HELDOUT if spec.family == "counter")
    other = replace(spec, option="up" if spec.option == "down" else "down")
    (verdict,) = judge(grader, spec, [golden_answer(other)])
    assert 0 < verdict.tests_passed + 1 <= verdict.tests_total
    assert any("expected" in reason and spec.ports[1] in reason for reason in verdict.reasons), verdict.reasons
