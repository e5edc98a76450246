"""The page of a large run stays small, and says what it omits."""

import pytest

from rtl_core.history.store import History
from rtl_core.reporting import rollouts
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.figures import learning, progress, sections
from rtl_core.reporting.report import write_report
from tests import synthetic
from tests.reporting.chromium import browser


def test_a_sample_is_reproducible_and_contains_every_outcome(demo, tmp_path, monkeypatch):
    monkeypatch.setattr(rollouts, "MOST_ROLLOUTS", 60)
    found = rollouts.sample(demo, "demo")
    assert found == rollouts.sample(demo, "demo")
    assert (found["shown"], found["total"]) == (60, 480)
    outcomes = (
        demo.query("SELECT DISTINCT outcome FROM verdicts WHERE run = 'demo'")
        .column(0)
        .to_pylist()
    )
    assert {r["outcome"] for r in found["rollouts"]} == set(outcomes)
    page = write_report(demo, ["demo"], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "60 of 480 graded rollouts" in page


def test_long_texts_are_cut_and_the_sum_is_limited(demo, monkeypatch):
    monkeypatch.setattr(rollouts, "MOST_TEXT", 20)
    assert all(
        "more characters" in r["text"] for r in rollouts.sample(demo, "demo")["rollouts"]
    )
    monkeypatch.setattr(rollouts, "MOST_BYTES", 2_000)
    few = rollouts.sample(demo, "demo")
    assert 5 < few["shown"] < 60


def test_curves_of_long_runs_have_a_limited_number_of_points(demo, monkeypatch):
    monkeypatch.setattr(progress, "ROWS", 10)
    figures = {b.id: b for s in sections(demo, ["demo"]) for b in s.blocks}
    heat = figures["curriculum"]
    assert len(heat.data[0]["x"]) == 10
    assert "10 of 24 problems are shown" in heat.caption
    monkeypatch.setattr(Source, "width", lambda source, most=40: 5)
    times = learning.outcomes(Source(demo, "demo"))
    assert {tuple(trace["x"]) for trace in times.data} == {(2.0, 7.0, 12.0)}


@pytest.mark.slow
def test_twenty_thousand_rollouts_stay_under_15_megabytes(tmp_path):
    shape = synthetic.Shape(
        steps=100, per_step=25, samples=8, train=400, heldout=64, steps_per_epoch=16
    )
    history: History = synthetic.write_run(tmp_path / "h.duckdb", "large", shape)
    assert (
        history.query("SELECT count(*) AS n FROM rollouts").column(0).to_pylist()[0] >= 20_000
    )
    path = write_report(history, ["large"], tmp_path / "large.html")
    assert path.stat().st_size < 15_000_000
    with browser() as page:
        page.open(path)
        page.wait("document.querySelectorAll('.plot[data-drawn=yes]').length >= 2")
        assert page.complaints() == []
        assert (
            int(page.js("document.querySelectorAll('#rows tr').length"))
            <= rollouts.MOST_ROLLOUTS
        )
