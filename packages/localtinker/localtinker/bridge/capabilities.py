"""What an engine lacks of Tinker's protocol: keys, and one sentence for each about the consequence.

Sources: SkyRL 0.4.0 (`backends/jax.py`, run; `backends/skyrl_train_backend.py`, read), TuFT 0.2.2 (read).
"""

from __future__ import annotations

FROZEN_SAMPLERS = "frozen_samplers"
SEVERAL_MODELS = "several_models"
TOPK_SCORES = "topk_scores"
EXPIRY = "expiry"
OPTIMIZER = "optimizer"
CLIPPING = "grad_clip"
SUMS = "sums"
CISPO_BOUNDS = "cispo_bounds"
SAMPLE_FIRST = "sample_before_training"
SEVERAL_TARGETS = "several_targets"
LOSS = "loss:"
"""Prefix of the keys of losses."""
DRO = "loss:dro"
GSPO = "loss:gspo"
STABLE_REINFORCE = "loss:stable_reinforce"
CUSTOM_LOSS = "loss:custom"

_SKYRL = {
    FROZEN_SAMPLERS: "saved weights are sampled only while they are a client's newest; "
    "older ones and, with the JAX backend, ones that training has passed are refused",
    SEVERAL_MODELS: "one base model a server: a teacher is a second server",
    SEVERAL_TARGETS: "a position has one target token: no cross entropy on distributions",
    EXPIRY: "saved weights do not expire: delete what is no longer needed",
    SUMS: "the loss is a mean over the tokens of an answer and over answers, not a sum: "
    "a long answer weighs no more than a short one",
    DRO: "there is no loss dro",
    STABLE_REINFORCE: "there is no loss stable_reinforce",
    CUSTOM_LOSS: "custom losses run on the client, not on the server",
}
_SKYRL_JAX = {
    TOPK_SCORES: "no log-probabilities of the top k tokens: no distillation on distributions",
    CLIPPING: "gradients are not clipped",
    GSPO: "the JAX backend has no loss gspo",
}
_SKYRL_GPU = {
    OPTIMIZER: "betas, eps and weight decay of AdamW are those of the server's --backend-config; "
    "a train step changes only the rate",
    CLIPPING: "gradients are clipped as the server's --backend-config says, not as a train step does",
    CISPO_BOUNDS: "the bounds of cispo are the server's, not those of a train step",
    SAMPLE_FIRST: "nothing can be sampled before a training client was opened and its weights saved",
}
_TUFT = {
    EXPIRY: _SKYRL[EXPIRY],
    GSPO: "there is no loss gspo",
    STABLE_REINFORCE: _SKYRL[STABLE_REINFORCE],
    CUSTOM_LOSS: _SKYRL[CUSTOM_LOSS],
}


def lacks(engine: str, backend: str | None) -> dict[str, str]:
    """Return key -> consequence. A SkyRL whose backend is not known lacks what any of its backends lacks."""
    if engine == "tuft":
        return dict(_TUFT)
    by_backend = {"jax": _SKYRL_JAX, "gpu": _SKYRL_GPU}
    own = by_backend.get(backend or "", _SKYRL_JAX | _SKYRL_GPU)
    return _SKYRL | own
