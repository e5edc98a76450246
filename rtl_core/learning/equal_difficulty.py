"""Rates of train steps at equal difficulty: estimates for all training problems instead of a step's few.

A step of hard problems has a lower pass rate than one of easy problems. The probability that an answer to
problem p succeeds in a step is

    logit P = base_p + d_p + θ        (one-parameter logistic model, Rasch 1960)

- base_p: rate in the newest evaluation before the step of problems as difficult as p, by fifths of the
  training problems.
- θ: how much better the step's student is than the evaluated one; one number per step.
- d_p: how much easier p is than its fifth, estimated from p's groups of earlier steps. It corrects for
  curricula that draw problems by their pass rates (pools), because a problem that is drawn for failing is
  harder than its fifth.

Priors: θ ~ N(0, `ABILITY_SD`²), so that steps of 0 % and 100 % stay finite, and d_p ~ N(0, `SPREAD`²). A
step uses the mode of θ and d. The mode and variance (Laplace) of d_p are the prior of p's next group, as in
Glickman's player ratings (1999); the variance grows by `DRIFT` per step, because the student learns
problems at different speeds. The rate is the mean of P over all training problems. Shares of the largest
reward are treated as shares of a pass.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rtl_core.types.numbers import Floats

SUFFIX = "_equal_difficulty"
"""Suffix of a step's metric for its value at equal difficulty."""
STRATA = 5
SMOOTHING = 4.0
"""Number of answers at the overall rate to add to each fifth."""
ABILITY_SD, SPREAD, DRIFT = 3.0, 1.5, 0.02
"""Logits; `DRIFT` logits²."""


class Groups(NamedTuple):
    """A step's G groups of different problems among P training problems."""

    base_P: Floats
    """Rate of problems as difficult as each of the P, above 0 and below 1."""
    index_G: Sequence[int]
    """Indices of the groups' problems."""
    score_G: Floats
    """Passes of each group, or sums of shares of a pass."""
    answers_G: Floats


def stratum(key: Any, training: Sequence[Any]) -> int:
    """Index of the fifth of the sorted training keys that contains a problem's key; 0 is the easiest."""
    return min(STRATA - 1, STRATA * bisect_left(training, key) // len(training))


def base_rates(stratum_E: Sequence[int], score_E: Floats, answers_E: Floats) -> Floats:
    """Smoothed rate of each fifth from E evaluated problems: above 0 and below 1, even for a fifth without
    evaluations."""
    overall = (score_E.sum() + 0.5) / (answers_E.sum() + 1)
    score_S = np.bincount(stratum_E, score_E, STRATA)
    answers_S = np.bincount(stratum_E, answers_E, STRATA)
    return np.asarray((score_S + SMOOTHING * overall) / (answers_S + SMOOTHING))


def equal_difficulty(steps: Iterable[Groups]) -> list[float]:
    """Rate of each step at equal difficulty; `steps` are in order and have the same P problems."""
    rates: list[float] = []
    d_P = variance_P = np.zeros(0)
    for base_P, index_G, score_G, answers_G in steps:
        if not rates:
            d_P, variance_P = np.zeros_like(base_P), np.full_like(base_P, SPREAD**2)
        logit_P = np.log(base_P / (1 - base_P))
        variance_P = np.minimum(variance_P + DRIFT, SPREAD**2)
        prior = d_P[index_G], 1 / variance_P[index_G]
        theta, d_P[index_G], variance_P[index_G] = _mode(
            logit_P[index_G], *prior, score_G, answers_G
        )
        rates.append(float(_sigmoid(logit_P + d_P + theta).mean()))
    return rates


def _mode(
    logit_G: Floats, mean_G: Floats, precision_G: Floats, score_G: Floats, answers_G: Floats
) -> tuple[float, Floats, Floats]:
    """θ, d and the variance of d by Newton's method; each d depends only on θ, so that θ is found by elimination."""
    theta, d_G = 0.0, mean_G
    for _ in range(100):
        chance_G = _sigmoid(logit_G + d_G + theta)
        miss_G = score_G - answers_G * chance_G
        weight_G = answers_G * chance_G * (1 - chance_G)
        slope_G = miss_G - (d_G - mean_G) * precision_G
        curve_G = weight_G + precision_G
        slope = miss_G.sum() - theta / ABILITY_SD**2 - (weight_G * slope_G / curve_G).sum()
        curve = 1 / ABILITY_SD**2 + (weight_G * precision_G / curve_G).sum()
        move = min(1.0, max(-1.0, slope / curve))
        move_G = (slope_G - weight_G * move) / curve_G
        theta, d_G = theta + move, d_G + np.clip(move_G, -1, 1)
        if max(abs(move), np.abs(move_G).max()) < 1e-9:
            break
    return theta, d_G, 1 / curve_G


def _sigmoid(logit: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-logit)))
