"""Each failed answer has exactly one level, which follows from the reports of the harness."""

import pytest

from rtl_core.history.named_queries import named_query
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.figures.mistakes import levels
from rtl_core.reporting.rollout import level_of
from rtl_core.reporting.theme import LEVELS
from rtl_core.types.verdict import Outcome
from tests.nouns import a_rollout, a_verdict

FAILED, BROKEN = Outcome.TESTS_FAILED, Outcome.COMPILE_FAILED
CASES: dict[str, list[tuple]] = {
    "no answer": [(Outcome.NO_ANSWER, "the answer holds no file")],
    "refused": [(Outcome.REJECTED, "$fopen is not allowed")],
    "does not parse": [(BROKEN, "rtl/a.sv:4: syntax error", "I give up.")],
    "wrong interface": [(Outcome.INTERFACE_MISMATCH, "missing port `q`", "rtl/a.sv:4: syntax error")],
    "does not elaborate": [(BROKEN, "rtl/a.sv:2: error: Unknown module type: helper", "2 error(s) during elaboration.")],
    "times out": [
        (Outcome.TIMEOUT, "direct used more than 2 s of CPU time; the known-good answer takes 0.06 s"),
        (FAILED, "direct used more than 512 MiB of memory"),
    ],
    "X on outputs": [
        (FAILED, "test_a.cycles: q is 0X [checks=90 wrong=80 unknown=78 starts=1 at_reset=1 off=30 late=30 early=30]"),
        (FAILED, "test_reset: AssertionError: got xx1, expected 001"),
        (FAILED, "test_case: expected grant=0b00001000, got grant=0bXXXXXXXX"),
        (FAILED, "test_sum: ValueError: Can't convert LogicArray to int: it contains non-0/1 values"),
        (FAILED, "test_sum: assert LogicArray('0X1', Range(2, 'downto', 0)) == 3"),
    ],
    "off by a cycle": [
        (FAILED, "a: [checks=9 wrong=8 unknown=1 starts=2 at_reset=1 off=4 late=0 early=4]", "b: [checks=9 wrong=8 unknown=0 starts=2 at_reset=0 off=4 late=1 early=4]"),
        (FAILED, "a: [checks=9 wrong=8 unknown=0 starts=2 at_reset=0 off=4 late=4 early=0]"),
    ],
    "reset wrong": [
        (FAILED, "a: q is 1, expected 0 [checks=90 wrong=80 unknown=0 starts=6 at_reset=1 off=30 late=29 early=30]"),
        (FAILED, "test_reset_value: expected 0, got 0x1"),
    ],
    "wrong in corner values only": [
        (FAILED, "a: [checks=200 wrong=10 unknown=0]"),
        (FAILED, "Mismatches: 2 in 114 samples", "the test bench did not say that the design passed"),
    ],
    "wrong in some checks": [
        (FAILED, "a: [checks=200 wrong=60 unknown=0 starts=12 at_reset=1 off=2 late=0 early=9]"),
        (FAILED, "Mismatches: 32 in 114 samples"),
        (FAILED, "test_sum: expected 3, got 0x10", 3, 4),
    ],
    "wrong in most checks": [
        (FAILED, "a: [checks=200 wrong=160]"),
        (FAILED, "no output ever changed its value", 0, 1),
    ],
}  # fmt: skip
"""Level -> (outcome, reasons ..., tests passed, tests) of verdicts with this level."""


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    history = History(tmp_path_factory.mktemp("levels") / "h.duckdb")
    verdicts = {"passed": a_verdict(Outcome.PASSED), "undecided": a_verdict(Outcome.INFRASTRUCTURE_ERROR)}
    for level, cases in CASES.items():
        for number, (outcome, *told) in enumerate(cases):
            reasons = [text for text in told if isinstance(text, str)]
            passed, total = [n for n in told if isinstance(n, int)] or (0, 1)
            verdicts[f"{level} {number}"] = a_verdict(outcome, *reasons, tests_passed=passed, tests_total=total)
    rollouts = {
        name: a_rollout(problem_id="solved" if name in ("passed", "refused 0") else name, sample=i, text=name)
        for i, name in enumerate(verdicts)
    }
    history.record_rollouts(list(rollouts.values()))
    history.record_verdicts([(rollouts[name].key, verdict, None) for name, verdict in verdicts.items()])
    return history


def test_each_verdict_has_exactly_the_expected_level(history):
    rows = history.query("SELECT text, level FROM failure_levels JOIN rollouts USING (rollout)").to_pylist()
    expected = [(f"{level} {number}", level) for level, cases in CASES.items() for number in range(len(cases))]
    assert sorted((r["text"], r["level"]) for r in rows) == sorted(expected)
    assert set(CASES) == set(LEVELS)  # each has a colour and a position


def test_a_failure_says_whether_the_problem_is_solvable(history):
    stored = [history.find_rollout(key) for key in history.query("SELECT rollout FROM rollouts").column(0).to_pylist()]
    by_text = {one.rollout.text: one.rollout for one in stored}
    assert level_of(history, by_text["refused 0"]) == "refused; another answer of the run solves the problem"
    assert level_of(history, by_text["no answer 0"]) == "no answer; no answer of the run solves the problem"
    assert level_of(history, by_text["passed"]) is None


def test_the_query_and_the_report_count_the_levels(history):
    query = named_query("failures")
    rows = history.query(query.sql, query.bind({}, "r")).to_pylist()
    found = {row["level"]: (row["answers"], row["solvable"]) for row in rows}
    assert found == {level: (len(cases), int(level == "refused")) for level, cases in CASES.items()}
    table = levels(Source(history, "r"))
    assert {row[0]: int(row[1]) for row in table.rows} == {level: len(cases) for level, cases in CASES.items()}
