"""Comparison with transformers and torch, for models whose folder is given."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import tinker
import torch
import torch.nn.functional as F
from tinker import types

from localtinker import models
from localtinker.certify.bench import ADAM, LEARNING, SCORING, Bench
from localtinker.certify.cases import NotTriedError, option
from localtinker.certify.data import (
    PROMPT,
    TEXTS,
    Data,
    Scores,
    Texts,
    after_prompt,
    data_for,
    logprobs_of,
    own_loss,
    sampled_logprobs,
    sequences,
    variants,
)
from localtinker.client.weights import download_external
from localtinker.lora import Tensors, pairs_by_module, read_adapter
from localtinker.losses import LOSSES

SHOW_GRADIENT = types.AdamParams(learning_rate=1e8, beta1=0.0, beta2=0.0, eps=1e8)
"""Adam without memory and with an enormous eps moves a parameter by -gradient, so that a step reveals the gradient."""
GRADIENT = 5
"""Allowed relative error of a gradient or step, in units of `Server.tolerance`."""


_model = cache(partial(models.by_transformers, dtype="float32", device="cpu"))
"""Folder -> its model."""


def folder_of(bench: Bench) -> Path:
    folder = bench.server.folders.get(bench.server.name)
    if folder is None:
        raise NotTriedError(
            f"give the model's folder to compare: --model {bench.server.name}=FOLDER"
        )
    return folder


async def by_transformers(bench: Bench, texts: Texts) -> Scores:
    """Return log-probabilities of all tokens but the first, computed by transformers."""

    def compute() -> Scores:
        model = _model(folder_of(bench))
        with torch.no_grad():
            tensors = [target_logprobs(model, text[:-1], text[1:]) for text in texts]
        return [tensor.numpy() for tensor in tensors]

    return await asyncio.to_thread(compute)


def target_logprobs(model: Any, tokens: Sequence[int], targets: Sequence[int]) -> torch.Tensor:
    tokens_1T = torch.tensor([list(tokens)])
    logits_TV = model(tokens_1T).logits[0].double()
    return -F.cross_entropy(logits_TV, torch.tensor(list(targets)), reduction="none")


WRONG = (
    "training and all figures are of a different model from that of the folder: other weights, other "
    "arithmetic, or quantised"
)


@option("scores", needs=SCORING, without=WRONG)
async def test_prompt_scores(bench: Bench) -> str:
    """The log-probabilities of texts equal those of transformers with the model's folder."""
    texts = sequences(6, seed=2)
    reference = await by_transformers(bench, texts)
    scores = await bench.base_scores(texts)
    return bench.compare(scores, reference, "scores and those of transformers")


@option("sampled logprobs", needs=SCORING, without=WRONG)
async def test_sampled_scores(bench: Bench) -> str:
    """The log-probabilities of sampled tokens equal those of transformers with the model's folder."""
    answers = await bench.sample(await bench.base_sampler(), 4, 16)
    texts = [[*PROMPT, *answer.tokens] for answer in answers]
    reference = await by_transformers(bench, texts)
    return bench.compare(
        sampled_logprobs(answers),
        after_prompt(reference),
        "sampled log-probabilities and those of transformers",
    )


async def adapter(
    bench: Bench, trainer: tinker.TrainingClient, name: str, folder: Path
) -> Tensors:
    """Download the trained adapter to `folder`. Returns its tensors."""
    path = await bench.save(trainer.save_weights_external, name)
    await download_external(bench.rest, path, folder)
    tensors = await asyncio.to_thread(read_adapter, folder)
    return {key: value.double() for key, value in tensors.items()}


def gradient_by_torch(
    model: Path,
    folder: Path,
    data: Data,
    name: str,
    parameters: Mapping[str, float],
) -> Tensors:
    """Return the gradient of a loss with respect to the adapter in `folder`, by tensor name, through
    transformers' model with weights W + alpha / r B A."""
    policy = _model(model)
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = {key: value.requires_grad_() for key, value in read_adapter(folder).items()}
    weights = dict(policy.named_parameters(remove_duplicate=False))
    scaling = config["lora_alpha"] / config["r"]

    def adapted(tokens: torch.Tensor) -> Any:
        weights_by_name = {}
        for layer, (lora_a, lora_b) in pairs_by_module(tensors).items():
            name = f"{layer}.weight"
            if name in weights:
                weights_by_name[name] = weights[name] + scaling * (lora_b @ lora_a)
        return torch.func.functional_call(policy, weights_by_name, (tokens,), tie_weights=False)

    for item in data:
        logp = target_logprobs(
            adapted, item.model_input.to_ints(), item.loss_fn_inputs["target_tokens"].tolist()
        )
        own_loss(name, logp, item, parameters).backward()  # type: ignore[no-untyped-call]
    return {
        key: value.grad.double() for key, value in tensors.items() if value.grad is not None
    }


def demand_close(bench: Bench, tensors: Tensors, reference: Tensors, what: str) -> str:
    """Assert that the norm of the difference of two sets of tensors is small, relative to the norm of `reference`."""
    other = sorted(tensors.keys() ^ reference.keys())
    assert not other, f"the adapter has other tensors than the model's layers: {other[:3]}"
    length = _norm(reference)
    differences = {key: tensors[key] - value for key, value in reference.items()}
    off = _norm(differences) / length if length else np.inf
    most = GRADIENT * bench.server.tolerance
    words = f"off by {off:.1e} of its length"
    assert off <= most, f"{what} is {words} (allowed: {most:g})"
    return words


def _norm(tensors: Tensors) -> float:
    return float(torch.nn.utils.get_total_norm(tensors.values()))


GRADIENTS = (*LEARNING, "external download")


async def a_step(
    bench: Bench, loss: str, parameters: Mapping[str, float], adam: types.AdamParams
) -> tuple[Tensors, Tensors, Tensors]:
    """Train one step with a loss. Returns the adapter before it, its movement, and the gradient by torch."""
    model = folder_of(bench)
    # New moments, and B ≠ 0, without which the gradient of A is 0.
    first, _ = await bench.learner()
    begun = await bench.save(first.save_state, "begun")
    trainer = await bench.service.create_training_client_from_state(begun)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "before"
        before = await adapter(bench, trainer, "before", folder)
        data = data_for(loss, await by_transformers(bench, TEXTS))
        output = await trainer.forward_backward(data, loss, dict(parameters) or None)  # type: ignore[arg-type]
        logprobs_of(output, data)
        await trainer.optim_step(adam)
        after = await adapter(bench, trainer, "after", Path(place) / "after")
        gradient = await asyncio.to_thread(
            gradient_by_torch, model, folder, data, loss, parameters
        )
    movement = {key: after[key] - value for key, value in before.items()}
    return before, movement, gradient


async def test_gradient(bench: Bench, loss: str) -> str:
    """The gradient of the loss {loss} equals that of torch for the same adapter."""
    words = []
    for parameters in variants(loss):
        _, movement, gradient = await a_step(bench, loss, parameters, SHOW_GRADIENT)
        negative = {key: -value for key, value in movement.items()}
        what = f"the gradient {parameters or ''}"
        words.append(demand_close(bench, negative, gradient, what))
    return "; ".join(words)


for loss in LOSSES:
    without = f"a step with the loss {loss} does not follow its formula"
    needs = (*GRADIENTS, f"forward_backward: {loss}")
    option(f"gradient: {loss}", needs=needs, without=without, loss=loss)(test_gradient)


@option(
    "a step of AdamW",
    needs=(*GRADIENTS, "gradient: importance_sampling"),
    without="learning rates do not have their usual meaning",
)
async def test_adam_step(bench: Bench) -> str:
    """The first step with new moments moves the adapter as torch's AdamW does."""
    before, movement, gradient = await a_step(bench, "importance_sampling", {}, ADAM)
    reference = {}
    for key, value in before.items():
        parameter = torch.nn.Parameter(value.clone())
        parameter.grad = gradient[key]
        betas = (ADAM.beta1, ADAM.beta2)
        optimizer = torch.optim.AdamW(
            [parameter], lr=ADAM.learning_rate, betas=betas, eps=ADAM.eps, weight_decay=0.0
        )
        optimizer.step()
        reference[key] = parameter.detach() - value
    return demand_close(bench, movement, reference, "the step")
