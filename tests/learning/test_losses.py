"""The losses of a train step against their formulas in numpy; prompt tokens are sent with zeros, which may have no gradient.

That a backend computes a loss with its parameters is tested in tests/backend/test_backend_conformance.py.
"""

import numpy as np
import pytest
import torch

from localtinker.losses import LOSSES, policy_losses


@pytest.mark.parametrize("bounds", ["default", "parameters", "per token"])
@pytest.mark.parametrize("name", ["importance_sampling", "ppo", "cispo", "dro"])
def test_a_loss_and_its_gradient_follow_the_formula(name, bounds):
    rng = np.random.default_rng(3)
    logp, q, a = rng.normal(-2, 1, 50), rng.normal(-2, 1, 50), rng.normal(0, 1, 50)
    ratio = np.exp(logp - q)
    low, high = (
        {"ppo": (0.8, 1.2), "cispo": (0.0, 4.0)}.get(name, (0, 0))
        if bounds == "default"
        else (0.95, 1.01)
    )
    clipped = np.clip(ratio, low, high)
    inside = ratio * a <= clipped * a
    by_hand = {
        "importance_sampling": (-ratio * a, -ratio * a),
        "ppo": (-np.minimum(ratio * a, clipped * a), np.where(inside, -ratio * a, 0)),
        "cispo": (-clipped * logp * a, -clipped * a),
        "dro": (-(logp * a - 0.025 * (logp - q) ** 2), -(a - 0.05 * (logp - q))),
    }
    given = {"clip_low_threshold": low, "clip_high_threshold": high}
    inputs = {"logprobs": torch.from_numpy(q), "advantages": torch.from_numpy(a)}
    inputs |= (
        {key: torch.full((50,), value) for key, value in given.items()}
        if bounds == "per token"
        else {}
    )
    asked = torch.from_numpy(logp).requires_grad_()
    parameters = {**LOSSES[name].parameters, **(given if bounds == "parameters" else {})}
    found = LOSSES[name].function(asked, inputs, parameters)
    found.sum().backward()
    for mine, expected in zip((found.detach(), asked.grad), by_hand[name], strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-6)


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
