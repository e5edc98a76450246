"""Arithmetic that can be checked without the model's folder: numbers that the protocol requires to be equal."""

from __future__ import annotations

import numpy as np

from rtl_core.backend.certify.bench import (
    PROMPT,
    SAVING,
    SCORING,
    SIGNS,
    Bench,
    logprobs_of,
    policy_data,
    sequences,
)
from rtl_core.backend.certify.plugin import case


@case(
    "sampled logprobs are the model's", needs=SCORING, without="importance ratios and the KL to the teacher are wrong"
)
async def test_sampled(bench: Bench) -> str:
    """The log-probabilities of sampled tokens equal the scores of these tokens, at any temperature and top_p."""
    sampler = await bench.base_sampler()
    words = []
    for shape in ({}, {"temperature": 0.5, "top_p": 0.9}):
        answers = await bench.sample(sampler, 4, 16, **shape)
        own = await bench.score(sampler, [[*PROMPT, *answer.tokens] for answer in answers])
        said = [np.asarray(answer.logprobs, np.float64) for answer in answers]
        scored = [scores[len(PROMPT) - 1 :] for scores in own]
        words.append(bench.compare(said, scored, f"sampled {shape or ''} and scored log-probabilities"))
    return "; ".join(words)


@case(
    "an untrained adapter changes nothing",
    needs=SAVING,
    without="the first step does not train the model that was sampled",
)
async def test_untrained(bench: Bench) -> str:
    """Trainer and sampler of a new adapter have the base model's log-probabilities."""
    trainer = await bench.trainer()
    base = await bench.score(await bench.base_sampler(), sequences())
    fresh = await bench.score(await bench.sampler_of(trainer, "fresh"), sequences())
    bench.compare(fresh, base, "a new adapter's and the base model's log-probabilities")
    return bench.compare(
        await bench.step(trainer, policy_data(SIGNS, base)),
        base,
        "the trainer's and the base model's log-probabilities",
    )


@case(
    "trainer and sampler agree",
    needs=SAVING,
    without="a run trains off-policy unnoticed: `optim/kl_sample_train_v1` is not small",
)
async def test_agree(bench: Bench) -> str:
    """After steps, a sampler of the new weights has the trainer's log-probabilities, not the old ones."""
    trainer = await bench.trainer()
    base = await bench.score(await bench.base_sampler(), sequences())
    for _ in range(2):
        await bench.step(trainer, policy_data(SIGNS, base))
    sampler = await bench.sampler_of(trainer, "stepped")
    scored = await bench.score(sampler, sequences())
    moved = np.abs(np.concatenate(scored) - np.concatenate(base)).mean()
    assert moved > 1e-3, (
        f"two steps moved the sampler's log-probabilities by {moved:.1e} in the mean: it has old weights"
    )
    return bench.compare(
        await bench.step(trainer, policy_data(SIGNS, base)), scored, "the trainer's and the sampler's log-probabilities"
    )


@case(
    "snapshots are frozen",
    needs=SAVING,
    without="answers sampled during a step come from two policies: `learning.staleness` is unreliable, and evaluations of earlier steps are wrong",
)
async def test_frozen(bench: Bench) -> str:
    """A sampler opened before steps has the same log-probabilities after them, while a newer one is in use."""
    trainer = await bench.trainer()
    base = await bench.score(await bench.base_sampler(), sequences())
    await bench.step(trainer, policy_data(SIGNS, base))
    early = await bench.sampler_of(trainer, "early")
    before = await bench.score(early, sequences())
    for _ in range(3):
        await bench.step(trainer, policy_data(SIGNS, base))
    late = await bench.sampler_of(trainer, "late")
    await bench.score(late, sequences())
    return bench.compare(
        await bench.score(early, sequences()), before, "a sampler's log-probabilities before and after steps"
    )


@case(
    "gradients add up",
    needs=("resume",),
    without="of large batches, which the SDK sends in parts, only a part is trained on",
)
async def test_add_up(bench: Bench) -> str:
    """A step after two passes over halves of a batch equals a step after one pass over the batch."""
    first = await bench.trainer()
    data = policy_data(SIGNS, await bench.trainer_logprobs(first, sequences()))
    path = await bench.save(first.save_state, "whole")
    seen = []
    for parts in ([data], [data[:2], data[2:]]):
        trainer = await bench.service.create_training_client_from_state_with_optimizer(path)
        for part in parts[:-1]:
            await trainer.forward_backward(part, "importance_sampling")
        await bench.step(trainer, parts[-1])
        seen.append(logprobs_of(await trainer.forward_backward(data, "importance_sampling"), data))
    return bench.compare(seen[1], seen[0], "log-probabilities after a step in two parts and in one")
