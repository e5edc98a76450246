"""From a graded and scored batch to what the train step takes: advantages on the student's answers, or answers to imitate."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rtl_core.backend.base import Datum
from rtl_core.config import RunConfig
from rtl_core.history.records import StoredRollout
from rtl_core.learning.advantage import answer_advantages, kl_share, token_advantages
from rtl_core.pipeline.batch import Batch
from rtl_core.pipeline.refining import trained_reward


def advantages_of(batch: Batch, problem_id: str, config: RunConfig) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scalar advantages of a graded group's G answers, reward weight included, and which of them count (see learning).

    Raises:
        RuntimeError: an answer has no verdict.
    """
    learning, group = config.learning, batch.group(problem_id)
    weight = config.refinement.improvement_weight
    rewards_G = np.array([trained_reward(batch, stored, weight) for stored in group])
    advantages_G, counts_G = answer_advantages(
        rewards_G,
        [len(stored.rollout.tokens_T) for stored in group],
        [stored.rollout.stop_reason == "length" for stored in group],
        limit=config.sampling.max_tokens,
        truncated=learning.truncated,
        penalty=learning.overlong_penalty,
        buffer=learning.overlong_buffer,
        baseline=learning.baseline,
        normalise_std=learning.normalise_std,
    )
    return learning.reward_weight * advantages_G, counts_G


def build_examples(batch: Batch, config: RunConfig, kl_weight: float) -> tuple[list[Datum], dict[str, float]]:
    """Datums of a batch, and the scalar advantage of each rollout by key.

    This alone decides which rollouts a step trains on. Those whose every token advantage is 0 teach nothing and are left out, as are
    masked ones and quarantined groups. How many are left, and their tokens, is counted where they are sent (`StepResult`).

    Args:
        kl_weight: λ of this step.
    """
    scalars: dict[str, float] = {}
    rows: list[tuple[StoredRollout, np.ndarray]] = []
    for stored, advantage, counts in _answers(batch, config):
        scalars[stored.rollout.key] = advantage
        if counts:
            rows.append((stored, _token_advantages(stored, advantage, config, kl_weight)))
    if config.learning.permute_advantages:
        rows = permute(rows, random.Random(f"permute/{config.run.seed}/{batch.step}"))
    examples = [
        Datum(
            prompt_P=stored.rollout.prompt_P,
            tokens_T=stored.rollout.tokens_T,
            inputs={
                "logprobs": np.array(stored.rollout.logprobs_T, np.float32),
                "advantages": advantages_T.astype(np.float32),
            },
        )
        for stored, advantages_T in rows
        if advantages_T.any()
    ]
    return examples, scalars


def signal_share(batch: Batch, config: RunConfig, kl_weight: float) -> float:
    """How much of what a batch trains on is the teacher's word, the rest being the verdicts' (`learning.advantage.kl_share`)."""
    return kl_share(
        (advantage, _token_advantages(stored, 0.0, config, kl_weight), np.array(stored.rollout.logprobs_T))
        for stored, advantage, counts in _answers(batch, config)
        if counts
    )


def _answers(batch: Batch, config: RunConfig) -> Iterator[tuple[StoredRollout, float, bool]]:
    """Every answer of a batch, of all turns, that is not set aside: with its scalar advantage, and whether it is trained on."""
    groups = [(turn, p) for turn in (batch, *batch.later.values()) for p in turn.problem_ids if turn.group(p)]
    for turn, problem_id in groups:
        if problem_id in batch.quarantined:
            continue
        advantages_G, counts_G = advantages_of(turn, problem_id, config)
        for stored, advantage, counts in zip(turn.group(problem_id), advantages_G, counts_G, strict=True):
            yield stored, float(advantage), bool(counts)


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
