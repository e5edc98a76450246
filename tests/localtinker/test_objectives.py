"""The train step's objectives as the service computes them, against the formulas evaluated a second time in numpy."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import tinker
from localtinker_helpers import random_sequences, score

from rtl_core.algorithms.warm_start import WarmStart
from rtl_core.config import load_config
from rtl_core.policy.trainer import Datum, open_training_client, supervised_step, train_step

PROMPT_TOKENS = 4


@pytest.fixture(scope="module")
def sequences() -> list[list[int]]:
    return random_sequences(4, seed=5)


def step(
    client: tinker.ServiceClient, sequences: list[list[int]], *overrides: str
) -> tuple[dict[str, float], np.ndarray]:
    """Metrics of one train step on those sequences, and the loss per token by numpy, with the model's own log-probabilities."""
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

    async def run() -> dict[str, float]:
        trainer = await open_training_client(client, config, None)
        metrics, trained = await train_step(trainer, datums, config, 1e-4)
        assert trained.tokens == sum(len(sequence) - 1 for sequence in sequences)
        return metrics

    ratio, a, lp = np.exp(-np.concatenate(noise)), np.concatenate(advantages), np.concatenate(logp)
    low, high = config.learning.clip_low, config.learning.clip_high
    clipped = np.clip(ratio, low, high)
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
def test_the_loss_and_its_settings_reach_the_service(
    client: tinker.ServiceClient, sequences: list[list[int]], overrides: list[str]
) -> None:
    metrics, loss_T = step(client, sequences, *overrides)
    assert metrics["service/loss:sum"] == pytest.approx(loss_T.sum(), rel=1e-3)


def test_sampler_and_trainer_are_compared_over_the_completions_alone(
    client: tinker.ServiceClient, sequences: list[list[int]]
) -> None:
    metrics, _ = step(client, sequences)
    rng = np.random.default_rng(3)
    noise = np.concatenate([rng.normal(0, 0.4, len(sequence) - PROMPT_TOKENS) for sequence in sequences])
    assert metrics["optim/kl_sample_train_v1"] == pytest.approx(noise.mean(), abs=1e-4)
    assert metrics["optim/kl_sample_train_v2"] == pytest.approx((noise**2).mean() / 2, rel=1e-3)


def test_a_supervised_step_is_the_cross_entropy_of_the_answers_and_lowers_it(
    client: tinker.ServiceClient, sequences: list[list[int]]
) -> None:
    config = load_config("demo", environment={})
    datums = [
        Datum(sequence[:PROMPT_TOKENS], sequence[PROMPT_TOKENS:], WarmStart.inputs_of(len(sequence) - PROMPT_TOKENS))
        for sequence in sequences
    ]
    truth = score(client.create_sampling_client(base_model="student").result(), sequences)
    lengths = np.cumsum([len(sequence) - 1 for sequence in sequences])[:-1]
    logp = np.concatenate([part[PROMPT_TOKENS - 1 :] for part in np.split(truth, lengths)])

    async def run() -> list[dict[str, float]]:
        trainer = await open_training_client(client, config, None)
        return [(await supervised_step(trainer, datums, config, 1e-3))[0] for _ in range(3)]

    steps = asyncio.run(run())
    assert steps[0]["warm_start/nll"] == pytest.approx(-logp.mean(), rel=1e-3)
    assert steps[0]["service/loss:sum"] == pytest.approx(-logp.sum(), rel=1e-3)
    assert steps[0]["warm_start/nll"] > steps[1]["warm_start/nll"] > steps[2]["warm_start/nll"]
