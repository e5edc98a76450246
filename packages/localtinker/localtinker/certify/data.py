"""Prompts and training data of cases, and the log-probabilities in the answers to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tinker import types

from localtinker.losses import LOSSES, RATIO_MASK

Floats = NDArray[np.float64]
Scores = list[Floats]
"""The log-probabilities of several texts."""
Texts = Sequence[Sequence[int]]
"""The tokens of several texts."""
Data = list[types.Datum]
PROMPT = (40, 41, 42, 43, 44, 45, 46)
VOCABULARY = 300
"""Upper limit of token ids, so that every model has them."""
SIGNS = (1.0, -1.0, 1.0, -1.0)
"""Advantages of four sequences."""


def prompt(tokens: Sequence[int]) -> types.ModelInput:
    return types.ModelInput.from_ints(list(tokens))


def params(max_tokens: int, **more: Any) -> types.SamplingParams:
    return types.SamplingParams(
        max_tokens=max_tokens, **{"temperature": 1.0, "stop": [], **more}
    )


def sequences(count: int = 4, seed: int = 0) -> list[list[int]]:
    """Return token sequences of different lengths."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        length = rng.integers(9, 24)
        texts.append(rng.integers(2, VOCABULARY, length).tolist())
    return texts


TEXTS = sequences()


def datum(full: Sequence[int], **inputs: Collection[float]) -> types.Datum:
    """Return a training datum of a complete sequence. Each input has a value for every token but the first."""
    tensor = types.TensorData.from_numpy
    tensors = {"target_tokens": tensor(np.asarray(full[1:], np.int64))}
    for name, values in inputs.items():
        tensors[name] = tensor(np.asarray(list(values), np.float32))
    return types.Datum(model_input=prompt(full[:-1]), loss_fn_inputs=tensors)


def inputs_of(loss: str) -> list[str]:
    """Return the names of a loss's inputs besides the targets."""
    names = list(LOSSES[loss].required)
    if "weights" in LOSSES[loss].optional:
        names.append("weights")
    return names


def data_for(loss: str, q: Scores) -> Data:
    """Return data for a loss: weights of 1, or sampler log-probabilities around `q` and advantages of both signs."""
    rng = np.random.default_rng(0)
    data = []
    for tokens, q_T in zip(sequences(len(q)), q, strict=True):
        count = len(tokens) - 1
        values = {
            "weights": np.ones(count),
            "logprobs": q_T + rng.normal(0, 0.4, count),
            "advantages": rng.normal(0, 1, count),
            RATIO_MASK: np.arange(count) >= count // 3,
        }
        inputs = {name: values[name] for name in inputs_of(loss)}
        data.append(datum(tokens, **inputs))
    return data


def policy_data(q: Scores, signs: Sequence[float] = SIGNS) -> Data:
    """Return data with one advantage per sequence, so that the direction of a step is known."""
    data = []
    for tokens, q_T, sign in zip(sequences(len(q)), q, signs, strict=True):
        advantages = np.full(len(tokens) - 1, sign)
        data.append(datum(tokens, logprobs=q_T, advantages=advantages))
    return data


def logprobs_of(output: types.ForwardBackwardOutput, data: Data) -> Scores:
    """Return the trainer's log-probabilities of each datum's targets, in order."""
    outputs = output.loss_fn_outputs
    count = len(outputs)
    assert count == len(data), f"{count} outputs for {len(data)} datums"
    logprobs = []
    for number, (record, item) in enumerate(zip(outputs, data, strict=True)):
        assert "logprobs" in record, (
            f"output {number} has no logprobs, only {', '.join(record) or 'nothing'}"
        )
        values = record["logprobs"].to_numpy().astype(np.float64).ravel()
        length = item.model_input.length
        assert len(values) == length, (
            f"output {number} has {len(values)} logprobs for {length} tokens"
        )
        assert np.isfinite(values).all(), f"output {number} has logprobs that are not finite"
        logprobs.append(values)
    return logprobs


def are_logprobs(values: Floats) -> bool:
    """Whether all values are finite and at most 0, up to rounding."""
    return bool((np.isfinite(values) & (values <= 1e-6)).all())


def sampled_logprobs(answers: Sequence[types.SampledSequence]) -> Scores:
    """Return the log-probabilities that come with sampled answers."""
    return [np.asarray(answer.logprobs, np.float64) for answer in answers]


def after_prompt(scores: Scores) -> Scores:
    """Return the scores of the tokens after `PROMPT`, of texts that begin with it."""
    return [scores_T[len(PROMPT) - 1 :] for scores_T in scores]


def scores(values: Sequence[float | None], count: int) -> Floats:
    """Validate the result of `compute_logprobs` for `count` tokens. Returns it without the first token."""
    assert len(values) == count, f"{len(values)} scores for {count} tokens"
    rest = values[1:]
    missing = rest.index(None) + 1 if None in rest else 0
    assert not missing, f"no score for token {missing} of {count}"
    logprobs = np.asarray(rest, np.float64)
    assert are_logprobs(logprobs), "scores that are not log-probabilities"
    return logprobs


def variants(name: str) -> list[dict[str, float]]:
    """Return sets of all parameters of a loss: the defaults of losses.py and, if there are any, other
    values."""
    own = dict(LOSSES[name].parameters)
    if not own:
        return [{}]
    other = {key: 2 * value for key, value in own.items()}
    if "clip_low_threshold" in own:
        other = {"clip_low_threshold": 0.6, "clip_high_threshold": 1.5}
    return [own, other]


def own_loss(
    name: str, logp: torch.Tensor, item: types.Datum, parameters: Mapping[str, float]
) -> torch.Tensor:
    """Return the loss of one datum from its log-probabilities, by losses.py."""
    inputs = {
        key: value.to_torch().double()
        for key, value in item.loss_fn_inputs.items()
        if key != "target_tokens"
    }
    loss = LOSSES[name]
    return loss.function(logp, inputs, {**loss.parameters, **parameters}).sum()
