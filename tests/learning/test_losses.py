"""The losses of a train step against their formulas in numpy; prompt tokens are sent with zeros, which may have no gradient.

That a backend computes a loss with its parameters is tested in tests/backend/test_backend_conformance.py.
"""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from localtinker.losses import CLIP, LOSSES, RATIO_MASK, UNAVAILABLE, policy_losses
from rtl_core.config.learning import LearningSection


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
    assert policy_losses() == ["importance_sampling", "ppo", "gspo", "cispo"]


def test_losses_that_are_not_here_say_why():
    assert not set(UNAVAILABLE) & set(LOSSES)
    with pytest.raises(ValidationError, match=r"stable_reinforce'.*formula is not published"):
        LearningSection(loss="stable_reinforce")


def gspo_of(logp, q, a, marked, low, high):
    """The loss of one sequence as its paper writes it (equations 5 to 7 and 13 to 15), token by token."""
    ratios = [logp[t].detach() - q[t] for t in range(len(q)) if marked[t]]
    s = torch.stack(ratios).sum().div(len(ratios)).exp()
    losses = []
    for t in range(len(q)):
        s_t = s * logp[t].exp() / logp[t].exp().detach()
        losses.append(-torch.min(s_t * a[t], s_t.clamp(low, high) * a[t]))
    return torch.stack(losses)


@pytest.mark.parametrize("bounds", [(0.8, 1.2), (0.97, 1.04)])
def test_gspo_clips_whole_sequences_and_follows_its_paper(bounds):
    rng = np.random.default_rng(5)
    lengths, longest = [7, 3, 12, 5, 9, 4], 12
    batch = {name: torch.zeros(6, longest, 1, dtype=torch.float64) for name in "lqam"}
    expected, gradient = torch.zeros(6, longest), torch.zeros(6, longest)
    for row, length in enumerate(lengths):
        logp, a = rng.normal(-2, 1, length), rng.normal(0, 1, length)
        q = logp + rng.normal(0, 0.3, length)
        marked = np.arange(length) >= length // 3
        for name, values in zip("lqam", (logp, q, a, marked), strict=True):
            batch[name][row, :length, 0] = torch.from_numpy(np.asarray(values, float))
        own = torch.from_numpy(logp).requires_grad_()
        losses = gspo_of(own, *map(torch.from_numpy, (q, a, marked)), *bounds)
        losses.sum().backward()
        expected[row, :length], gradient[row, :length] = losses.detach(), own.grad
    asked = batch["l"].requires_grad_()
    inputs = {"logprobs": batch["q"], "advantages": batch["a"], RATIO_MASK: batch["m"]}
    parameters = dict(zip(CLIP, bounds, strict=True))
    found = LOSSES["gspo"].function(asked, inputs, parameters)
    found.sum().backward()
    np.testing.assert_allclose(found.detach()[..., 0], expected, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(asked.grad[..., 0], gradient, rtol=1e-6, atol=1e-12)
    silent = (asked.grad[..., 0] == 0).sum(1) - (longest - torch.tensor(lengths))
    assert silent.max() > 0, "no sequence was clipped"
