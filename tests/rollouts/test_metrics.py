"""Metrics of a train step."""

import pytest

from rtl_core.history.records import StoredRollout
from rtl_core.learning.credit import Credit
from rtl_core.learning.reward import Reward
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.metrics import batch_metrics
from rtl_core.types.verdict import Outcome
from tests.nouns import a_rollout, a_verdict


def test_entropy_is_the_mean_over_all_sampled_tokens_including_copies_and_groups_without_signal():
    batch = Batch("train", epoch=0, step=0, policy_step=0, problem_ids=("a", "b"), group_size=4)
    # Group a: three copies and one other answer; group b: only copies, none with an advantage.
    for problem, own in (("a", (0.0, 0.0, 0.0, -0.8)), ("b", (-0.1, -0.1, -0.1, -0.1))):
        for sample, logprob in enumerate(own):
            # The last token is from a tool and does not count.
            tokens = {"tokens_T": (1, 2, 3), "logprobs_T": (logprob, logprob, 0.0), "own_T": (True, True, False)}
            rollout = a_rollout(problem_id=problem, sample=sample, n_turns=1, ended="submitted", **tokens)
            credit = Credit(1.0, 0.0 if problem == "b" else logprob, True)
            batch.add([StoredRollout(rollout, a_verdict(Outcome.PASSED), Reward(total=1.0, terms={}), credit=credit)])
    assert batch_metrics(batch)["optim/entropy"] == pytest.approx((0.8 + 4 * 0.1) / 8)
