"""Algorithms by source in one train step, and the advantages of GDPO divided over the step."""

import numpy as np
import pytest

from rtl_core.algorithms.base import Group
from rtl_core.algorithms.gdpo import Gdpo
from rtl_core.algorithms.max_rl import MaxRl
from rtl_core.config import load_config
from rtl_core.errors import ConfigError
from rtl_core.history.records import StoredRollout
from rtl_core.learning.reward import Reward
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import (
    algorithm_metrics,
    algorithm_of,
    build_datums,
    compute_credit,
    has_signal,
    signal_share,
)
from tests.nouns import a_rollout

WEIGHTS = {"format": 0.1, "interface": 0.2, "syntax": 0.3, "tests": 1.0}
BY_SOURCE = 'learning.by_source={cvdp = "gdpo", rtl = "max_rl"}'
STAGES = {
    "a": [(1, 1, 1, 1), (1, 0, 1, 0), (1, 0, 0, 0)],  # grpo
    "b": [(1, 1, 1, 1), (1, 0, 1, 0), (0, 0, 0, 0)],  # gdpo
    "c": [(1, 1, 1, 0), (1, 0, 1, 0), (1, 0, 1, 0)],  # gdpo
    "d": [(1, 1, 1, 1), (0, 0, 0, 0), (1, 0, 0, 0)],  # max_rl
    "e": [(1, 1, 0, 0), (1, 1, 0, 0), (1, 1, 0, 0)],  # gdpo, all equal
}
"""Problem -> for each answer, whether it passed each stage."""
ALGORITHMS = {"b": "gdpo", "c": "gdpo", "d": "max_rl", "e": "gdpo"}


def settings(*overrides):
    fixed = ("learning.normalise_std=false", BY_SOURCE)
    return load_config("demo", [*fixed, *overrides], environment={})


def batch(stages=STAGES, weights=WEIGHTS):
    made = Batch("train", 0, 3, 3, tuple(stages), 3, algorithms=ALGORITHMS)
    for number, (problem, answers) in enumerate(stages.items()):
        for sample, values in enumerate(answers):
            terms = {
                n: (w, float(v)) for (n, w), v in zip(weights.items(), values, strict=True)
            }
            total = sum(weight * value for weight, value in terms.values())
            rollout = a_rollout(
                step=3, problem_id=problem, sample=sample, tokens_T=(number, sample + 1), logprobs_T=(-1.0, -1.0)
            )  # fmt: skip
            made.add([StoredRollout(rollout, reward=Reward(total=total, terms=terms))])
    return made


def credited(config, made=None):
    made = made or batch()
    for problem in made.problem_ids:
        compute_credit(made, problem, algorithm_of(config, made, problem))
    return made


def advantages(made, config):
    """Problem -> the first token's advantage of each answer in the datums, in order."""
    names, found = list(made.problem_ids), {}
    for datum in build_datums(made, algorithm_of(config, made), 0.0):
        found.setdefault(names[datum.tokens_T[0]], []).append(datum.inputs["advantages"][0])
    return found


def gdpo_by_hand(problems):
    found = {}
    for problem in problems:
        values_GC = np.array(STAGES[problem], float)
        spread_C = values_GC.std(axis=0)
        spread_C[spread_C == 0] = np.inf
        found[problem] = (values_GC - values_GC.mean(axis=0)) / spread_C @ [*WEIGHTS.values()]
    return found


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_each_problem_is_trained_by_the_algorithm_of_its_source(weight):
    config = settings(f"learning.reward_weight={weight}")
    made = credited(config)
    found = advantages(made, config)
    assert {p: has_signal(made, p) for p in STAGES} == {
        **dict.fromkeys("abcd", True),
        "e": False,
    }
    assert found["a"] == pytest.approx(weight * (np.array([1.6, 0.4, 0.1]) - 0.7))
    assert found["d"] == pytest.approx(weight * (np.array([1.6, 0, 0.1]) / (1.7 / 3) - 1))
    by_hand = gdpo_by_hand("bce")
    divisor = np.concatenate([*by_hand.values()]).std()  # over all answers of this algorithm
    assert found["b"] == pytest.approx(weight * by_hand["b"] / divisor)
    assert found["c"] == pytest.approx(weight * by_hand["c"] / divisor)
    assert algorithm_metrics(made, config) == pytest.approx(
        {
            "algorithm/gdpo/divisor": divisor,
            "algorithm/grpo/answers": 3,
            "algorithm/gdpo/answers": 9,
            "algorithm/max_rl/answers": 3,
        }
    )
    assert signal_share(made, config, 0.0) == 0.0


def test_a_step_without_differences_has_no_divisor_and_no_data():
    config = settings()
    made = credited(config, batch({"e": STAGES["e"]}))
    assert algorithm_metrics(made, config) == {"algorithm/gdpo/answers": 3}
    assert advantages(made, config) == {}


def test_a_group_of_equal_totals_with_a_signal_in_its_terms_is_kept():
    stages = {"b": [(1, 0), (0, 1), (0, 1)], "a": [(1, 0), (0, 1), (0, 1)]}
    made = credited(settings(), batch(stages, {"format": 0.5, "interface": 0.5}))
    assert (has_signal(made, "b"), has_signal(made, "a")) == (False, False)
    stages = {
        "b": [(1, 0, 0), (0, 0.5, 0.5), (0, 1, 0)],
        "a": [(1, 0, 0), (0, 0.5, 0.5), (0, 1, 0)],
    }
    made = credited(
        settings(), batch(stages, dict.fromkeys(("format", "interface", "syntax"), 0.5))
    )
    assert (has_signal(made, "b"), has_signal(made, "a")) == (True, False)


def test_permuted_advantages_keep_their_values_and_lose_their_answers():
    config = settings("learning.permute_advantages=true")
    made = credited(config)
    plain = advantages(made, settings())
    shuffled = advantages(made, config)
    # An answer without a signal may be given one, so the datums of both differ in their answers.
    values = [
        sorted(round(float(v), 5) for vs in f.values() for v in vs if v)
        for f in (plain, shuffled)
    ]
    assert values[0] == values[1]
    assert shuffled != plain


def test_terms_without_a_weight_and_missing_terms_are_left_out():
    rollouts = [a_rollout(sample=i) for i in range(2)]
    terms = [{"tests": (1.0, 1.0), "tests_fraction": (0.0, 0.3)}, {}]
    group = Group(
        [
            StoredRollout(r, reward=Reward(total=0, terms=t))
            for r, t in zip(rollouts, terms, strict=True)
        ]
    )
    values_GC, weights_C = group.components
    assert (values_GC.tolist(), weights_C.tolist()) == ([[1.0], [0.0]], [1.0])


@pytest.mark.parametrize("cls", [Gdpo, MaxRl])
def test_a_group_of_one_answer_has_no_advantage(cls):
    group = Group(
        [StoredRollout(a_rollout(), reward=Reward(total=1.0, terms={"tests": (1.0, 1.0)}))]
    )
    assert cls(settings()).credit(group).advantages_G.tolist() == [0.0]


def test_an_unknown_algorithm_is_refused_with_its_source():
    from rtl_core.algorithms.base import chosen

    config = load_config("demo", ['learning.by_source={starter = "gdop"}'], environment={})
    with pytest.raises(
        ConfigError,
        match=r"(?s)learning.by_source.starter: there is no algorithm 'gdop'.*did you mean gdpo",
    ):
        chosen(config)
    with pytest.raises(
        ConfigError, match=r"learning.by_source.starter: warm_start has no advantages"
    ):
        chosen(
            load_config("demo", ['learning.by_source={starter = "warm_start"}'], environment={})
        )
