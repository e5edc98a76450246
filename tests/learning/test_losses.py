"""The losses of a train step against their formulas in numpy; prompt tokens are sent with zeros, which may have no gradient.

That a backend computes a loss with its parameters is tested in tests/backend/test_backend_conformance.py.
"""

import numpy as np
import pytest
import torch

from rtl_core.learning.losses import LOSSES, policy_losses


@pytest.mark.parametrize(("low", "high"), [(None, None), (0.95, 1.01)])
@pytest.mark.parametrize(
    ("name", "bounds"), [("importance_sampling", None), ("ppo", (0.8, 1.2)), ("cispo", (0.0, 4.0))]
)
def test_a_loss_follows_its_formula(name, bounds, low, high):
    given = {} if bounds is None or low is None else {"clip_low_threshold": low, "clip_high_threshold": high}
    rng = np.random.default_rng(3)
    logp, sampled, a = rng.normal(-2, 1, 50), rng.normal(-2, 1, 50), rng.normal(0, 1, 50)
    ratio = np.exp(logp - sampled)
    clipped = np.clip(ratio, *(tuple(given.values()) or bounds or (0, 0)))
    by_hand = {
        "importance_sampling": -ratio * a,
        "ppo": -np.minimum(ratio * a, clipped * a),
        "cispo": -clipped * logp * a,
    }
    inputs = {"logprobs": torch.from_numpy(sampled), "advantages": torch.from_numpy(a)}
    found = LOSSES[name].function(torch.from_numpy(logp), inputs, {**LOSSES[name].parameters, **given})
    np.testing.assert_allclose(found, by_hand[name])


@pytest.mark.parametrize("name", LOSSES)
def test_zero_is_silent_tells_whether_a_token_of_zeros_has_a_gradient(name):
    one = LOSSES[name]
    logp = torch.tensor([-1.0, -2.5], requires_grad=True)
    zeros = torch.zeros(2)
    inputs = dict.fromkeys(one.required or one.optional, zeros)
    one.function(logp, inputs, one.parameters).sum().backward()
    assert bool((logp.grad == 0).all()) is one.zero_is_silent


def test_losses_of_rl_steps_do_not_train_on_the_prompt():
    assert policy_losses() == ["importance_sampling", "ppo", "cispo"]
