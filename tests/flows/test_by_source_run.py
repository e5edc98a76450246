"""A run with two algorithms, each for the problems of a source: recorded credit, replacement, and a resumed run."""

import asyncio
import json
from collections import defaultdict

import numpy as np
import pytest

from rtl_core.history.named_queries import named_query
from rtl_core.history.store import History
from rtl_core.starter import BY_NAME, starter_specs
from rtl_core.starter.record import record_of
from rtl_core.view.tokens import overlays

CREDIT = """
SELECT a.step, a.problem_id, p.source, a.rollout, a.advantage, list(w.weight ORDER BY w.term) AS weights, list(w.value ORDER BY w.term) AS values
FROM advantages a JOIN reward_terms w USING (rollout) JOIN run_problems p ON p.run = a.run AND p.problem_id = a.problem_id
WHERE a.run = 'mixed' GROUP BY ALL ORDER BY a.rollout
"""
METRICS = (
    "SELECT step, name, value FROM step_metrics WHERE run = 'mixed' AND name LIKE 'algorithm/%'"
)


def by_hand(source, weights_C, values_GC):
    if source == "cvdp":
        spread_C = values_GC.std(axis=0)
        spread_C[spread_C == 0] = np.inf
        return (values_GC - values_GC.mean(axis=0)) / spread_C @ weights_C
    rewards_G = values_GC @ weights_C
    mean = rewards_G.mean()
    return (rewards_G - mean) / mean if mean else np.zeros(len(rewards_G))


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_each_source_is_credited_by_its_algorithm_also_after_a_resume(small_run, tmp_path):
    from rtl_distill.flows.train import train

    records = [record_of(BY_NAME[s.family], s) for s in starter_specs("train", 3, seed=7)]
    file = tmp_path / "cvdp.jsonl"
    file.write_text(
        "".join(json.dumps({**r, "id": f"other_{n}"}) + "\n" for n, r in enumerate(records))
    )
    sources = (
        "[{kind = 'starter', train = 3, heldout = 1}, {kind = 'cvdp', path = '"
        + str(file)
        + "', heldout_fraction = 0.0}]"
    )
    keys = [key for key in small_run("mixed") if not key.startswith("problems.sources.")]
    settings = [
        *keys, f"problems.sources={sources}", "curriculum.problems_per_step=6", "sampling.group_size=4",
        "learning.algorithm=max_rl", 'learning.by_source={cvdp = "gdpo"}', "learning.normalise_std=false", "learning.kl_weight=0",
        "learning.final_kl_weight=0", "evaluation.teacher=false", "evaluation.samples=1", "evaluation.k=[1]", "run.epochs=1",
    ]  # fmt: skip
    asyncio.run(train("demo", settings))
    asyncio.run(train("demo", [*settings, "run.epochs=2"]))

    history = History(tmp_path / "history.duckdb")
    steps = history.trained_steps("mixed")
    assert len(steps) == 2
    groups = defaultdict(list)
    for row in history.query(CREDIT).to_pylist():
        groups[row["step"], row["source"], row["problem_id"]].append(row)
    trained, answers = defaultdict(list), defaultdict(int)
    for (step, source, _), rows in groups.items():
        expected = by_hand(
            source, np.array(rows[0]["weights"]), np.array([r["values"] for r in rows])
        )
        assert [row["advantage"] for row in rows] == pytest.approx(expected, abs=1e-9)
        trained[step, source] += [row["advantage"] for row in rows]
        answers[step, source] += len(rows)
    assert {source for _, source, _ in groups} == {"starter", "cvdp"}
    assert any(abs(a) > 0.1 for values in trained.values() for a in values)
    recorded = {
        (row["step"], row["name"]): row["value"] for row in history.query(METRICS).to_pylist()
    }
    for step in (0, 1):
        assert recorded[step, "algorithm/gdpo/answers"] == answers[step, "cvdp"]
        assert recorded[step, "algorithm/max_rl/answers"] == answers[step, "starter"]
        spread = np.std(trained[step, "cvdp"])
        assert recorded.get((step, "algorithm/gdpo/divisor"), 0.0) == pytest.approx(spread)

    # The view shows what was trained on, after the division.
    for rows in groups.values():
        stored = history.find_rollout(rows[0]["rollout"])
        metrics = {"learning/kl_weight": 0.0} | {
            name: value for (step, name), value in recorded.items() if step == rows[0]["step"]
        }
        divisor = metrics["algorithm/gdpo/divisor"] if rows[0]["source"] == "cvdp" else 1.0
        shown_T = overlays(history, stored, metrics)["advantage"].values
        assert shown_T == pytest.approx(rows[0]["advantage"] / divisor, abs=1e-6)

    query = named_query("algorithms")
    rows = history.query(query.sql, query.bind({}, "mixed")).to_pylist()
    named = {(row["epoch"], row["source"]): row["algorithm"] for row in rows}
    assert named == {
        (e, s): a for e in (1, 2) for s, a in (("cvdp", "gdpo"), ("starter", "max_rl"))
    }
    assert sum(row["answers"] for row in rows) == sum(answers.values())
