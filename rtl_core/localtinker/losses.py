"""The losses of `forward_backward`, as pure functions of log-probabilities.

Every loss is a sum over tokens, never a mean, as the Tinker documentation defines it
(https://tinker-docs.thinkingmachines.ai/tinker/losses). Shapes: B datums, L positions, K targets a position (1 but
for a cross entropy against a distribution). `logp` is log p_theta(target), `q` the sampler's log-probability of the
same token, `A` its advantage, `w` its weight. Padding has advantage and weight 0, so that it adds exactly 0.

| loss                | loss_fn_inputs                      | config (default)                                        |
|---------------------|-------------------------------------|---------------------------------------------------------|
| cross_entropy       | target_tokens, weights (1)          |                                                         |
| importance_sampling | target_tokens, logprobs, advantages |                                                         |
| ppo, cispo          | the same, clip thresholds by token  | clip_low_threshold (0.8), clip_high_threshold (1.2)     |
| dro                 | target_tokens, logprobs, advantages | beta (0.05)                                             |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Inputs = Mapping[str, Tensor]
Config = Mapping[str, float]


def cross_entropy(logp_BLK: Tensor, inputs: Inputs, config: Config) -> Tensor:
    """-w logp; with K > 1 targets a position, the cross entropy against the distribution w."""
    return -logp_BLK * inputs["weights"]


def importance_sampling(logp_BLK: Tensor, inputs: Inputs, config: Config) -> Tensor:
    """-exp(logp - q) A."""
    return -torch.exp(logp_BLK - inputs["logprobs"]) * inputs["advantages"]


def ppo(logp_BLK: Tensor, inputs: Inputs, config: Config) -> Tensor:
    """-min(r A, clip(r, low, high) A) with r = exp(logp - q)."""
    ratio = torch.exp(logp_BLK - inputs["logprobs"])
    low, high = _thresholds(inputs, config)
    advantages = inputs["advantages"]
    return -torch.minimum(ratio * advantages, _clip(ratio, low, high) * advantages)


def cispo(logp_BLK: Tensor, inputs: Inputs, config: Config) -> Tensor:
    """-sg(clip(r, low, high)) logp A: the clipped ratio is a weight, not a path for the gradient."""
    ratio = torch.exp(logp_BLK - inputs["logprobs"])
    low, high = _thresholds(inputs, config)
    return -_clip(ratio, low, high).detach() * logp_BLK * inputs["advantages"]


def dro(logp_BLK: Tensor, inputs: Inputs, config: Config) -> Tensor:
    """-(logp A - beta/2 (logp - q)^2): direct reward optimisation, a quadratic leash instead of a ratio.

    Padding has q = 0, so its square is masked by the caller's mask.
    """
    quadratic = (logp_BLK - inputs["logprobs"]) ** 2
    return -(logp_BLK * inputs["advantages"] - 0.5 * config.get("beta", 0.05) * quadratic)


def _thresholds(inputs: Inputs, config: Config) -> tuple[Tensor | float, Tensor | float]:
    low = inputs.get("clip_low_threshold", config.get("clip_low_threshold", 0.8))
    high = inputs.get("clip_high_threshold", config.get("clip_high_threshold", 1.2))
    return low, high


def _clip(ratio: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    low_t = low if isinstance(low, Tensor) else ratio.new_tensor(low)
    high_t = high if isinstance(high, Tensor) else ratio.new_tensor(high)
    return torch.minimum(torch.maximum(ratio, low_t), high_t)


@dataclass(frozen=True)
class Loss:
    """One loss: its function, the inputs it reads beside target_tokens, and the config keys it knows."""

    function: Callable[[Tensor, Inputs, Config], Tensor]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    config: tuple[str, ...] = ()


_CLIP = ("clip_low_threshold", "clip_high_threshold")

LOSSES: dict[str, Loss] = {
    "cross_entropy": Loss(cross_entropy, required=(), optional=("weights",)),
    "importance_sampling": Loss(importance_sampling, required=("logprobs", "advantages")),
    "ppo": Loss(ppo, required=("logprobs", "advantages"), optional=_CLIP, config=_CLIP),
    "cispo": Loss(cispo, required=("logprobs", "advantages"), optional=_CLIP, config=_CLIP),
    "dro": Loss(dro, required=("logprobs", "advantages"), config=("beta",)),
}
