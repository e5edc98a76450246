"""Metrics that leave their safe range, and the check of the sampler's log-probabilities."""

import math

import numpy as np
import pytest

from rtl_core.learning.health import METRICS, SafeRange, breaches, disagreement


@pytest.mark.parametrize(
    ("values", "patience", "bounds", "outside"),
    [
        ([0.5, 0.05], 1, (0.1, None), [0.05]),
        ([0.9], 1, (0.2, 0.9), None),
        ([0.91], 1, (0.2, 0.9), [0.91]),
        ([0.05, 0.05], 3, (0.1, None), None),
        ([0.05, 0.2, 0.05], 3, (0.1, None), None),
        ([0.9, 0.05, 0.04, 0.03], 3, (0.1, None), [0.05, 0.04, 0.03]),
        ([0.05, None, 0.05], 3, (0.1, None), None),
        ([math.nan], 1, (0.1, None), [math.nan]),
    ],
)
def test_a_breach_needs_each_of_the_last_steps_outside_the_bounds(
    values, patience, bounds, outside
):
    steps = [{} if value is None else {"optim/entropy": value} for value in values]
    ranges = {"optim/entropy": SafeRange(min=bounds[0], max=bounds[1])}
    found = breaches(steps, ranges, patience)
    words = ", ".join(f"{value:.4g}" for value in outside or ())
    assert all(f" was {words}" in one for one in found)
    assert len(found) == bool(outside)


def test_a_breach_names_metric_values_and_range():
    (breach,) = breaches(
        [{"optim/entropy": 0.05}] * 3, {"optim/entropy": SafeRange(min=0.1)}, patience=3
    )
    for part in (
        "optim/entropy",
        METRICS["optim/entropy"],
        "0.05, 0.05, 0.05 in 3 consecutive steps",
        "0.1 to ∞",
    ):
        assert part in breach


RNG = np.random.default_rng(5)
N = 2000


def policy(mean: float) -> np.ndarray:
    """Log-probabilities of N tokens with this mean: most tokens are nearly certain, some are not."""
    values = -RNG.gamma(0.25, 4.0, N)
    return values * (mean / -values.mean())


def zeros(logprobs: np.ndarray, share: float) -> np.ndarray:
    return np.where(RNG.random(N) < share, 0.0, logprobs)


@pytest.mark.parametrize("mean", [0.05, 0.1, 0.3, 1.0])
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("of the next token", lambda t: np.roll(t, 1)),
        ("of the token before", lambda t: np.roll(t, -1)),
        ("of another answer", lambda t: RNG.permutation(t)),
        ("reversed", lambda t: t[::-1]),
        ("a constant", lambda t: np.full(N, t.mean())),
        ("always 0", lambda t: zeros(t, 1.0)),
        ("30 % zeros", lambda t: zeros(t, 0.3)),
        ("5 % zeros", lambda t: zeros(t, 0.05)),
        ("zeros in one answer of ten", lambda t: np.where(np.arange(N) < N // 10, 0.0, t)),
        ("of the prompt", lambda t: policy(2.0)),
    ],
)
def test_log_probabilities_that_are_not_those_of_the_tokens_are_noticed(mean, name, fault):
    trainer = policy(mean)
    assert disagreement(fault(trainer), trainer, 0.25), name


@pytest.mark.parametrize("mean", [0.001, 0.02, 0.1, 0.3, 1.0])
@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("equal", lambda t: t),
        ("float32", lambda t: t.astype(np.float32)),
        ("rounding", lambda t: np.minimum(t + RNG.normal(0, 0.01, N), 0)),
        (
            "noise that grows with the uncertainty",
            lambda t: t * RNG.normal(1, 0.15, N).clip(0.5, 1.5),
        ),
        ("a few outliers", lambda t: np.where(RNG.random(N) < 0.002, t - 3.0, t)),
        ("certain tokens are 0", lambda t: np.where(t > -1e-4, 0.0, t)),
        ("log-probabilities in bfloat16", lambda t: np.round(t * 256) / 256),
    ],
)
def test_log_probabilities_of_equal_weights_may_differ_by_rounding(mean, name, twin):
    trainer = policy(mean)
    assert disagreement(twin(trainer), trainer, 0.25) is None, name


def test_stale_weights_may_differ_but_their_zeros_are_noticed():
    trainer = policy(0.3)
    stale = np.minimum(trainer + RNG.normal(0, 0.3, N), -1e-9)
    assert disagreement(stale, trainer, 0.25)
    assert disagreement(stale, trainer, math.inf) is None
    assert disagreement(zeros(stale, 0.1), trainer, math.inf)


def test_one_answer_of_one_token_is_too_little_to_accuse_a_sampler():
    assert disagreement(np.zeros(1), np.array([-0.11]), math.inf) is None
