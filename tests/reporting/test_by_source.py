"""A run with problems of several sources shows a result for each, since rates over a mixture are not comparable."""

import duckdb
import pytest

from rtl_core.history.store import History
from rtl_core.learning.intervals import mean_interval
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.console import before_after_table, comparison
from rtl_core.reporting.evaluations import ALL_SOURCES, MIXTURE, run_result
from rtl_core.reporting.figures import compare, result
from rtl_core.reporting.report import headline, write_report
from rtl_core.run.model_card import results_table
from tests import synthetic
from tests.reporting.report_tab import text_of


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A history with `both`, from cvdp and starter, and `one` with the same problems, all from starter."""
    path = tmp_path_factory.mktemp("mixed") / "h.duckdb"
    synthetic.write_run(path, "both", synthetic.Shape(sources=("starter", "cvdp", "starter")))
    synthetic.write_run(path, "one", synthetic.Shape(sources=("starter",)), seed=3, gain=0.3)
    return History(path)


def rate_by_hand(history: History, source: str) -> tuple[float, float, float, int]:
    """pass@1 of the student after training over the problems of a source, computed from the verdicts."""
    rows = history.query(
        "SELECT v.problem_id, avg(CAST(v.outcome = 'passed' AS INTEGER)) AS rate FROM verdicts v JOIN run_problems p"
        " ON p.run = v.run AND p.problem_id = v.problem_id WHERE v.evaluation = 'both-student-12' AND p.source = $source"
        " GROUP BY v.problem_id",
        {"source": source},
    ).to_pylist()
    rate = mean_interval([row["rate"] for row in rows])
    return rate.mean, rate.lo, rate.hi, len(rows)


@pytest.mark.parametrize("source", ["cvdp", "starter"])
def test_each_source_has_its_own_rates_with_intervals_and_paired_gain(mixed, source):
    found = run_result(mixed, "both")
    part, rate = found.by_source[source], found.by_source[source].after.pass_at_1
    mean, lo, hi, n = rate_by_hand(mixed, source)
    assert (rate.mean, rate.lo, rate.hi) == pytest.approx((mean, lo, hi))
    assert part.after.record.n_problems == part.gain.n == n
    assert part.after.record.pass_at_k[1] == pytest.approx(mean)
    table = "\n".join(" ".join(row) for row in result.table(Source(mixed, "both")).rows)
    for shown in (text_of(before_after_table(mixed, "both")), table):
        assert f"{100 * mean:.1f} %" in shown
        assert f"[{100 * lo:.1f}, {100 * hi:.1f}]" in shown
    row = f"| student | 12 | heldout, single attempt | {source} | {mean:.3f} | {lo:.3f} to {hi:.3f} | {n} × 4 |"
    assert row in results_table(mixed, "both")


def test_sources_come_first_and_the_total_last_with_a_note(mixed):
    shown = text_of(before_after_table(mixed, "both"))
    places = [shown.index(f"{name}:") for name in ("cvdp", "starter", ALL_SOURCES)]
    assert places == sorted(places)
    assert MIXTURE in shown
    assert "of the teacher's pass@1" not in shown
    whole = run_result(mixed, "both").after.pass_at_1
    assert f"{100 * whole.mean:.1f} %" in shown[places[-1] :]


def test_a_run_with_one_source_has_no_rows_by_source(mixed):
    shown = text_of(before_after_table(mixed, "one"))
    assert ALL_SOURCES not in shown
    assert "starter:" not in shown
    assert "of the teacher's pass@1" in shown


def test_a_narrow_terminal_shows_all_numbers_of_a_mixture(mixed):
    narrow = text_of(before_after_table(mixed, "both"), 80)
    assert "…" not in narrow
    assert all(len(line.rstrip()) <= 80 for line in narrow.splitlines())


def test_two_runs_are_compared_source_by_source(mixed):
    table = compare.table([Source(mixed, "both"), Source(mixed, "one")])
    assert [row[:2] for row in table.rows] == [
        ["cvdp", "both"], ["starter", "both"], ["starter", "one"], [ALL_SOURCES, "both"], [ALL_SOURCES, "one"],
    ]  # fmt: skip
    shared = {tuple(row[:2]): row[-2] for row in table.rows}
    assert shared["starter", "one"] == str(rate_by_hand(mixed, "starter")[3])
    assert shared[ALL_SOURCES, "one"] == "16"
    for renderable in comparison(mixed, ["both", "one"]):
        assert "Traceback" not in text_of(renderable)


@pytest.mark.slow
def test_a_problem_that_changed_between_two_runs_is_not_compared(tmp_path):
    path = tmp_path / "h.duckdb"
    for run, gain in (("first", 0.6), ("other", 0.3)):
        synthetic.write_run(path, run, synthetic.Shape(), gain=gain)
    with duckdb.connect(path) as con:
        heldout = "FROM run_problems WHERE run = 'other' AND split = 'heldout'"
        _, *changed = (
            name for (name,) in con.execute(f"SELECT problem_id {heldout}").fetchall()
        )
        con.execute(
            "UPDATE run_problems SET fingerprint = 'ab' WHERE run = 'other' AND problem_id IN ?",
            [changed],
        )
    *_, differences = comparison(History(path), ["first", "other"])
    table = compare.table([Source(History(path), "first"), Source(History(path), "other")])
    assert [row[-2] for row in table.rows] == ["–", "1"]
    assert f"are not compared: {len(changed)}, such as {min(changed)}, " in table.caption
    assert not any(name in text_of(differences) for name in changed)


def test_the_headline_names_each_source(mixed, tmp_path):
    said = headline(run_result(mixed, "both"))
    assert " on cvdp, " in said
    assert said.endswith(" on starter")
    assert f"{100 * rate_by_hand(mixed, 'cvdp')[0]:.1f}" in said
    page = write_report(mixed, ["both"], tmp_path / "report.html").read_text()
    assert said in page
    assert "cvdp: student after" in page
