"""A short run of the configuration `smollm2`: a warm start, a step of RL with the student as its own teacher, a report."""

import pytest

from rtl_core.history.store import History
from tests.command import run

pytestmark = pytest.mark.slow
SHORT = (
    "problems.sources.0.train=4",
    "problems.sources.0.heldout=1",
    "curriculum.problems_per_step=2",
    "learning.warm_start_steps=1",
    "sampling.group_size=2",
    "sampling.max_tokens=96",
    "evaluation.samples=1",
    "evaluation.k=[1]",
)


def test_weights_warm_start_rl_and_report(smollm2, tmp_path, monkeypatch):
    monkeypatch.setenv("RTL_DISTILL_MODELS", str(smollm2.parent))
    places = (
        f"run.directory={tmp_path}",
        f"run.history={tmp_path / 'h.duckdb'}",
        "run.name=real",
    )
    done = run("train", "smollm2", sets=(*places, *SHORT), cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    history = History(tmp_path / "h.duckdb", read_only=True)
    warm_start, step = history.trained_steps("real")
    assert warm_start.examples == 2
    assert step.examples > 0
    scored = history.query(
        "SELECT hint, teacher, n_prompt, k1_mean FROM teacher_scores"
    ).to_pylist()
    assert len(scored) == 4
    assert {(row["hint"], row["teacher"]) for row in scored} == {("golden", smollm2.name)}
    assert [e.step for e in history.evaluations("real") if e.status == "done"] == [0, 1, 2]
    assert "Over the warm start alone" in done.stdout
    assert (tmp_path / "real" / "report.html").stat().st_size > 100_000
