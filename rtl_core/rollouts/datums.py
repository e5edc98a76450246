"""From a credited and scored batch to what the train step takes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from rtl_core.algorithms.base import Algorithm, Inputs, chosen, credit_of
from rtl_core.algorithms.grpo import Grpo
from rtl_core.backend.base import Datum
from rtl_core.config import RunConfig
from rtl_core.history.records import StoredRollout
from rtl_core.learning.advantage import kl_share
from rtl_core.rollouts.batch import Batch


def build_datums(batch: Batch, algorithm: Algorithm, kl_weight: float) -> list[Datum]:
    """Training data of a batch.

    This alone decides which rollouts a step trains on. Those whose every token has the signal 0 teach nothing and are left out, as are
    masked ones and quarantined groups. Equal answers to one prompt become one datum (`together`). How many are left, and their tokens,
    is counted where they are sent (`StepResult`).

    Args:
        kl_weight: λ of this step.
    """
    config = algorithm.config
    answers = list(answers_that_count(batch))
    if config.learning.permute_teacher and algorithm.signal == "advantages":
        answers = permute_teacher(answers, random.Random(f"permute-teacher/{config.run.seed}/{batch.step}"))
    rows = [(stored, algorithm.loss_inputs(stored, kl_weight)) for stored in answers]
    if config.learning.permute_advantages and algorithm.signal == "advantages":
        rows = permute(rows, random.Random(f"permute/{config.run.seed}/{batch.step}"))
    alike: dict[tuple[Sequence[int], Sequence[int]], list[Inputs]] = defaultdict(list)
    for stored, inputs in rows:
        if inputs[algorithm.signal].any():
            alike[stored.rollout.prompt_P, stored.rollout.tokens_T].append(inputs)
    return [Datum(*texts, together(inputs, algorithm.signal)) for texts, inputs in alike.items()]


def together(alike: Sequence[Inputs], signal: str) -> Inputs:
    """What the loss reads of equal answers, sent once: their signals added, all else its mean.

    Every loss is linear in the signal and a sum over answers, so the gradient is that of all of them.
    """
    return {
        name: (np.sum if name == signal else np.mean)([inputs[name] for inputs in alike], axis=0, dtype=np.float32)
        for name in alike[0]
    }


def signal_share(batch: Batch, config: RunConfig, kl_weight: float) -> float:
    """How much of what a batch trains on is the teacher's scores, the rest being the verdicts' (`learning.advantage.kl_share`)."""
    own = chosen(config)(config)
    grpo = own if isinstance(own, Grpo) else Grpo(config)
    return kl_share(
        (
            credit_of(stored).advantage,
            grpo.advantages_T(stored, 0.0, grpo.kl_weight_of(stored, kl_weight)),
            np.array(stored.rollout.logprobs_T),
        )
        for stored in answers_that_count(batch)
    )


def answers_that_count(batch: Batch) -> Iterator[StoredRollout]:
    """Every answer of a credited batch, of all turns, that is part of the loss."""
    for turn in (batch, *batch.later.values()):
        for problem_id in turn.problem_ids:
            if problem_id not in batch.quarantined:
                yield from (stored for stored in turn.group(problem_id) if credit_of(stored).counts)


def permute(rows: list[tuple[StoredRollout, Inputs]], rng: random.Random) -> list[tuple[StoredRollout, Inputs]]:
    """Hand each rollout the mean token advantage of another, so that size and spread of the signal stay and its meaning goes."""
    means = [float(inputs["advantages"].mean()) for _, inputs in rows]
    rng.shuffle(means)
    return [
        (stored, {**inputs, "advantages": np.full(len(inputs["advantages"]), mean, np.float32)})
        for (stored, inputs), mean in zip(rows, means, strict=True)
    ]


def permute_teacher(answers: list[StoredRollout], rng: random.Random) -> list[StoredRollout]:
    """Hand each scored answer the differences q − s of another one, token by token; none keeps its own.

    Of a longer answer as many as there are tokens; after a shorter one's end the difference is 0.
    """
    scored = [index for index, stored in enumerate(answers) if stored.teacher is not None]
    rng.shuffle(scored)
    found = list(answers)
    for index, other in zip(scored, [*scored[1:], *scored[:1]], strict=True):
        stored, given, teacher = answers[index], answers[other], answers[other].teacher
        scores_T = np.array(stored.rollout.logprobs_T, np.float64)
        assert teacher is not None
        assert stored.teacher is not None
        if index != other:  # a single one gets no scores at all
            other_T = np.subtract(teacher.logprobs_T, given.rollout.logprobs_T)[: len(scores_T)]
            scores_T[: len(other_T)] += other_T
        found[index] = replace(stored, teacher=replace(stored.teacher, logprobs_T=scores_T))
    return found
