"""Options of the training loop in complete runs: the epoch flow with a real service, simulators and database."""

import pytest

from rtl_core.errors import RunHealthError
from rtl_core.history.store import History
from rtl_core.learning.schedule import controlled_weight
from tests.flows.conftest import QUICK

pytestmark = pytest.mark.slow

HEALTH = 'health.ranges={"optim/entropy" = {min = 100.0}}'
"""A range that every run violates."""


def metrics(history: History, run: str) -> list[dict[str, float]]:
    """Metrics of each step, in order."""
    table = history.query(
        "SELECT step, name, value FROM step_metrics WHERE run = ? ORDER BY step", [run]
    ).to_pylist()
    steps: dict[int, dict[str, float]] = {}
    for row in table:
        steps.setdefault(row["step"], {})[row["name"]] = row["value"]
    return list(steps.values())


def test_a_run_with_staleness_pools_and_a_target_kl_resumes_where_it_stopped(
    small_run, tmp_path, train
):
    def settings(name):
        return small_run(
            name,
            *QUICK,
            "problems.sources.0.train=8",
            "learning.staleness=1",
            "learning.kl_weight=0.1",
            "learning.kl_schedule=target",
            "learning.kl_target=0.2",
            "learning.kl_gain=0.5",
            "curriculum.order=pools",
            "curriculum.rest_after=1",
            "curriculum.measure_samples=1",
            "tinker.local_deterministic=true",
        )

    train(settings("calm"))
    history = History(tmp_path / "history.duckdb")
    steps = metrics(history, "calm")
    assert len(steps) == 4

    behind = history.query(
        "SELECT DISTINCT step, policy_step FROM rollouts WHERE run = 'calm' AND purpose = 'train'"
    )
    assert {(row["step"], row["policy_step"]) for row in behind.to_pylist()} == {
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 2),
    }
    assert [step["staleness/max"] for step in steps] == [0, 1, 1, 1]

    # The total times of overlapping steps do not overlap.
    ends = history.query(
        "SELECT epoch(trained_at) AS at FROM steps WHERE run = 'calm' ORDER BY step"
    )["at"].to_pylist()
    for before, after, step in zip(ends, ends[1:], steps[1:], strict=False):
        assert step["time/total"] <= after - before + 0.01

    weights = [step["learning/kl_weight"] for step in steps]
    expected = [0.1]
    for step in steps[:-1]:
        expected.append(
            controlled_weight(
                expected[-1], step["teacher_kl"], 0.2, gain=0.5, lowest=1e-3, highest=10.0
            )
        )
    assert weights == pytest.approx(expected)
    assert len(set(weights)) > 1

    assert all(len(state.problem_ids) == 2 for state in history.steps("calm"))
    pools = [
        [step[f"curriculum/{pool}"] for pool in ("easy", "normal", "hard", "resting")]
        for step in steps
    ]
    assert all(sum(counts) == 8 for counts in pools)
    measured = "SELECT policy, count(*) AS n FROM rollouts WHERE run = 'calm' AND purpose = 'measurement' GROUP BY ALL"
    assert {row["policy"]: row["n"] for row in history.query(measured).to_pylist()} == {
        "student": 8,
        "teacher": 8,
    }

    # The same run, stopped after its second step with the third prepared: problems, λ and answers are the same.
    ends = (HEALTH, "health.patience=1", "health.accept_up_to_step=1")
    with pytest.raises(RunHealthError, match="after step 2"):
        train([*settings("twice"), *ends])
    assert [state.status for state in history.steps("twice")] == [
        "trained",
        "trained",
        "planned",
        "planned",
    ]
    ungraded = "SELECT r.step, count(*) AS n, count(v.rollout) AS graded FROM rollouts r LEFT JOIN verdicts v USING (rollout) WHERE r.run = 'twice' AND r.step > 1 GROUP BY r.step"
    assert history.query(ungraded).to_pylist() == [{"step": 2, "n": 6, "graded": 6}]
    train(settings("twice"))
    assert [state.problem_ids for state in history.steps("twice")] == [
        s.problem_ids for s in history.steps("calm")
    ]
    twin = metrics(history, "twice")
    assert [step["learning/kl_weight"] for step in twin] == pytest.approx(weights)
    assert [step["env/all/reward/total"] for step in twin] == [
        step["env/all/reward/total"] for step in steps
    ]


def test_a_golden_warm_start_a_kl_that_falls_to_0_and_replacements_of_groups_with_equal_rewards(
    small_run, tmp_path, train
):
    train(
        small_run(
            "alone",
            *QUICK,
            "problems.sources.0.train=12",
            # λ of the six steps: 0.2, 0.15, 0.1, 0.05, 0, 0.
            "learning.kl_weight=0.2",
            "learning.kl_schedule=linear",
            "learning.kl_schedule_part=0.8",
            "learning.replacements=2",
            "learning.replace_with_kl=true",
            "learning.warm_start_steps=2",
            "learning.warm_start_source=golden",
            # Nearly always equal rewards: most groups teach nothing.
            "reward.weights={syntax = 1.0}",
            "learning.truncated=mask",
            "learning.loss=ppo",
        )
    )
    history = History(tmp_path / "history.duckdb")
    steps = metrics(history, "alone")
    assert len(steps) == 6
    assert [step["warm_start/examples"] for step in steps[:2]] == [2, 2]
    # A wrong format or a missing end token would cost several nats.
    assert all(0 < step["warm_start/nll"] < 0.5 for step in steps[:2])
    assert history.query(
        "SELECT count(*) AS n FROM rollouts WHERE purpose = 'train' AND step < 2"
    ).to_pylist() == [{"n": 0}]
    scored = "SELECT r.step, count(t.rollout) = count(*) AS every, count(t.rollout) = 0 AS none FROM rollouts r LEFT JOIN teacher_scores t USING (rollout) WHERE r.purpose = 'train' GROUP BY ALL ORDER BY ALL"
    assert [
        (row["step"], row["every"], row["none"]) for row in history.query(scored).to_pylist()
    ] == [
        (2, True, False),
        (3, True, False),
        (4, False, True),
        (5, False, True),
    ]

    planned = {state.step: state.problem_ids for state in history.steps("alone")}
    replaced = 0
    for number, step in enumerate(steps[2:], 2):
        sql = "SELECT problem_id, max(total) - min(total) AS spread FROM rewards WHERE step = ? AND purpose = 'train' GROUP BY ALL"
        spreads = {
            row["problem_id"]: row["spread"] for row in history.query(sql, [number]).to_pylist()
        }
        silent = {problem_id for problem_id, spread in spreads.items() if spread < 1e-9}
        assert set(planned[number]) <= set(spreads)
        # Only groups that taught nothing were replaced, up to twice.
        assert len(spreads) - 2 == step["groups/replaced"] <= 4
        assert len(spreads) - len(silent) == 2 or step["groups/replaced"] >= 2
        assert step["groups/no_signal"] == pytest.approx(len(silent) / len(spreads))
        assert step["learning/kl_weight"] == pytest.approx({2: 0.1, 3: 0.05}.get(number, 0.0))
        replaced += int(step["groups/replaced"])
    assert replaced


def test_a_run_out_of_its_safe_range_stops_saved_and_resumes_when_accepted(
    small_run, tmp_path, train
):
    def settings(*more):
        return small_run(
            "ill", *QUICK, "problems.sources.0.train=6", HEALTH, "health.patience=1", *more
        )

    history = History(tmp_path / "history.duckdb")
    for _ in range(2):  # and again, before anything is sampled
        with pytest.raises(
            RunHealthError, match=r"(?s)optim/entropy .* 100 to ∞.*health.accept_up_to_step=1"
        ):
            train(settings())
        assert [state.status for state in history.steps("ill")] == [
            "trained",
            "planned",
            "planned",
        ]
        record = history.run("ill")
        assert record is not None
        assert record.status == "failed"
    with pytest.raises(RunHealthError, match="accept_up_to_step=2"):
        train(settings("health.accept_up_to_step=1"))
    train(settings("health.accept_up_to_step=3"))
    assert [state.status for state in history.steps("ill")] == ["trained"] * 3
