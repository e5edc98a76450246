"""From a credited and scored batch to what the train step takes: advantages on the student's answers, or answers to imitate."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rtl_core.config import RunConfig
from rtl_core.history.records import StoredRollout
from rtl_core.learning.advantage import kl_share, token_advantages
from rtl_core.pipeline.batch import Batch
from rtl_core.pipeline.credit import credit_of
from rtl_core.policy.trainer import TrainExample


def build_examples(batch: Batch, config: RunConfig, kl_weight: float) -> list[TrainExample]:
    """Training examples of a batch.

    This alone decides which rollouts a step trains on. Those whose every token advantage is 0 teach nothing and are left out, as are
    masked ones and quarantined groups. How many are left, and their tokens, is counted where they are sent (trainer.py).

    Args:
        kl_weight: λ of this step.
    """
    rows: list[tuple[StoredRollout, np.ndarray]] = [
        (stored, _token_advantages(stored, advantage, config, kl_weight)) for stored, advantage in _answers(batch)
    ]
    if config.learning.permute_advantages:
        rows = permute(rows, random.Random(f"permute/{config.run.seed}/{batch.step}"))
    return [
        TrainExample(
            prompt_P=stored.rollout.prompt_P,
            tokens_T=stored.rollout.tokens_T,
            logprobs_T=np.array(stored.rollout.logprobs_T, np.float32),
            advantages_T=advantages_T.astype(np.float32),
        )
        for stored, advantages_T in rows
        if advantages_T.any()
    ]


def signal_share(batch: Batch, config: RunConfig, kl_weight: float) -> float:
    """How much of what a batch trains on is the teacher's word, the rest being the verdicts' (`learning.advantage.kl_share`)."""
    return kl_share(
        (advantage, _token_advantages(stored, 0.0, config, kl_weight), np.array(stored.rollout.logprobs_T))
        for stored, advantage in _answers(batch)
    )


def _answers(batch: Batch) -> Iterator[tuple[StoredRollout, float]]:
    """Every answer of a batch, of all turns, that counts, with its scalar advantage."""
    for turn in (batch, *batch.later.values()):
        for problem_id in turn.problem_ids:
            for stored in () if problem_id in batch.quarantined else turn.group(problem_id):
                if credit_of(stored).counts:
                    yield stored, credit_of(stored).advantage


def _token_advantages(
    stored: StoredRollout, advantage: float, config: RunConfig, kl_weight: float
) -> NDArray[np.float32]:
    """Advantage of each token of an answer."""
    learning = config.learning
    return token_advantages(
        advantage,
        np.array(stored.rollout.logprobs_T),
        None if stored.teacher is None else np.asarray(stored.teacher.logprobs_T),
        kl_weight=kl_weight,
        kl_discount=learning.kl_discount,
        kl_clamp=learning.kl_clamp,
    )


def permute(rows: list[tuple[StoredRollout, np.ndarray]], rng: random.Random) -> list[tuple[StoredRollout, np.ndarray]]:
    """Hand each rollout the mean token advantage of another, so that size and spread of the signal stay and its meaning goes."""
    means = [float(advantages_T.mean()) for _, advantages_T in rows]
    rng.shuffle(means)
    return [
        (stored, np.full(len(advantages_T), mean)) for (stored, advantages_T), mean in zip(rows, means, strict=True)
    ]


def answers_to_imitate(batch: Batch, config: RunConfig) -> list[tuple[Sequence[int], Sequence[int]]]:
    """(prompt tokens, completion tokens) of the teacher's answers that a warm start trains on: whole ones, and by default only
    those that pass; each distinct answer of a group once."""
    chosen: list[tuple[Sequence[int], Sequence[int]]] = []
    for problem_id in batch.problem_ids:
        seen: set[tuple[int, ...]] = set()
        for stored in batch.group(problem_id):
            passed = stored.verdict is not None and stored.verdict.passed
            wanted = passed or not config.learning.warm_start_passing_only
            if wanted and stored.rollout.stop_reason == "stop" and stored.rollout.tokens_T not in seen:
                seen.add(stored.rollout.tokens_T)
                chosen.append((stored.rollout.prompt_P, stored.rollout.tokens_T))
    return chosen
