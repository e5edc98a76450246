"""Sampling, scoring and training of any causal LM against transformers. In this process, no HTTP."""

import shutil

import localtinker_helpers
import numpy as np
import pytest
import torch
from localtinker_helpers import SHAPE, answered, train_request
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    Qwen2Config,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from localtinker import models, scoring, trainer
from localtinker.errors import ModelError
from localtinker.lora import LoraSpec
from localtinker.models import load_model
from localtinker.requests import AdamParams
from localtinker.sampling import PromptOptions, SampleJob, SamplingOptions
from localtinker.trainer import TrainingModel

CONFIGS = {
    "qwen3": (Qwen3Config(**SHAPE, head_dim=32), True),
    "qwen3 untied": (Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=False), True),
    "qwen2, with biases": (Qwen2Config(**SHAPE), True),
    "llama, scaled rope": (
        LlamaConfig(
            **SHAPE,
            rope_parameters={
                "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
            },
        ),
        True,
    ),
    "gemma2, sliding windows and soft caps": (Gemma2Config(**SHAPE, head_dim=16, sliding_window=8), False),
    "qwen3 mixture of experts": (
        Qwen3MoeConfig(**SHAPE, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2, head_dim=16), False,
    ),
    "qwen3.5, hybrid attention": (
        Qwen3_5TextConfig(
            **SHAPE | {"num_hidden_layers": 4}, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=16,
            linear_value_head_dim=16,
        ),
        False,
    ),
    "gpt2": (GPT2Config(vocab_size=400, n_embd=64, n_layer=2, n_head=4, n_positions=256, initializer_range=0.1), False),
}  # fmt: skip


@pytest.fixture(params=list(CONFIGS))
def served(request, tmp_path):
    config, dense = CONFIGS[request.param]
    return localtinker_helpers.served(tmp_path, config), dense


def run(sampler, prompts, max_tokens, options):
    """[(tokens, logprobs, scores)] of one sample per prompt, admitted together."""
    jobs = [
        SampleJob(tokens, 1, i, SamplingOptions(max_tokens), options)
        for i, tokens in enumerate(prompts)
    ]
    return [
        (sequences[0].tokens, sequences[0].logprobs, scores)
        for sequences, scores in answered(sampler, jobs)[0]
    ]


PLAIN = PromptOptions()
PROMPTS = [[5, 6, 7], [9, 8, 7, 6, 5, 4, 3, 2, 9, 11, 12], [100, 101, 102], [5, 6, 7, 8, 9]]


def truth(folder, tokens, dtype="float32"):
    """Log-probabilities of all tokens but the first, by transformers."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].double()
    return (
        torch.log_softmax(logits, -1)[:-1]
        .gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
        .numpy()
    )


def test_sampling_and_scoring_agree_with_transformers(served):
    model, dense = served
    assert model.dense == dense
    sampler = model.sampler(None, deterministic=False)
    for prompt, (tokens, logprobs, scores) in zip(
        PROMPTS, run(sampler, PROMPTS, 12, PromptOptions(logprobs=True)), strict=True
    ):
        expected = truth(model.path, prompt + tokens)
        np.testing.assert_allclose(logprobs, expected[len(prompt) - 1 :], atol=1e-4)
        np.testing.assert_allclose(
            scores.logprobs_P[1:], expected[: len(prompt) - 1], atol=1e-4
        )


@pytest.mark.parametrize(
    "options",
    [SamplingOptions(40), SamplingOptions(40, temperature=0.0), SamplingOptions(40, top_k=200)],
)
def test_ids_beyond_the_tokenizers_are_never_sampled(tmp_path, options):
    """A model's matrices are often padded to a round number of rows."""
    for name in ("qwen3", "gpt2"):
        model = localtinker_helpers.served(tmp_path / name, CONFIGS[name][0])
        known = max(localtinker_helpers.make_tokenizer().get_vocab().values()) + 1
        assert known < model.vocab_size
        job = SampleJob(PROMPTS[0], 16, 0, options, PromptOptions())
        ((sequences, _),), _ = answered(model.sampler(None, deterministic=False), [job])
        assert max(max(sequence.tokens) for sequence in sequences) < known
        np.testing.assert_allclose(
            sequences[0].logprobs,
            truth(model.path, PROMPTS[0] + sequences[0].tokens)[2:],
            atol=1e-4,
        )


def test_an_adapter_trains_and_samples_alike(served):
    """After a few steps, sampler and trainer log-probabilities agree and differ from the base's."""
    model, _ = served
    spec = LoraSpec(rank=4, seed=1)
    training = TrainingModel("run", model, spec, micro_tokens=64)
    sequences = [[*p, *p[::-1], 17] for p in PROMPTS]
    adam = AdamParams(learning_rate=5e-3)

    forward, backward = (train_request(sequences, forward_only=only) for only in (True, False))
    before = training.forward_backward(forward)[0]["logprobs"]
    for _ in range(4):
        training.forward_backward(backward)
        training.optim_step(adam)
    after = training.forward_backward(forward)[0]["logprobs"]
    passed = training.forward_backward(backward)[0]["logprobs"]
    np.testing.assert_allclose(np.concatenate(after), np.concatenate(passed), atol=1e-4)
    assert sum(map(np.sum, after)) > sum(map(np.sum, before)) + 1.0
    sampler = model.sampler((training.base.adapters.tensors("run"), spec), deterministic=False)
    scored = run(sampler, sequences, 1, PromptOptions(logprobs=True))
    base = run(
        model.sampler(None, deterministic=False), sequences, 1, PromptOptions(logprobs=True)
    )
    for (_, _, scores), logprobs in zip(scored + base, after + before, strict=True):
        np.testing.assert_allclose(scores.logprobs_P[1:], logprobs, atol=1e-4)
    training.release()
    again = run(
        model.sampler(None, deterministic=False), sequences, 1, PromptOptions(logprobs=True)
    )
    np.testing.assert_array_equal(again[0][2].logprobs_P, base[0][2].logprobs_P)


def test_bfloat16_weights_are_served_with_float32_adapters(tmp_path):
    model = localtinker_helpers.served(tmp_path, CONFIGS["qwen3"][0], dtype="bfloat16")
    assert model.dense
    training = TrainingModel("run", model, LoraSpec(rank=4, seed=1), micro_tokens=64)
    assert all(t.dtype == torch.float32 for t in training.base.adapters.tensors("run").values())
    tokens, logprobs, _ = run(
        model.sampler(
            (training.base.adapters.tensors("run"), training.spec), deterministic=False
        ),
        PROMPTS,
        12,
        PLAIN,
    )[1]
    expected = truth(model.path, PROMPTS[1] + tokens, "bfloat16")[len(PROMPTS[1]) - 1 :]
    np.testing.assert_allclose(logprobs, expected, atol=0.1)  # bfloat16 keeps 8 bits
    # With different rounding they would differ by percents, but importance ratios that start from `forward` must be exactly 1.
    requests = [
        train_request([range(5, 6 + n) for n in (20, 3, 11)], forward_only=only)
        for only in (True, False)
    ]
    forward, passed = (
        np.concatenate(training.forward_backward(r)[0]["logprobs"]) for r in requests
    )
    np.testing.assert_array_equal(forward, passed)


def test_recomputed_activations_give_the_same_gradients(tmp_path, monkeypatch):
    """Forced on a small model; only large models recompute activations."""
    norms = []
    for limit in (1 << 40, 0):
        monkeypatch.setattr(models, "CHECKPOINT_BYTES", limit)
        model = localtinker_helpers.served(tmp_path / str(limit), CONFIGS["qwen3"][0])
        assert model.recompute == (limit == 0)
        training = TrainingModel("run", model, LoraSpec(rank=4, seed=1), micro_tokens=64)
        training.forward_backward(train_request(PROMPTS))
        norms.append(
            float(
                torch.nn.utils.get_total_norm(
                    [p.grad for p in training._parameters if p.grad is not None]
                )
            )
        )
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_a_large_vocabulary_is_scored_and_trained_in_chunks(tmp_path, monkeypatch):
    model = localtinker_helpers.served(tmp_path, CONFIGS["qwen3"][0])
    seen = []
    for budget in (2**25, 1000):
        monkeypatch.setattr(trainer, "LOGIT_BUDGET", budget)
        monkeypatch.setattr(scoring, "LOGIT_BUDGET", budget)
        training = TrainingModel(
            f"run{budget}", model, LoraSpec(rank=4, seed=1), micro_tokens=64
        )
        outputs, _ = training.forward_backward(train_request(PROMPTS))
        grads = [p.grad for p in training._parameters]
        scores = run(
            model.sampler(None, deterministic=False),
            PROMPTS,
            1,
            PromptOptions(logprobs=True, topk=3),
        )
        seen.append(
            (
                np.concatenate(outputs["logprobs"]),
                grads,
                np.concatenate([s.logprobs_P[1:] for _, _, s in scores]),
            )
        )
    np.testing.assert_allclose(seen[0][0], seen[1][0], atol=1e-4)
    np.testing.assert_allclose(seen[0][2], seen[1][2], atol=1e-4)
    assert all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-4)
        for a, b in zip(seen[0][1], seen[1][1], strict=True)
    )


def test_a_folder_without_a_model_is_rejected_by_name(tmp_path):
    with pytest.raises(ModelError, match=r"cannot load .*config\.json"):
        load_model("x", tmp_path, dtype="float32", device="cpu", max_context=10)
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(ModelError, match="cannot load"):
        load_model("x", tmp_path, dtype="float32", device="cpu", max_context=10)


@pytest.mark.parametrize(
    ("file", "text"), [("tokenizer.json", "{"), ("generation_config.json", "[]")]
)
def test_a_folder_with_a_damaged_file_is_rejected_by_name(models_by_name, tmp_path, file, text):
    folder = shutil.copytree(models_by_name["student"], tmp_path / "model")
    (folder / file).write_text(text)
    with pytest.raises(ModelError, match="model 'x': cannot load"):
        load_model("x", folder, dtype="float32", device="cpu", max_context=10)
