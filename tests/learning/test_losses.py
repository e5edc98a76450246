"""Prompt tokens are sent with zeros; the losses declare whether these have a gradient."""

import pytest
import torch

from rtl_core.learning.losses import LOSSES, policy_losses


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
