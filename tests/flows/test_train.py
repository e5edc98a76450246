"""A small run of the complete train flow: real Prefect, Tinker protocol, simulators and database."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from tests.flows.test_flow_run_log import ours_in_log

pytestmark = pytest.mark.usefixtures("prefect")


def holder_of(folder: Path) -> dict[str, Any]:
    """What the run's lock stores about its last flow run."""
    return json.loads((folder / "lock").read_text())


def count(history: History, sql: str) -> int:
    return history.query(sql).to_pylist()[0]["n"]


def test_a_run_grades_scores_and_trains_every_rollout_and_a_repeat_does_nothing(
    small_run, tmp_path, caplog
):
    from rtl_distill.flows.train import train

    looking = ("learning.doubtful=mask", "learning.doubtful_share=10")
    report = asyncio.run(train("demo", small_run("small", *looking)))
    assert Path(report).stat().st_size > 100_000
    history = History(tmp_path / "history.duckdb")
    assert (
        count(history, "SELECT count(*) AS n FROM rollouts WHERE purpose = 'train'")
        == 2 * 2 * 2 * 3
    )
    assert count(
        history, "SELECT count(*) AS n FROM rollouts WHERE purpose = 'evaluation'"
    ) == 3 * (3 * 2)
    assert (
        count(history, "SELECT count(*) AS n FROM rollouts ANTI JOIN verdicts USING (rollout)")
        == 0
    )
    scored = "SELECT count(*) AS n FROM rollouts ANTI JOIN teacher_scores USING (rollout) WHERE purpose = 'train'"
    assert count(history, scored) == 0
    passes = "SELECT rollout, result FROM verdicts LEFT JOIN audits USING (rollout) WHERE outcome = 'passed' AND verdicts.purpose = 'train'"
    assert {row["result"] for row in history.query(passes).to_pylist()} <= {"equal", "same"}, (
        "each was audited"
    )
    unvalidated = "SELECT count(*) AS n FROM rollouts JOIN run_problems USING (run, problem_id) ANTI JOIN validations USING (fingerprint)"
    assert count(history, unvalidated) == 0
    assert [state.status for state in history.steps("small")] == ["trained"] * 4
    evaluations = {(e.policy, e.step): e for e in history.evaluations("small")}
    assert set(evaluations) == {("student", 0), ("teacher", 0), ("student", 4)}
    assert all(e.lo <= e.pass_at_1 <= e.hi for e in evaluations.values())
    record = history.run("small")
    assert record is not None
    assert record.status == "finished"
    lines = ours_in_log(
        holder_of(tmp_path / "small")["flow_run"],
        lambda lines: any("report:" in x for x in lines),
    )
    assert [line[:10] for line in lines if line.startswith("step ")] == [
        f"step   {n}/4" for n in range(1, 5)
    ]
    assert [line for line in lines if line.startswith("== epoch")] == [
        "== epoch 1 of 2",
        "== epoch 2 of 2",
    ]
    assert sum("Run small: held-out problems" in line for line in lines) == 1

    before = history.query("SELECT * FROM rollouts ORDER BY ALL")
    states = history.steps("small")
    asyncio.run(train("demo", small_run("small", *looking)))
    assert history.run("small").finished_at == record.finished_at
    assert "continues after step 4; before, the run was finished" in caplog.messages
    assert history.query("SELECT * FROM rollouts ORDER BY ALL").equals(before)
    assert history.steps("small") == states


@pytest.mark.slow
def test_an_existing_run_refuses_another_reward_and_takes_more_or_fewer_epochs(
    small_run, tmp_path, caplog
):
    from rtl_distill.flows.train import train

    asyncio.run(train("demo", small_run("fixed", "run.epochs=1", "evaluation.teacher=false")))
    changed = small_run(
        "fixed", "run.epochs=1", "evaluation.teacher=false", "reward.weights={tests = 1.0}"
    )
    with pytest.raises(ConfigError, match=r"(?s)reward\.weights: was .*--accept-changes"):
        asyncio.run(train("demo", changed))
    # More epochs are allowed.
    asyncio.run(train("demo", small_run("fixed", "evaluation.teacher=false")))
    history = History(tmp_path / "history.duckdb")
    assert len(history.steps("fixed")) == 4
    # With fewer, the weights of the last step are still the result.
    with caplog.at_level("INFO", logger="rtl_distill"):
        asyncio.run(
            train("demo", small_run("fixed", "run.epochs=1", "evaluation.teacher=false"))
        )
    assert (
        "run.epochs is 1; the run has been trained in epoch 2 already, so no step is left"
        in caplog.messages
    )


@pytest.mark.slow
def test_an_evaluation_prevented_by_a_crash_is_made_when_the_run_resumes(
    small_run, tmp_path, monkeypatch
):
    from rtl_distill.flows import train as module

    overrides = small_run(
        "gap", "run.epochs=1", "evaluation.every=1", "evaluation.teacher=false"
    )
    evaluate = module.evaluate_policy

    async def crash(session, plan, *more):
        if plan.step == 1:
            raise RuntimeError("as if killed here")
        await evaluate(session, plan, *more)

    with monkeypatch.context() as patched:
        patched.setattr(module, "evaluate_policy", crash)
        with pytest.raises(RuntimeError, match="as if killed"):
            asyncio.run(module.train("demo", overrides))
    history = History(tmp_path / "history.duckdb")
    assert [state.status for state in history.steps("gap")] == ["trained", "planned"]
    assert [e.step for e in history.evaluations("gap")] == [0]
    asyncio.run(module.train("demo", overrides))
    assert [state.status for state in history.steps("gap")] == ["trained", "trained"]
    assert sorted(e.step for e in history.evaluations("gap") if e.status == "done") == [0, 1, 2]
