"""The losses of a train step as the service computes them, against the formulas in numpy."""

import asyncio

import numpy as np
import pytest
from localtinker_helpers import random_sequences, score

from rtl_core.backend.base import Adam, Datum
from rtl_core.backend.tinker.training import TinkerTrainer, open_training_client
from rtl_core.config import load_config
from rtl_core.rollouts.metrics import drift_metrics

PROMPT_TOKENS = 4
ADAM = Adam(learning_rate=1e-4, beta1=0.9, beta2=0.95, eps=1e-8, grad_clip_norm=0.0)


@pytest.fixture(scope="module")
def sequences():
    return random_sequences(4, seed=5)


def step(client, sequences, *overrides):
    """Metrics of a train step on these sequences, and the loss per token in numpy, from the model's log-probabilities."""
    config = load_config("demo", overrides, environment={})
    rng = np.random.default_rng(3)
    completions = [sequence[PROMPT_TOKENS:] for sequence in sequences]
    truth = score(client.create_sampling_client(base_model="student").result(), sequences)
    lengths = np.cumsum([len(sequence) - 1 for sequence in sequences])[:-1]
    logp = [part[PROMPT_TOKENS - 1 :] for part in np.split(truth, lengths)]
    noise = [rng.normal(0, 0.4, len(tokens)) for tokens in completions]
    advantages = [rng.normal(0, 1, len(tokens)) for tokens in completions]
    datums = [
        Datum(s[:PROMPT_TOKENS], t, {"logprobs": (p + n).astype(np.float32), "advantages": a.astype(np.float32)})
        for s, t, p, n, a in zip(sequences, completions, logp, noise, advantages, strict=True)
    ]

    async def run():
        trainer = TinkerTrainer(await open_training_client(client, config, None))
        trained = await trainer.step(datums, config.learning.loss, config.learning.loss_settings, ADAM)
        assert trained.tokens == sum(len(sequence) - 1 for sequence in sequences)
        return {**drift_metrics(datums, trained), **trained.metrics}

    ratio, a, lp = np.exp(-np.concatenate(noise)), np.concatenate(advantages), np.concatenate(logp)
    own = (0.0, 4.0) if config.learning.loss == "cispo" else (0.8, 1.2)
    clip = (config.learning.clip_low, config.learning.clip_high)
    clipped = np.clip(ratio, *(default if given is None else given for given, default in zip(clip, own, strict=True)))
    losses = {
        "importance_sampling": -ratio * a,
        "ppo": -np.minimum(ratio * a, clipped * a),
        "cispo": -clipped * lp * a,
    }
    return asyncio.run(run()), losses[config.learning.loss]


@pytest.mark.parametrize(
    "overrides",
    [
        ["learning.loss=importance_sampling"],
        ["learning.loss=ppo"],
        ["learning.loss=ppo", "learning.clip_low=0.95", "learning.clip_high=1.6"],
        ["learning.loss=cispo"],
        ["learning.loss=cispo", "learning.clip_low=0.5", "learning.clip_high=1.01"],
    ],
)
def test_the_service_computes_the_configured_loss(client, sequences, overrides):
    metrics, loss_T = step(client, sequences, *overrides)
    assert metrics["loss:sum"] == pytest.approx(loss_T.sum(), rel=1e-3)


def test_sampler_and_trainer_are_compared_on_completions_only(client, sequences):
    metrics, _ = step(client, sequences)
    rng = np.random.default_rng(3)
    noise = np.concatenate([rng.normal(0, 0.4, len(sequence) - PROMPT_TOKENS) for sequence in sequences])
    assert metrics["optim/kl_sample_train_v1"] == pytest.approx(noise.mean(), abs=1e-4)
    assert metrics["optim/kl_sample_train_v2"] == pytest.approx((noise**2).mean() / 2, rel=1e-3)
