"""The losses of `forward_backward`, as pure functions of log-probabilities.

Every loss is a sum over tokens, never a mean, as the Tinker documentation defines it
(https://tinker-docs.thinkingmachines.ai/tinker/losses). Shapes: B datums, L positions, K targets per position (1 except
for a cross entropy against a distribution). `logp` is log p_theta(target), `q` the sampler's log-probability of the
same token, `A` its advantage, `w` its weight. Padding has advantage and weight 0, so that it adds exactly 0.

`@loss` registers a loss under its function's name, which is its name in the Tinker API. The embedded
service computes every registered loss, and `learning.loss` accepts those of `policy_losses`. This module
does not import torch, so that loading a configuration is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    Inputs = Mapping[str, Tensor]
    Parameters = Mapping[str, float]
    Formula = Callable[[Tensor, Inputs, Parameters], Tensor]

POLICY_INPUTS = ("logprobs", "advantages")
"""Inputs of the loss of an RL step besides the target tokens, with one number per token."""
CLIP = ("clip_low_threshold", "clip_high_threshold")
"""Bounds of the ratio; parameters, or inputs with a value per token."""
RATIO_MASK = "sequence_ratio_mask"
"""Input of `gspo`: not 0 at the tokens over which the ratio of a sequence is the mean."""
_USUAL_BOUNDS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
UNAVAILABLE = {
    "stable_reinforce": "its formula is not published, and it trains only on sequences whose "
    "sampling was recorded (`record_stability_info`) in the same session",
    "custom": "operations that a client sends are not run here; the SDK runs a custom loss itself "
    "(`create_custom_loss`, `forward_backward_custom`)",
}
"""Losses of SDK 0.38 that this module does not have -> why."""


@dataclass(frozen=True)
class Loss:
    """A loss: its function, its inputs besides target_tokens, and its parameters with their defaults."""

    function: Formula
    required: tuple[str, ...]
    optional: tuple[str, ...]
    parameters: Parameters
    zero_is_silent: bool
    """Whether a token whose inputs are all 0, such as a prompt token, has no gradient."""


LOSSES: dict[str, Loss] = {}
"""Name -> loss."""


def loss(
    *required: str,
    optional: tuple[str, ...] = (),
    parameters: Parameters | None = None,
    zero_is_silent: bool = True,
) -> Callable[[Formula], Formula]:
    """Register a function of (log-probabilities, inputs, parameters) as a loss under its own name."""

    def register(function: Formula) -> Formula:
        LOSSES[function.__name__] = Loss(
            function, required, optional, parameters or {}, zero_is_silent
        )
        return function

    return register


def policy_losses() -> list[str]:
    """Names of the losses for RL steps: a prompt is sent with zeros and must have no gradient."""
    inputs = (POLICY_INPUTS, (*POLICY_INPUTS, RATIO_MASK))
    return [
        name for name, one in LOSSES.items() if one.required in inputs and one.zero_is_silent
    ]


@loss(optional=("weights",))
def cross_entropy(logp_BLK: Tensor, inputs: Inputs, parameters: Parameters) -> Tensor:
    """-w logp; with K > 1 targets per position, the cross entropy against the distribution w."""
    return -logp_BLK * inputs["weights"]


@loss(*POLICY_INPUTS)
def importance_sampling(logp_BLK: Tensor, inputs: Inputs, parameters: Parameters) -> Tensor:
    """-exp(logp - q) A."""
    return -(logp_BLK - inputs["logprobs"]).exp() * inputs["advantages"]


@loss(
    *POLICY_INPUTS,
    optional=CLIP,
    parameters=_USUAL_BOUNDS,
)
def ppo(logp_BLK: Tensor, inputs: Inputs, parameters: Parameters) -> Tensor:
    """-min(r A, clip(r, low, high) A) with r = exp(logp - q)."""
    ratio = (logp_BLK - inputs["logprobs"]).exp()
    return _pessimistic(ratio, inputs, parameters)


@loss(
    *POLICY_INPUTS,
    RATIO_MASK,
    optional=CLIP,
    parameters=_USUAL_BOUNDS,
)
def gspo(logp_BLK: Tensor, inputs: Inputs, parameters: Parameters) -> Tensor:
    """`ppo` with the ratio of the whole sequence, s = exp(mean of logp - q), at each token: -min(s A, clip(s, low,
    high) A), where s has the gradient of the token's own logp (GSPO-token).

    The mean is over the tokens that `sequence_ratio_mask` marks, in a datum each. A clipped sequence has no
    gradient. Source: Zheng et al. 2025 (arXiv:2507.18071), whose bounds are 1 - 3e-4 and 1 + 4e-4.
    """
    of_sequence = tuple(range(logp_BLK.ndim))[-2:]
    marked = (inputs[RATIO_MASK] != 0).to(logp_BLK.dtype)
    log_ratio = (logp_BLK.detach() - inputs["logprobs"]) * marked
    count = marked.sum(of_sequence, keepdim=True).clamp(min=1)
    mean = log_ratio.sum(of_sequence, keepdim=True) / count
    own_gradient = logp_BLK - logp_BLK.detach()
    return _pessimistic((mean + own_gradient).exp(), inputs, parameters)


@loss(
    *POLICY_INPUTS,
    optional=CLIP,
    parameters={"clip_low_threshold": 0.0, "clip_high_threshold": 4.0},
)
def cispo(logp_BLK: Tensor, inputs: Inputs, parameters: Parameters) -> Tensor:
    """-sg(clip(r, low, high)) logp A: the clipped ratio is a weight, not a path for the gradient.

    Within the bounds the gradient equals that of `importance_sampling`. A lower bound above 0 would keep
    training on tokens that the policy no longer samples (MiniMax-M1, 2025, arXiv:2506.13585, has none).
    """
    ratio = (logp_BLK - inputs["logprobs"]).exp()
    clipped = _clip(ratio, inputs, parameters)
    return -clipped.detach() * logp_BLK * inputs["advantages"]


@loss(*POLICY_INPUTS, parameters={"beta": 0.05}, zero_is_silent=False)
def dro(logp_BLK: Tensor, inputs: Inputs, parameters: Parameters) -> Tensor:
    """-(logp A - beta/2 (logp - q)^2): direct reward optimisation, with a quadratic penalty instead of a ratio.

    The penalty remains where A and q are 0, so clients must send q for prompt tokens too, and the caller
    masks the padding.
    """
    penalty = 0.5 * parameters["beta"] * (logp_BLK - inputs["logprobs"]) ** 2
    return -(logp_BLK * inputs["advantages"] - penalty)


def _pessimistic(ratio: Tensor, inputs: Inputs, parameters: Parameters) -> Tensor:
    """-min(r A, clip(r, low, high) A)."""
    advantages = inputs["advantages"]
    clipped = _clip(ratio, inputs, parameters)
    return -(ratio * advantages).minimum(clipped * advantages)


def _clip(ratio: Tensor, inputs: Inputs, parameters: Parameters) -> Tensor:
    """Clip the ratios to thresholds from the inputs (per token) or else from the parameters."""
    low, high = (
        inputs[name] if name in inputs else ratio.new_tensor(parameters[name]) for name in CLIP
    )
    return ratio.maximum(low).minimum(high)
