"""Each failed answer has exactly one level, which follows from the reports of the harness."""

import tomllib
from pathlib import Path

import pytest

from rtl_core.history.named_queries import named_query
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.figures.mistakes import levels
from rtl_core.reporting.rollout import level_of
from rtl_core.reporting.theme import LEVELS
from rtl_grader.types.verdict import Outcome
from tests.nouns import a_rollout, a_verdict

CASES: dict[str, list[list]] = tomllib.loads(
    (Path(__file__).parent / "failure_levels.toml").read_text()
)
"""Level -> [outcome, reasons ..., tests passed, tests] of verdicts with this level."""


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    history = History(tmp_path_factory.mktemp("levels") / "h.duckdb")
    verdicts = {
        "passed": a_verdict(Outcome.PASSED),
        "undecided": a_verdict(Outcome.INFRASTRUCTURE_ERROR),
    }
    for level, cases in CASES.items():
        for number, (outcome, *told) in enumerate(cases):
            reasons = [text for text in told if isinstance(text, str)]
            passed, total = [n for n in told if isinstance(n, int)] or (0, 1)
            verdicts[f"{level} {number}"] = a_verdict(
                Outcome(outcome), *reasons, tests_passed=passed, tests_total=total
            )
    rollouts = {
        name: a_rollout(
            problem_id="solved" if name in ("passed", "refused 0") else name,
            sample=i,
            text=name,
        )
        for i, name in enumerate(verdicts)
    }
    history.record_rollouts(list(rollouts.values()))
    history.record_verdicts(
        [(rollouts[name].key, verdict, None) for name, verdict in verdicts.items()]
    )
    return history


def test_each_verdict_has_exactly_the_expected_level(history):
    rows = history.query(
        "SELECT text, level FROM failure_levels JOIN rollouts USING (rollout)"
    ).to_pylist()
    expected = [
        (f"{level} {number}", level)
        for level, cases in CASES.items()
        for number in range(len(cases))
    ]
    assert sorted((r["text"], r["level"]) for r in rows) == sorted(expected)
    assert set(CASES) == set(LEVELS)  # each has a colour and a position


def test_a_failure_says_whether_the_problem_is_solvable(history):
    stored = [
        history.find_rollout(key)
        for key in history.query("SELECT rollout FROM rollouts").column(0).to_pylist()
    ]
    by_text = {one.rollout.text: one.rollout for one in stored}
    assert (
        level_of(history, by_text["refused 0"])
        == "refused; another answer of the run solves the problem"
    )
    assert (
        level_of(history, by_text["no answer 0"])
        == "no answer; no answer of the run solves the problem"
    )
    assert level_of(history, by_text["passed"]) is None


def test_the_query_and_the_report_count_the_levels(history):
    query = named_query("failures")
    rows = history.query(query.sql, query.bind({}, "r")).to_pylist()
    found = {row["level"]: (row["answers"], row["solvable"]) for row in rows}
    assert found == {
        level: (len(cases), int(level == "refused")) for level, cases in CASES.items()
    }
    table = levels(Source(history, "r"))
    assert {row[0]: int(row[1]) for row in table.rows} == {
        level: len(cases) for level, cases in CASES.items()
    }
