"""A custom algorithm is one file and trains with the ordinary flow."""

import asyncio

import pytest

from rtl_core.algorithms.base import chosen
from rtl_core.config import load_config
from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from tests.flows.conftest import QUICK

FILE = '''
"""RLOO: each answer against the mean of the others; answers that were cut do not count."""

import numpy as np

from rtl_core.algorithms.grpo import Grpo
from rtl_core.learning.credit import GroupCredit


class Rloo(Grpo):
    """REINFORCE with a leave-one-out baseline (Ahmadian et al. 2024, arXiv:2402.14740): `A_i = R_i - mean_{j != i} R_j`."""

    def credit(self, group):
        rewards_G = group.earned_G
        others_G = (rewards_G.sum() - rewards_G) / (len(rewards_G) - 1)
        return GroupCredit(rewards_G, rewards_G - others_G, ~np.array(group.cut_G))
'''


def test_an_invalid_algorithm_is_refused_before_a_run_is_opened():
    for name, why in (
        (
            "gropo",
            r"no algorithm 'gropo'.*did you mean grpo",
        ),
        ("nowhere:Rloo", "cannot be imported"),
        ("rtl_core.errors:ConfigError", "is no algorithm"),
        ("warm_start", "no advantages"),
        # Without its short name the teacher would not be asked for its distributions.
        (
            "rtl_core.algorithms.distribution_distillation:DistributionDistillation",
            "not asked under this name",
        ),
    ):
        with pytest.raises(ConfigError, match=f"(?s){why}"):
            chosen(load_config("demo", [f"learning.algorithm={name}"], environment={}))


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_an_algorithm_in_one_file_trains_with_the_flow(small_run, tmp_path, monkeypatch):
    from rtl_distill.flows.train import train

    (tmp_path / "rloo_of_mine.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    settings = small_run(
        "own", "learning.algorithm=rloo_of_mine:Rloo", *QUICK, "learning.kl_weight=0.1"
    )
    asyncio.run(train("demo", settings))
    history = History(tmp_path / "history.duckdb")
    different = "SELECT count(DISTINCT (rollouts.problem_id, text)) AS n FROM advantages JOIN rollouts USING (rollout) WHERE counts"
    counted = history.query(
        different + " GROUP BY rollouts.step ORDER BY rollouts.step"
    ).to_pylist()
    assert [step.examples for step in history.trained_steps("own")] == [
        row["n"] for row in counted
    ]
    groups: dict[tuple[int, str], list[dict[str, float]]] = {}
    sql = "SELECT a.step, a.problem_id, w.total, a.reward, a.advantage FROM advantages a JOIN rewards w USING (rollout)"
    for row in history.query(sql).to_pylist():
        groups.setdefault((row["step"], row["problem_id"]), []).append(row)
    assert len(groups) == 4
    for group in groups.values():
        totals = [row["total"] for row in group]
        assert [row["reward"] for row in group] == totals
        expected = [total - (sum(totals) - total) / 2 for total in totals]
        assert [row["advantage"] for row in group] == pytest.approx(expected, abs=1e-12)
