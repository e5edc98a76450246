"""SmolLM2-135M-Instruct through the SDK, against transformers, peft and torch with the same weights."""

import numpy as np
import pytest
import torch
from localtinker_helpers import connect, datum, saved_folder, saved_weights
from peft import PeftModel
from tinker import types
from transformers import AutoModelForCausalLM

from localtinker.process import LocalTinker

pytestmark = pytest.mark.slow
RATE = 1e-4


@pytest.fixture(scope="module")
def service(smollm2, tmp_path_factory):
    with LocalTinker({"smollm2": smollm2}, tmp_path_factory.mktemp("state")) as running:
        yield running


@pytest.fixture(scope="module")
def training(service):
    with connect(service) as client:
        yield client.create_lora_training_client("smollm2", rank=32, seed=1).result()


@pytest.fixture(scope="module")
def plain(smollm2):
    return AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()


def truth(model, tokens):
    with torch.no_grad():
        logp = torch.log_softmax(model(input_ids=torch.tensor([tokens])).logits[0].float(), -1)
    return logp[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].numpy()


def sequences():
    rng = np.random.default_rng(0)
    return [rng.integers(20, 49_000, length).tolist() for length in (200, 65, 7)]


def test_logprobs_equal_those_of_transformers(training, plain):
    sampler = training.save_weights_and_get_sampling_client().result()
    for tokens in sequences():
        prompt = types.ModelInput.from_ints(tokens)
        scored = sampler.compute_logprobs(prompt).result()
        np.testing.assert_allclose(np.array(scored[1:], float), truth(plain, tokens), atol=1e-4)
        answer = sampler.sample(
            prompt, 2, types.SamplingParams(max_tokens=24, stop=[], seed=3)
        ).result()
        for sequence in answer.sequences:
            expected = truth(plain, tokens + list(sequence.tokens))[len(tokens) - 1 :]
            np.testing.assert_allclose(sequence.logprobs, expected, atol=1e-4)


def test_train_steps_equal_those_of_torch_and_peft(service, training, smollm2):
    """Two steps, because in the first step B is zero and A has no gradient."""
    begin = saved_folder(service, training.save_state("begin").result().path)
    base = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, str(begin), is_trainable=True).eval()
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    before = {name: p.detach().clone() for name, p in named.items()}
    optimizer = torch.optim.AdamW(named.values(), RATE, (0.9, 0.95), eps=1e-8, weight_decay=0.0)
    rows = sequences()
    for _ in range(2):
        optimizer.zero_grad()
        expected = 0.0
        for row in rows:
            tokens, targets = torch.tensor([row[:-1]]), torch.tensor([row[1:]])
            logp = torch.log_softmax(model(input_ids=tokens).logits, -1).gather(
                -1, targets[..., None]
            )
            (-logp.sum()).backward()
            expected -= float(logp.sum())
        optimizer.step()
        passed = training.forward_backward(list(map(datum, rows)), "cross_entropy").result()
        training.optim_step(
            types.AdamParams(learning_rate=RATE, beta1=0.9, beta2=0.95, eps=1e-8)
        ).result()
        assert passed.metrics["loss:sum"] == pytest.approx(expected, rel=1e-5)
    served = saved_weights(service, training, "end")
    moved = apart = 0.0
    for name, parameter in named.items():
        mine = served[name.replace(".default", "")]
        moved += float((parameter.detach() - before[name]).square().sum())
        apart += float((parameter.detach() - mine).square().sum())
        # An AdamW step changes a weight by at most about its learning rate.
        assert float((parameter.detach() - mine).abs().max()) <= 4 * RATE
    # AdamW normalises gradients, so rounding decides the sign of the smallest ones.
    assert (apart / moved) ** 0.5 < 0.02
