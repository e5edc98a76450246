"""Mistakes are named: polarity and name of a reset, ports, widths, the failing check."""

import pytest

from rtl_core.history.named_queries import named_query
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.figures.mistakes import named
from rtl_grader.types.verdict import InterfaceMismatch, MismatchKind, Outcome
from tests.nouns import a_rollout, a_verdict


def miss(
    kind: str, name: str, expected: str | None = None, got: str | None = None
) -> InterfaceMismatch:
    return InterfaceMismatch(kind=MismatchKind(kind), name=name, expected=expected, got=got)


CASES = {
    "reset polarity": (
        (miss("missing_port", "rst"), miss("extra_port", "rst_n")),
        ("rst", "rst_n"),
    ),
    "reset name": (
        (miss("missing_port", "clr_n"), miss("extra_port", "rst_n")),
        ("clr_n", "rst_n"),
    ),
    "clock name": ((miss("missing_port", "mclk"), miss("extra_port", "clk")), ("mclk", "clk")),
    "port name": (
        (miss("missing_port", "din"), miss("extra_port", "a"), miss("extra_port", "rst")),
        ("din", "a"),
    ),
    "port missing": ((miss("missing_port", "din"), miss("extra_port", "rst_n")), ("din", "")),
    "port too many": ((miss("extra_port", "en"),), (None, "en")),
    "width": ((miss("wrong_width", "y", "4 bits", "8 bits"),), ("y: 4 bits", "8 bits")),
    "module name": ((miss("wrong_module", "m", "m", "adder"),), ("m", "adder")),
}


def recorded(path, *verdicts):
    history = History(path)
    rollouts = [a_rollout(problem_id=f"p{i}") for i in range(len(verdicts))]
    history.record_rollouts(rollouts)
    history.record_verdicts([(r.key, v, None) for r, v in zip(rollouts, verdicts, strict=True)])
    return history


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    missed = [
        a_verdict(Outcome.INTERFACE_MISMATCH, mismatches=found) for found, _ in CASES.values()
    ]
    reasons = (
        "test_m.reset_kind: q is 1",
        "test_m.bit_order: y is 3, not 5",
        "vectors: failed",
    )
    failed = a_verdict(Outcome.TESTS_FAILED, *reasons)
    return recorded(tmp_path_factory.mktemp("mistakes") / "h.duckdb", *missed, failed)


@pytest.mark.parametrize(("number", "name"), enumerate(CASES), ids=list(CASES))
def test_an_interface_mistake_is_named(history, number, name):
    _, (expected, got) = CASES[name]
    rows = history.query(
        "SELECT mistake, expected, got FROM named_mistakes WHERE problem_id = $p",
        {"p": f"p{number}"},
    )
    assert [tuple(row.values()) for row in rows.to_pylist()] == [(name, expected, got)]


def test_failing_checks_are_named(history):
    rows = history.query(
        "SELECT mistake, expected FROM named_mistakes WHERE problem_id = $p",
        {"p": f"p{len(CASES)}"},
    )
    found = {row["mistake"] for row in rows.to_pylist()}
    assert found == {"reset behaviour", "bit order", "failing check"}


def test_the_query_counts_answers_by_epoch(history):
    query = named_query("mistakes-by-epoch")
    rows = history.query(query.sql, query.bind({}, "r")).to_pylist()
    assert {row["mistake"] for row in rows} >= {"reset polarity", "width", "failing check"}
    assert all(
        row["answers"] == 1 and row["per_answer"] == pytest.approx(1 / 9) for row in rows
    )


def test_the_report_shows_the_mistakes(history):
    table = named(Source(history, "r"))
    shown = {row[0]: row[1:3] for row in table.rows}
    assert shown["reset polarity"] == ["rst", "rst_n"]
    assert shown["port too many"] == ["–", "en"]
    assert all(
        row[5] == row[6] == "11.1 %" for row in table.rows
    )  # one epoch: the first is the last


def test_of_equally_frequent_values_the_first_in_order_is_shown(tmp_path):
    missed = [(miss("extra_port", name),) for name in "hgfedcba"]
    verdicts = [a_verdict(Outcome.INTERFACE_MISMATCH, mismatches=found) for found in missed]
    history, query = (
        recorded(tmp_path / "h.duckdb", *verdicts),
        named_query("mistakes-by-epoch"),
    )
    assert [
        row["got"] for row in history.query(query.sql, query.bind({}, "r")).to_pylist()
    ] == ["a"]
    assert [row[2] for row in named(Source(history, "r")).rows] == ["a"]
