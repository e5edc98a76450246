"""Hand-written training passes against autograd, on tiny models of every family. No HTTP."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from localtinker_helpers import SHAPE, served
from transformers import LlamaConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from localtinker import dense_training, models, trainer
from localtinker.lora import LoraSpec
from localtinker.trainer import TrainingModel
from localtinker.wire import TrainDatum, TrainRequest

CONFIGS: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SHAPE),
    "llama, tied": LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "qwen2, with biases": Qwen2Config(**SHAPE),
    "qwen3, with norms of heads": Qwen3Config(**SHAPE, head_dim=32),
}
WHOLE = LoraSpec(rank=4, seed=1)


def request():
    """A batch of different lengths; prompts have zero advantage."""
    rng = np.random.default_rng(0)
    data = []
    for length in (40, 25, 9):
        tokens = rng.integers(3, 400, length + 1)
        advantages = rng.standard_normal(length).astype(np.float32)
        advantages[: length // 2] = 0.0
        inputs = {
            "target_tokens": tokens[1:],
            "logprobs": np.full(length, -6.0, np.float32),
            "advantages": advantages,
        }
        data.append(TrainDatum(tokens[:-1], inputs))
    return TrainRequest("run", 1, "importance_sampling", {}, False, data)


def grouped_request():
    """Two groups whose prompts share a prefix, one with an answer twice, and a separate sequence.

    The last position of a prompt predicts each answer's first token, so it is a row with several targets.
    """
    rng = np.random.default_rng(3)
    system = rng.integers(3, 400, 9)
    data = []
    for prompt_length, answers in ((20, (12, 12, 5, 30)), (31, (3, 8)), (1, (14,))):
        prompt = np.r_[system, rng.integers(3, 400, prompt_length)]
        drawn = [rng.integers(3, 400, length) for length in answers]
        drawn[1:2] = drawn[:1] if len(answers) == 4 else drawn[1:2]
        for answer in drawn:
            tokens = np.r_[prompt, answer]
            advantages = np.r_[
                np.zeros(len(prompt) - 1), rng.standard_normal(len(answer))
            ].astype(np.float32)
            inputs = {
                "target_tokens": tokens[1:],
                "logprobs": np.full(len(advantages), -6.0, np.float32),
            }
            data.append(TrainDatum(tokens[:-1], {**inputs, "advantages": advantages}))
    return TrainRequest("run", 1, "importance_sampling", {}, False, data)


REQUESTS = {"apart": request, "in groups": grouped_request}


def logprobs_and_gradients(model, spec, asked):
    """Log-probabilities and gradients of a batch, for an adapter with B != 0."""
    training = TrainingModel("run", model, spec, micro_tokens=80)
    generator = torch.Generator().manual_seed(2)
    for parameter in training._parameters:
        parameter.data.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    outputs, _ = training.forward_backward(asked)
    alone, _ = training.forward_backward(replace(asked, forward_only=True))  # adds no gradient
    for mine, theirs in zip(alone["logprobs"], outputs["logprobs"], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    gradients = [p.grad for p in training._parameters if p.grad is not None]
    assert len(gradients) == len(training._parameters)
    training.release()
    return outputs["logprobs"], gradients


def both(model, monkeypatch, asked, spec=WHOLE):
    """Pairs of log-probabilities and pairs of gradients, by autograd and by hand."""
    assert not model.trains_by_hand
    expected = logprobs_and_gradients(model, spec, asked)
    monkeypatch.setattr(models, "LARGE_BYTES", 0)
    assert model.trains_by_hand
    by_hand = logprobs_and_gradients(model, spec, asked)
    return [list(zip(*pair, strict=True)) for pair in zip(expected, by_hand, strict=True)]


def assert_equal(pairs):
    """Assert that pairs of gradients are equal up to rounding."""
    for theirs, mine in pairs:
        torch.testing.assert_close(
            mine, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max())
        )


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("room", ["for every layer", "for one layer", "for none"])
@pytest.mark.parametrize("data", REQUESTS)
def test_gradients_equal_autograds(tmp_path, monkeypatch, name, room, data):
    model = served(tmp_path, CONFIGS[name])
    one_layer = dense_training.layer_bytes(model.model)[0] * 80
    budget = {"for every layer": 1 << 30, "for one layer": one_layer, "for none": 0}[room]
    monkeypatch.setattr(trainer, "ACTIVATION_BYTES", budget)
    monkeypatch.setattr(dense_training, "LOGIT_BYTES", 0 if room == "for none" else 1 << 30)
    logprobs, gradients = both(model, monkeypatch, REQUESTS[data]())
    for theirs, mine in logprobs:
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    assert_equal(gradients)


def test_gradients_pass_through_layers_without_an_adapter(tmp_path, monkeypatch):
    spec = LoraSpec(rank=4, seed=1, train_mlp=False, train_unembed=False)
    assert_equal(both(served(tmp_path, CONFIGS["llama"]), monkeypatch, request(), spec)[1])


def test_gradients_of_a_cross_entropy_with_a_distribution_equal_autograds(
    tmp_path, monkeypatch
):
    rng = np.random.default_rng(1)
    inputs = {
        "target_tokens": rng.integers(3, 400, (20, 3)),
        "weights": rng.random((20, 3)).astype(np.float32),
    }
    asked = TrainRequest(
        "run", 1, "cross_entropy", {}, False, [TrainDatum(rng.integers(3, 400, 20), inputs)]
    )
    assert_equal(both(served(tmp_path, CONFIGS["llama"]), monkeypatch, asked)[1])


def test_in_bfloat16_the_adapter_is_not_rounded_away(tmp_path, monkeypatch):
    """Gradients of float32 parameters, near those of autograd in bfloat16."""
    model = served(tmp_path, CONFIGS["llama"], dtype="bfloat16")
    for theirs, mine in both(model, monkeypatch, request())[1]:
        assert mine.dtype == torch.float32
        assert float((mine - theirs).norm() / theirs.norm()) < 0.1
