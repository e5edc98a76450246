"""The losses of `forward_backward`, as pure functions of log-probabilities.

Every loss is a sum over tokens, never a mean, as the Tinker documentation defines it
(https://tinker-docs.thinkingmachines.ai/tinker/losses). Shapes: B datums, L positions, K targets a position (1 but
for a cross entropy against a distribution). `logp` is log p_theta(target), `q` the sampler's log-probability of the
same token, `A` its advantage, `w` its weight. Padding has advantage and weight 0, so that it adds exactly 0.

A loss is registered by `@loss` under its function's name, which is the Tinker API's: then the embedded service computes it, and
`learning.loss` takes it where it suits a step of reinforcement (`policy_losses`). Nothing here imports torch, so that reading a configuration does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    Inputs = Mapping[str, Tensor]
    Formula = Callable[[Tensor, Inputs, Mapping[str, float]], Tensor]

POLICY_INPUTS = ("logprobs", "advantages")
"""What a step of reinforcement gives its loss beside the target tokens, one number a token."""
CLIP = ("clip_low_threshold", "clip_high_threshold")
"""The smallest and largest ratio that counts; parameters, or inputs with a value for each token."""


@dataclass(frozen=True)
class Loss:
    """One loss: its function, the inputs it reads beside target_tokens, and its parameters with their defaults."""

    function: Formula
    required: tuple[str, ...]
    optional: tuple[str, ...]
    parameters: Mapping[str, float]
    zero_is_silent: bool
    """Whether a token whose inputs are all 0, as those of a prompt are, has no gradient."""


LOSSES: dict[str, Loss] = {}
"""Name -> loss."""


def loss(
    *required: str,
    optional: tuple[str, ...] = (),
    parameters: Mapping[str, float] | None = None,
    zero_is_silent: bool = True,
) -> Callable[[Formula], Formula]:
    """Register a function of (log-probabilities, inputs, parameters), all of them given, as the loss of its name."""

    def register(function: Formula) -> Formula:
        LOSSES[function.__name__] = Loss(function, required, optional, parameters or {}, zero_is_silent)
        return function

    return register


def policy_losses() -> list[str]:
    """Names of the losses that a step of reinforcement can take: a prompt is sent with zeros and must not be trained on."""
    return [name for name, one in LOSSES.items() if one.required == POLICY_INPUTS and one.zero_is_silent]


@loss(optional=("weights",))
def cross_entropy(logp_BLK: Tensor, inputs: Inputs, parameters: Mapping[str, float]) -> Tensor:
    """-w logp; with K > 1 targets a position, the cross entropy against the distribution w."""
    return -logp_BLK * inputs["weights"]


@loss(*POLICY_INPUTS)
def importance_sampling(logp_BLK: Tensor, inputs: Inputs, parameters: Mapping[str, float]) -> Tensor:
    """-exp(logp - q) A."""
    return -(logp_BLK - inputs["logprobs"]).exp() * inputs["advantages"]


@loss(*POLICY_INPUTS, optional=CLIP, parameters=dict(zip(CLIP, (0.8, 1.2), strict=True)))
def ppo(logp_BLK: Tensor, inputs: Inputs, parameters: Mapping[str, float]) -> Tensor:
    """-min(r A, clip(r, low, high) A) with r = exp(logp - q)."""
    ratio = (logp_BLK - inputs["logprobs"]).exp()
    advantages = inputs["advantages"]
    return -(ratio * advantages).minimum(_clip(ratio, inputs, parameters) * advantages)


@loss(*POLICY_INPUTS, optional=CLIP, parameters=dict(zip(CLIP, (0.0, 4.0), strict=True)))
def cispo(logp_BLK: Tensor, inputs: Inputs, parameters: Mapping[str, float]) -> Tensor:
    """-sg(clip(r, low, high)) logp A: the clipped ratio is a weight, not a path for the gradient.

    Within its bounds the gradient is that of `importance_sampling`. A lower bound above 0 would train on with tokens that the policy
    has left (MiniMax-M1, 2025, arXiv:2506.13585, has none).
    """
    ratio = (logp_BLK - inputs["logprobs"]).exp()
    return -_clip(ratio, inputs, parameters).detach() * logp_BLK * inputs["advantages"]


@loss(*POLICY_INPUTS, parameters={"beta": 0.05}, zero_is_silent=False)
def dro(logp_BLK: Tensor, inputs: Inputs, parameters: Mapping[str, float]) -> Tensor:
    """-(logp A - beta/2 (logp - q)^2): direct reward optimisation, a quadratic leash instead of a ratio.

    Where A and q are 0 the square remains: a client gives q for the prompt's tokens, too, and the caller's mask takes the padding.
    """
    quadratic = (logp_BLK - inputs["logprobs"]) ** 2
    return -(logp_BLK * inputs["advantages"] - 0.5 * parameters["beta"] * quadratic)


def _clip(ratio: Tensor, inputs: Inputs, parameters: Mapping[str, float]) -> Tensor:
    """The ratios within their thresholds: those of each token where the inputs have them, else the parameters."""
    low, high = (inputs[name] if name in inputs else ratio.new_tensor(parameters[name]) for name in CLIP)
    return ratio.maximum(low).minimum(high)
