"""A real model, SmolLM2-135M-Instruct, through the SDK against transformers, peft and torch on the same weights."""

from typing import Any

import numpy as np
import pytest
import tinker
import torch
from peft import PeftModel
from safetensors.torch import load_file
from tinker import types
from transformers import AutoModelForCausalLM

from rtl_core.localtinker.process import LocalTinker
from rtl_core.localtinker.registry import find_checkpoint

pytestmark = pytest.mark.slow
RATE = 1e-4


@pytest.fixture(scope="module")
def service(smollm2, tmp_path_factory):
    with LocalTinker({"smollm2": smollm2}, tmp_path_factory.mktemp("state")) as running:
        yield running


@pytest.fixture(scope="module")
def training(service):
    with tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key) as client:
        yield client.create_lora_training_client("smollm2", rank=32, seed=1).result()


@pytest.fixture(scope="module")
def plain(smollm2):
    return AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()


def truth(model: Any, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        logp = torch.log_softmax(model(input_ids=torch.tensor([tokens])).logits[0].float(), -1)
    return logp[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].numpy()


def sequences() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(20, 49_000, length).tolist() for length in (200, 65, 7)]


def test_served_logprobs_are_those_of_transformers(training, plain):
    sampler = training.save_weights_and_get_sampling_client().result()
    for tokens in sequences():
        prompt = types.ModelInput.from_ints(tokens)
        scored = sampler.compute_logprobs(prompt).result()
        np.testing.assert_allclose(np.array(scored[1:], float), truth(plain, tokens), atol=1e-4)
        answer = sampler.sample(prompt, 2, types.SamplingParams(max_tokens=24, stop=[], seed=3)).result()
        for sequence in answer.sequences:
            assert sequence.logprobs is not None
            expected = truth(plain, tokens + list(sequence.tokens))[len(tokens) - 1 :]
            np.testing.assert_allclose(sequence.logprobs, expected, atol=1e-4)


def test_train_steps_are_those_of_torch_and_peft(service, training, smollm2):
    """Two steps: in the first B is zero, so that A has no gradient. The served losses and weights equal plain ones."""

    def saved(name):
        found = find_checkpoint(service.state, training.save_state(name).result().path)
        assert found is not None
        return found.folder(service.state)

    begin = saved("begin")
    base = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    model: Any = PeftModel.from_pretrained(base, str(begin), is_trainable=True).eval()
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    before = {name: p.detach().clone() for name, p in named.items()}
    optimizer = torch.optim.AdamW(named.values(), RATE, (0.9, 0.95), eps=1e-8, weight_decay=0.0)
    rows = sequences()
    for _ in range(2):
        optimizer.zero_grad()
        expected = 0.0
        for row in rows:
            tokens, targets = torch.tensor([row[:-1]]), torch.tensor([row[1:]])
            logp = torch.log_softmax(model(input_ids=tokens).logits, -1).gather(-1, targets[..., None])
            (-logp.sum()).backward()
            expected -= float(logp.sum())
        optimizer.step()
        inputs: list[Any] = [{"target_tokens": row[1:]} for row in rows]
        data = [
            types.Datum(model_input=types.ModelInput.from_ints(row[:-1]), loss_fn_inputs=given)
            for row, given in zip(rows, inputs, strict=True)
        ]
        passed = training.forward_backward(data, "cross_entropy").result()
        training.optim_step(types.AdamParams(learning_rate=RATE, beta1=0.9, beta2=0.95, eps=1e-8)).result()
        assert passed.metrics["loss:sum"] == pytest.approx(expected, rel=1e-5)
    served = load_file(saved("end") / "adapter_model.safetensors")
    moved = apart = 0.0
    for name, parameter in named.items():
        mine = served[name.replace(".default", "")]
        moved += float((parameter.detach() - before[name]).square().sum())
        apart += float((parameter.detach() - mine).square().sum())
        assert (
            float((parameter.detach() - mine).abs().max()) <= 4 * RATE
        )  # an AdamW step moves by at most about its rate
    # AdamW divides by the gradient's size: where a gradient is next to nothing, rounding decides its sign.
    assert (apart / moved) ** 0.5 < 0.02
