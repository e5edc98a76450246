"""Arithmetic that can be checked without the model's folder: numbers that the protocol requires to be equal."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest
import tinker
from _pytest.mark import ParameterSet
from tinker import types
from tinker.resources.training import AsyncTrainingResource

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
    bench.compare(
        await bench.score(await bench.base_sampler(), sequences()), base, "the base model's scores after steps"
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


def first_sent_twice(method: Any) -> Any:
    """Return a method of the SDK that sends its first request twice."""
    calls = count()

    async def send(resource: Any, **given: Any) -> Any:
        if not next(calls):
            await method(resource, **given)
        return await method(resource, **given)

    return send


async def a_step(
    bench: Bench, path: str, data: list[types.Datum], first: int = 0, beside: int = 0, sample: int = 0, twice: int = 0
) -> tinker.TrainingClient:
    """Train a step from a saved state. Returns the client.

    Args:
        first: number of sequences in a pass of their own.
        beside: sequences in a pass of another trainer before.
        sample: samples of the base model and of a new sampler between the passes.
        twice: whether the first pass and the step are sent twice.
    """
    if beside:
        await (await bench.trainer()).forward_backward(data[:beside], "importance_sampling")
    trainer: tinker.TrainingClient = await bench.service.create_training_client_from_state_with_optimizer(path)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("forward_backward", "optim_step")[: 2 * twice]:
            patch.setattr(AsyncTrainingResource, name, first_sent_twice(getattr(AsyncTrainingResource, name)))
        if first:
            await trainer.forward_backward(data[:first], "importance_sampling")
        if sample:
            for sampler in (await bench.base_sampler(), await bench.sampler_of(trainer, "between")):
                await bench.sample(sampler, sample, 2)
        await bench.step(trainer, data[first:])
    return trainer


def way(name: str, promise: str, without: str, **given: int) -> ParameterSet:
    return pytest.param(promise, given, marks=case(name, needs=("resume", "save_weights_for_sampler"), without=without))


@pytest.mark.parametrize(
    ("promise", "given"),
    [
        way(
            "gradients add up",
            "A step after passes over a part and the rest of a batch equals a step after one pass: gradients are sums, not means.",
            "of large batches, which the SDK sends in parts, only a part is trained on, or parts have other weights",
            first=1,
        ),
        way(
            "samplers leave a trainer alone",
            "The same holds if the base model and a new sampler are sampled between the passes.",
            "a run that samples while it trains loses gradients",
            first=2,
            sample=1,
        ),
        way(
            "no foreign gradients",
            "A new trainer's step equals one that no other trainer's pass precedes.",
            "after an interrupted step, or beside another run, a step includes gradients that are not its own",
            beside=1,
        ),
        way(
            "a repeated request",
            "A pass and a step that arrive twice, with one sequence number, are applied once.",
            "a request whose answer was lost, which the SDK sends again, is applied twice",
            first=1,
            twice=1,
        ),
    ],
)
async def test_ways(bench: Bench, promise: str, given: dict[str, int]) -> str:
    """{promise}"""
    client = await bench.trainer()
    data = policy_data(SIGNS, await bench.trainer_logprobs(client, sequences()))
    path = await bench.save(client.save_state, "whole")
    seen = []
    for flags in ({}, given):
        trainer = await a_step(bench, path, data, **flags)
        seen.append(logprobs_of(await trainer.forward_backward(data, "importance_sampling"), data))
    return bench.compare(seen[1], seen[0], "log-probabilities after both steps")
