"""What a step measures of its batch."""

import pytest

from rtl_core.history.records import StoredRollout
from rtl_core.learning.credit import Credit
from rtl_core.learning.reward import Reward
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.metrics import batch_metrics
from rtl_core.types.verdict import Outcome
from tests.nouns import a_rollout, a_verdict


def test_the_entropy_is_that_of_every_sampled_token_also_of_copies_and_of_groups_that_teach_nothing():
    batch = Batch("train", epoch=0, step=0, policy_step=0, problem_ids=("a", "b"), group_size=4)
    # Group a: three copies and one other answer; group b: copies alone, none of which has an advantage.
    for problem, own in (("a", (0.0, 0.0, 0.0, -0.8)), ("b", (-0.1, -0.1, -0.1, -0.1))):
        for sample, logprob in enumerate(own):
            # A tool gave the last token, which counts nowhere.
            tokens = {"tokens_T": (1, 2, 3), "logprobs_T": (logprob, logprob, 0.0), "own_T": (True, True, False)}
            rollout = a_rollout(problem_id=problem, sample=sample, n_turns=1, ended="submitted", **tokens)
            credit = Credit(1.0, 0.0 if problem == "b" else logprob, True)
            batch.add([StoredRollout(rollout, a_verdict(Outcome.PASSED), Reward(total=1.0, terms={}), credit=credit)])
    assert batch_metrics(batch)["optim/entropy"] == pytest.approx((0.8 + 4 * 0.1) / 8)
