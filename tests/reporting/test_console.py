"""The terminal's table agrees with the database."""

import pytest

from rtl_core.errors import HistoryError
from rtl_core.reporting.console import before_after_table, step_line
from rtl_core.reporting.evaluations import EvaluationView, RunResult, paired, run_result
from rtl_core.reporting.report import headline
from rtl_core.reporting.text import p_in_words
from tests import synthetic
from tests.reporting.report_tab import text_of


def test_the_table_shows_before_after_and_teacher_with_intervals(demo):
    text = text_of(before_after_table(demo, "demo"))
    sql = "SELECT avg(CAST(outcome = 'passed' AS INTEGER)) FROM verdicts WHERE evaluation = 'demo-student-12'"
    (rate,) = demo.query(sql).column(0).to_pylist()
    after = next(line for line in text.splitlines() if "student after" in line)
    assert f"{100 * rate:.1f} %" in after
    assert "<0.001" in after
    shown = run_result(demo, "demo").after.pass_at_1
    assert f"[{100 * shown.lo:.1f}, {100 * shown.hi:.1f}]" in text
    assert all(
        name in text for name in ("student before", "teacher", "pass@2", "pass@4", "interface")
    )
    assert "16 problems × 4 samples" in text


@pytest.mark.parametrize("width", [80, 70])
def test_a_narrow_terminal_shows_all_words_and_numbers(demo, width):
    """At 80 columns with one pass@k no cell is folded; on narrower terminals, or with more of them, cells are folded but not cut."""
    narrow = text_of(before_after_table(demo, "demo"), width)
    assert "…" not in narrow
    assert all(len(line.rstrip()) <= width for line in narrow.splitlines())
    wanted = {
        word for word in text_of(before_after_table(demo, "demo")).split() if word[0].isdigit()
    }
    assert wanted <= set(narrow.split()) | {w.rstrip("]") for w in narrow.split()}


def test_the_gain_is_paired_by_problem(demo):
    result = run_result(demo, "demo")
    gains = [result.after.rates[p] - result.before.rates[p] for p in result.before.rates]
    assert result.gain.gain == pytest.approx(sum(gains) / len(gains))
    assert result.gain.n == 16
    assert result.gain.lo < result.gain.gain < result.gain.hi


@pytest.mark.parametrize(
    ("rates", "headline_", "interval"),
    [
        ([0.5, 0.75, 1.0, 0.75] * 2, "pass@1 rose from", True),
        ([0.5, 0.75, 1.0, 0.75], "No clear change of held-out pass@1: from", True),
        ([0.5, 0.0, 0.5, 0.25], "No clear change of held-out pass@1: from", True),
        ([0.75], "No clear change of held-out pass@1: from", False),
    ],
)
def test_a_change_is_claimed_where_interval_and_test_show_it(demo, rates, headline_, interval):
    record = demo.evaluation("demo-student-0")
    before, after = (
        EvaluationView(record, {str(i): (4, round(4 * rate)) for i, rate in enumerate(own)}, {})
        for own in ([0.25] * len(rates), rates)
    )
    before, after = before.of(before.counts), after.of(after.counts)
    result = RunResult(before, after, None, (before, after), paired(before, after))
    said = str(headline(result))
    assert headline_ in said
    gain, p = result.cells(after, [])[-2:]
    assert ("[" in gain) == interval
    assert p == p_in_words(result.gain.p_value)


def test_a_run_without_evaluations_says_so(demo):
    assert "no evaluation has ended yet" in text_of(before_after_table(demo, "fresh"))


def test_an_unknown_run_is_named_with_those_that_exist(demo):
    with pytest.raises(HistoryError, match=r"runs there: .*demo"):
        before_after_table(demo, "nope")


def test_the_line_of_a_step_omits_missing_metrics():
    assert (
        step_line(4, 40, {"env/all/reward/total": 1.234, "time/total": 3.21})
        == "step   5/40  reward 1.23  3.2 s"
    )


def test_the_line_of_a_step_has_no_pass_where_none_passed_and_no_minus_zero():
    passed = "env/all/tests_passed"
    none = {passed: 0.0, f"{passed}_equal_difficulty": 0.01, "teacher_kl": -0.0001}
    assert step_line(0, 4, none) == "step   1/4  pass 0.00  teacher KL 0.000"
    some = {passed: 0.25, f"{passed}_equal_difficulty": 0.2}
    assert step_line(0, 4, some) == "step   1/4  pass 0.20 (raw 0.25)"


def test_the_gain_over_a_warm_start_is_shown(tmp_path):
    """A run of twelve steps, the first four of which are a warm start with an evaluation after it."""
    history = synthetic.write_run(tmp_path / "h.duckdb", "warm", synthetic.Shape(warm_start=4))
    result = run_result(history, "warm")
    assert [name for name, _ in result.views] == [
        "student before",
        "warm start",
        "student after",
        "teacher",
    ]
    assert result.warm.record.step == 4
    gained = result.after.pass_at_1.mean - result.warm.pass_at_1.mean
    text = text_of(before_after_table(history, "warm"))
    assert f"Over the warm start alone: pass@1 {100 * gained:+.1f} points [" in text
    assert "interface right" in " ".join(text.split())
    assert len([line for line in text.splitlines() if "4 steps" in line]) == 1
