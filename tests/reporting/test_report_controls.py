"""Figures on the health of a run and its controllers agree with the database."""

import numpy as np
import pytest

from rtl_core.history.records import StepRecord
from rtl_core.history.store import History
from rtl_core.reporting.report import write_report
from rtl_grader.types.verdict import Outcome
from tests import synthetic
from tests.reporting.chromium import browser
from tests.reporting.report_tab import cells, open_whole, traces

STEPS = 6


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """A run with pools, a controlled λ, staleness, safe ranges, an evaluation halfway, and two regradings."""
    path = tmp_path_factory.mktemp("controls") / "h.duckdb"
    limits = {"optim/entropy": {"min": 0.02}, "env/all/truncated": {"min": None, "max": 0.25}}
    shape = synthetic.Shape(steps=STEPS, train=12, heldout=6)
    history = synthetic.write_run(path, shape=shape)
    run = history.existing_run("demo")
    history.start_run(
        run.model_copy(
            update={"config": {**run.config, "health": {"ranges": limits, "patience": 2}}}
        )
    )
    for step in range(STEPS):
        metrics = {
            "learning/kl_weight": 0.5 + 0.1 * step, "teacher_kl": 0.3 - 0.02 * step, "optim/entropy": 0.05 - 0.01 * step,
            "optim/kl_sample_train_v1": 0.001, "env/all/truncated": 0.1 * (step % 4), "env/all/duplicates": 0.05 * step,
            "groups/no_signal": 0.5, "groups/replaced": float(step % 2), "groups/quarantined": 0.0, "staleness/mean": 0.5 * (step > 0),
            "staleness/max": float(step > 0), "curriculum/easy": 2.0 + step, "curriculum/normal": 9.0 - step, "curriculum/hard": 1.0,
            "curriculum/resting": float(step % 3),
        }  # fmt: skip
        times = {"sample": 1.0, "store": 0.1, "store_waited": 0.02, "total": 2.0}
        place = {
            "run": "demo",
            "epoch": 0,
            "step": step,
            "state_path": "s",
            "sampler_path": "p",
        }
        history.finish_step(
            StepRecord(**place, examples=6, train_tokens=300, times=times, metrics=metrics)
        )
    heldout = [synthetic.problem(i, "heldout") for i in range(6)]
    synthetic.evaluate(
        history, "demo", shape, heldout, "student", 3, 0.4, np.random.default_rng(3)
    )
    stored = history.rollouts_of("demo", 5)
    same = [(s.rollout.key, s.verdict) for s in stored]
    history.record_regrades("same", same)
    other = [
        (k, v.model_copy(update={"outcome": Outcome.TIMEOUT}) if v.passed else v)
        for k, v in same
    ]
    history.record_regrades("other", other)
    return history


@pytest.fixture(scope="module")
def page(history, tmp_path_factory):
    path = write_report(history, ["demo"], tmp_path_factory.mktemp("page") / "report.html")
    with browser() as tab:
        open_whole(tab, path)
        yield tab


def recorded(history: History, name: str) -> list[float]:
    sql = "SELECT value FROM step_metrics WHERE run = 'demo' AND name = ? ORDER BY step"
    return history.query(sql, [name]).column(0).to_pylist()


@pytest.mark.parametrize(
    ("figure", "trace", "metric"),
    [
        ("kl-weight", "λ", "learning/kl_weight"),
        ("kl-weight", "teacher KL", "teacher_kl"),
        ("groups", "repeated answers", "env/all/duplicates"),
        ("staleness", "mean", "staleness/mean"),
        ("staleness", "oldest", "staleness/max"),
        ("pools", "easy", "curriculum/easy"),
        ("pools", "normal", "curriculum/normal"),
        ("pools", "hard", "curriculum/hard"),
        ("pools", "resting", "curriculum/resting"),
        ("health", "Sampler against trainer", "optim/kl_sample_train_v1"),
        ("entropy", "Entropy", "optim/entropy"),
    ],
)
def test_each_figure_shows_what_the_steps_recorded(page, history, figure, trace, metric):
    shown = traces(page, figure)[trace]
    assert shown["x"] == list(range(STEPS))
    assert shown["y"] == pytest.approx(recorded(history, metric))


def test_safe_ranges_count_the_steps_outside(page, history):
    found = {row[0]: row[1:] for row in cells(page, "safe-ranges")}
    entropy = recorded(history, "optim/entropy")
    assert found["optim/entropy"] == [
        "0.02 to ∞", f"{entropy[-1]:.4g}", f"{min(entropy):.4g}", f"{max(entropy):.4g}",
        f"{sum(v < 0.02 for v in entropy)} of {STEPS}",
    ]  # fmt: skip
    truncated = recorded(history, "env/all/truncated")
    assert found["env/all/truncated"][0] == "−∞ to 0.25"
    assert found["env/all/truncated"][-1] == f"{sum(v > 0.25 for v in truncated)} of {STEPS}"


def test_groups_that_were_set_aside_are_counted(page):
    assert [row[1:] for row in cells(page, "set-aside")] == [["3", "3", "5"]]


def test_the_learning_curve_shows_the_evaluations(page, history):
    shown = traces(page, "held-out")["student"]
    found = [
        (e.step, e.pass_at_1) for e in history.evaluations("demo") if e.policy == "student"
    ]
    assert list(zip(shown["x"], shown["y"], strict=True)) == found


def test_regradings_count_changed_verdicts(page, history):
    stored = history.rollouts_of("demo", 5)
    graded, passed = str(len(stored)), str(sum(s.verdict.passed for s in stored))
    assert passed != "0"
    found = {row[0]: row[1:5] for row in cells(page, "regrades")}
    assert found == {
        "same": [graded, "0", passed, passed],
        "other": [graded, passed, passed, "0"],
    }


def test_the_time_table_has_the_total_and_the_waiting_time_of_store(page):
    found = {row[0]: row[-1] for row in cells(page, "time-table")}
    assert (found["store"], found["store waited"], found["total"]) == ("5.0%", "1.0%", "100.0%")


def test_the_page_has_no_errors_and_unique_ids(page):
    assert page.complaints() == []
    ids = page.js("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
