"""Arithmetic that can be checked without the model's folder: numbers that the protocol requires to be equal."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

import numpy as np
import tinker
import torch
from tinker import types
from tinker.resources.training import AsyncTrainingResource

from localtinker.certify.bench import LEARNING, SAVING, SCORING, Bench
from localtinker.certify.cases import case, option
from localtinker.certify.data import (
    PROMPT,
    TEXTS,
    Data,
    after_prompt,
    data_for,
    logprobs_of,
    params,
    policy_data,
    prompt,
    sampled_logprobs,
)


@case(
    "sampled logprobs are the model's",
    needs=SCORING,
    without="importance ratios and the KL to the teacher are wrong",
)
async def test_sampled(bench: Bench) -> str:
    """The log-probabilities of sampled tokens equal the scores of these tokens, at any temperature and top_p."""
    sampler = await bench.base_sampler()
    words = []
    for shape in ({}, {"temperature": 0.5, "top_p": 0.9}):
        answers = await bench.sample(sampler, 4, 16, **shape)
        texts = [[*PROMPT, *answer.tokens] for answer in answers]
        own = await bench.score(sampler, texts)
        what = f"sampled {shape or ''} and scored log-probabilities"
        words.append(bench.compare(sampled_logprobs(answers), after_prompt(own), what))
    return "; ".join(words)


@option(
    "choices of a sample",
    needs=SCORING,
    without="`learning.choices_of = student` cannot be used",
)
async def test_choices(bench: Bench) -> str:
    """The likeliest tokens of a sample (topk_sample_logprobs) and the sampled ones have the log-probabilities that
    they have where they are named (target_prompt_logprobs)."""
    sampler = await bench.base_sampler()
    answer = await sampler.sample(prompt(PROMPT), 1, params(6), topk_sample_logprobs=3)
    (sequence,) = answer.sequences
    top = sequence.topk_logprobs_np
    assert top is not None, "no likeliest tokens are returned"
    named = np.column_stack([sequence.tokens, top.token_ids]).astype(np.int64)
    nothing = np.full((len(PROMPT) - 1, named.shape[1]), -1)
    ids = types.TensorData.from_numpy(np.concatenate([nothing, named]))
    text = prompt([*PROMPT, *sequence.tokens])
    scored = await sampler.sample(text, 1, params(1), target_prompt_logprobs=ids)
    target = scored.target_prompt_logprobs
    assert target is not None, "no scores of named tokens are returned"
    return bench.compare(
        [np.asarray(target.data)[-named.size :]],
        [np.column_stack([sequence.logprobs, top.logprobs]).ravel()],
        "log-probabilities in the sample and of the named tokens",
    )


@option("create_custom_loss", needs=LEARNING, without="only other programs need it")
async def test_custom_loss(bench: Bench) -> str:
    """A loss of one's own is computed for each sequence, by the server or by the SDK, and summed."""
    trainer = await bench.trainer()
    base = await bench.trainer_logprobs(trainer, TEXTS)

    def squares(logprobs: torch.Tensor, weights: torch.Tensor) -> Any:
        loss = (weights * logprobs**2).sum()
        return loss, {"custom/squares:sum": loss}

    handle = await bench.service.create_custom_loss(squares, {"logprobs": 1, "weights": 1})
    output = await trainer.forward_backward_custom(data_for("cross_entropy", base), handle)
    reported = output.metrics["custom/squares:sum"]
    by_formula = sum(float((logp_T**2).sum()) for logp_T in base)
    words = f"{reported:.5g}, by its formula {by_formula:.5g}"
    assert abs(reported - by_formula) <= 1e-3 * by_formula, f"the loss is {words}"
    return words


@case(
    "an untrained adapter changes nothing",
    needs=SAVING,
    without="the first step does not train the model that was sampled",
)
async def test_untrained(bench: Bench) -> str:
    """Trainer and sampler of a new adapter have the base model's log-probabilities."""
    trainer = await bench.trainer()
    base = await bench.base_scores()
    fresh = await bench.score(await bench.sampler_of(trainer, "fresh"))
    bench.compare(fresh, base, "a new adapter's and the base model's log-probabilities")
    return bench.compare(
        await bench.step(trainer, policy_data(base)),
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
    base = await bench.base_scores()
    trainer, data = await bench.learner()
    sampler = await bench.sampler_of(trainer, "stepped")
    scores = await bench.score(sampler)
    differences = np.concatenate(scores) - np.concatenate(base)
    movement = np.abs(differences).mean()
    assert movement > 1e-3, (
        f"two steps move the sampler's log-probabilities by {movement:.1e} in the mean: it has old weights"
    )
    bench.compare(
        await bench.base_scores(),
        base,
        "the base model's scores after steps",
    )
    return bench.compare(
        await bench.step(trainer, data),
        scores,
        "the trainer's and the sampler's log-probabilities",
    )


@option(
    "snapshots are frozen",
    needs=SAVING,
    without="`learning.staleness` and evaluations of earlier steps cannot be used",
)
async def test_frozen(bench: Bench) -> str:
    """A sampler opened before steps has the same log-probabilities after them, while a newer one is in use."""
    trainer, data = await bench.learner()
    early = await bench.sampler_of(trainer, "early")
    before = await bench.score(early)
    await bench.step(trainer, data, 3)
    late = await bench.sampler_of(trainer, "late")
    await bench.score(late)
    return bench.compare(
        await bench.score(early),
        before,
        "a sampler's log-probabilities before and after steps",
    )


@case(
    "no snapshot is another",
    needs=SAVING,
    without=(
        "answers sampled during a step come from two policies, and evaluations of earlier steps are wrong, "
        "without a word"
    ),
)
async def test_no_other_snapshot(bench: Bench) -> str:
    """A sampler opened before steps has the same log-probabilities after them, or is refused."""
    try:
        return await test_frozen(bench)
    except tinker.BadRequestError as error:
        return f"refused: {error.message}"[:200]


def first_sent_twice(method: Any) -> Any:
    """Return a method of the SDK that sends its first request twice."""
    calls = count()

    async def send(resource: Any, **arguments: Any) -> Any:
        if not next(calls):
            await method(resource, **arguments)
        return await method(resource, **arguments)

    return send


async def a_step(
    bench: Bench,
    path: str,
    data: Data,
    first: int = 0,
    beside: int = 0,
    sample: int = 0,
    twice: int = 0,
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
    trainer: tinker.TrainingClient = (
        await bench.service.create_training_client_from_state_with_optimizer(path)
    )
    with ExitStack() as stack:
        for name in ("forward_backward", "optim_step")[: 2 * twice]:
            method = first_sent_twice(getattr(AsyncTrainingResource, name))
            stack.enter_context(patch.object(AsyncTrainingResource, name, method))
        if first:
            await trainer.forward_backward(data[:first], "importance_sampling")
        if sample:
            for sampler in (
                await bench.base_sampler(),
                await bench.sampler_of(trainer, "between"),
            ):
                await bench.sample(sampler, sample, 2)
        await bench.step(trainer, data[first:])
    return trainer


way = partial(case, needs=("resume", "save_weights_for_sampler"))


async def same_step(bench: Bench, **flags: int) -> str:
    """Compare a step with the same step from the same state as `flags` say."""
    client = await bench.trainer()
    data = await bench.batch(client)
    path = await bench.save(client.save_state, "whole")
    results = []
    for arguments in ({}, flags):
        trainer = await a_step(bench, path, data, **arguments)
        output = await trainer.forward_backward(data, "importance_sampling")
        results.append(logprobs_of(output, data))
    return bench.compare(results[1], results[0], "log-probabilities after both steps")


@way(
    "gradients add up",
    without="of large batches, which the SDK sends in parts, only a part is trained on, or parts have other weights",
)
async def test_gradients(bench: Bench) -> str:
    """A step after passes over a part and the rest of a batch equals a step after one pass: gradients are
    sums, not means."""
    return await same_step(bench, first=1)


@way(
    "samplers leave a trainer alone",
    without="a run that samples while it trains loses gradients",
)
async def test_samplers(bench: Bench) -> str:
    """The same holds if the base model and a new sampler are sampled between the passes."""
    return await same_step(bench, first=2, sample=1)


@way(
    "no foreign gradients",
    without="after an interrupted step, or beside another run, a step includes gradients that are not its own",
)
async def test_foreign(bench: Bench) -> str:
    """A new trainer's step equals one that no other trainer's pass precedes."""
    return await same_step(bench, beside=1)


@way(
    "a repeated request",
    without="a request whose answer was lost, which the SDK sends again, is applied twice",
)
async def test_repeated(bench: Bench) -> str:
    """A pass and a step that arrive twice, with one sequence number, are applied once."""
    return await same_step(bench, first=1, twice=1)
