"""Training through the SDK: the optimizer, the initialisation, custom losses, and what passes report.

That the gradient of each loss is torch's, that gradients add up, and that trainer and sampler agree, are cases of
`rtl-distill check-service`, which tests/backend/test_certify.py asks of this service.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from localtinker_helpers import cross_entropy_data, datum, prompt, random_sequences, train
from safetensors.torch import load_file
from tinker import types

from rtl_core.localtinker.registry import Registry

# AdamW with beta 0 and an enormous eps moves a parameter by -gradient: this step shows gradients through the SDK.
SHOW_GRADIENT = types.AdamParams(learning_rate=1e8, beta1=0.0, beta2=0.0, eps=1e8)


def checkpoint_folder(service, path: str) -> Path:
    """Where the files of a tinker:// path lie; they are an ordinary peft folder."""
    registry = Registry(service.state)
    try:
        return registry.blob_path(registry.checkpoint(path).blob)
    finally:
        registry.close()


def saved_weights(service, training_client, name: str) -> tuple[Path, dict[str, torch.Tensor]]:
    folder = checkpoint_folder(service, training_client.save_state(name).result().path)
    return folder, load_file(folder / "adapter_model.safetensors")


def test_training_lowers_the_loss_on_its_data(client):
    training = client.create_lora_training_client("student", rank=8, seed=1).result()
    data = cross_entropy_data(6)
    losses = []
    for _ in range(6):
        output = training.forward_backward(data, "cross_entropy")
        training.optim_step(types.AdamParams(learning_rate=5e-3))
        losses.append(output.result().metrics["loss:sum"])
    assert losses[-1] < 0.8 * losses[0]


def test_the_seed_fixes_the_initialisation(client, tinker_service):
    made = [client.create_lora_training_client("student", rank=4, seed=s).result() for s in (5, 5, 6)]
    weights = [saved_weights(tinker_service, c, "fresh")[1] for c in made]
    name = next(n for n in weights[0] if "lora_A" in n)
    assert torch.equal(weights[0][name], weights[1][name])
    assert not torch.equal(weights[0][name], weights[2][name])


@pytest.mark.parametrize("kind", ["attn", "mlp", "unembed"])
def test_only_the_chosen_kinds_of_layers_are_trained(client, tinker_service, kind):
    flags = {f"train_{k}": k == kind for k in ("attn", "mlp", "unembed")}
    training = client.create_lora_training_client("student", rank=4, seed=1, **flags).result()
    _, weights = saved_weights(tinker_service, training, "fresh")
    part = {"attn": "self_attn", "mlp": ".mlp.", "unembed": "lm_head"}[kind]
    assert weights
    assert all(part in name for name in weights)


def test_forward_computes_the_loss_without_gradients(client, tinker_service):
    training = client.create_lora_training_client("student", rank=4, seed=1).result()
    _, before = saved_weights(tinker_service, training, "before")
    output = training.forward(cross_entropy_data(), "cross_entropy").result()
    step = training.optim_step(types.AdamParams(learning_rate=1.0)).result()
    _, after = saved_weights(tinker_service, training, "after")
    assert output.metrics["loss:sum"] > 0
    assert step.metrics["grad_norm:mean"] == 0
    assert all(torch.equal(before[n], after[n]) for n in before)


def test_adam_steps_as_torch_adamw_does_with_clipping_and_decay(client, tinker_service):
    training = client.create_lora_training_client("student", rank=4, seed=1).result()
    train(training)
    data = cross_entropy_data(4, seed=3)
    settings = {"learning_rate": 3e-3, "beta1": 0.8, "beta2": 0.9, "eps": 1e-6, "weight_decay": 0.1}
    fresh = client.create_training_client_from_state(training.save_state("start").result().path).result()
    _, start = saved_weights(tinker_service, fresh, "start")

    shown = client.create_training_client_from_state(training.save_state("start2").result().path).result()
    shown.forward_backward(data, "cross_entropy")
    norm = shown.optim_step(SHOW_GRADIENT).result().metrics["grad_norm:mean"]
    _, moved = saved_weights(tinker_service, shown, "moved")

    clip = norm / 3
    fresh.forward_backward(data, "cross_entropy")
    fresh.optim_step(types.AdamParams(**settings, grad_clip_norm=clip)).result()
    _, after = saved_weights(tinker_service, fresh, "after")
    for name, value in start.items():
        parameter = torch.nn.Parameter(value.clone())
        parameter.grad = (value - moved[name]) * (clip / norm)
        torch.optim.AdamW([parameter], lr=3e-3, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1).step()
        assert torch.allclose(parameter.detach(), after[name], atol=2e-5), name


def test_a_custom_loss_trains_through_forward_backward_custom(client, tinker_service):
    """The SDK turns a custom loss into a weighted cross entropy: the same function must give the same gradient."""
    moved = []
    for custom in (True, False):
        training = client.create_lora_training_client("student", rank=4, seed=1).result()
        train(training)
        data = cross_entropy_data(3, seed=2)
        if custom:

            def loss(_data, logprobs):
                total = -sum((2.0 * lp).sum() for lp in logprobs)
                return total, {"twice": total.item()}

            result = training.forward_backward_custom(data, loss).result()
            assert "twice" in result.metrics
        else:
            data = [
                datum(
                    [*d.model_input.to_ints(), int(d.loss_fn_inputs["target_tokens"].data[-1])],
                    weights=[2.0] * d.model_input.length,
                )
                for d in data
            ]
            training.forward_backward(data, "cross_entropy").result()
        training.optim_step(SHOW_GRADIENT).result()
        moved.append(saved_weights(tinker_service, training, "moved")[1])
    assert all(torch.allclose(moved[0][n], moved[1][n], rtol=1e-3, atol=1e-4) for n in moved[0])


def test_cross_entropy_against_a_distribution_of_several_targets(client):
    """target_tokens [T, K] with weights [T, K]: the loss is the weighted sum over both."""
    training = client.create_lora_training_client("student", rank=4, seed=1).result()
    tokens = random_sequences(1, seed=1, low=6, high=7)[0]
    targets = torch.tensor([[5, 6], [7, 8], [9, 10], [11, 12], [13, 14], [15, 16]])
    weights = torch.rand(6, 2)
    item = types.Datum(
        model_input=prompt(tokens),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_torch(targets),
            "weights": types.TensorData.from_torch(weights),
        },
    )
    output = training.forward_backward([item], "cross_entropy").result()
    logprobs = output.loss_fn_outputs[0]["logprobs"].to_torch()
    assert logprobs.shape == (6, 2)
    assert output.metrics["loss:sum"] == pytest.approx(-(weights * logprobs).sum().item(), rel=1e-4)
    singles = [training.forward([datum([*tokens, 0][:7], weights=[0.0] * 6)], "cross_entropy").result()]
    assert singles[0].metrics["loss:sum"] == 0


def test_outputs_keep_the_order_and_length_of_the_data(client):
    training = client.create_lora_training_client("student", rank=4, seed=1).result()
    data = [datum(s, weights=[1.0] * (len(s) - 1)) for s in random_sequences(40, seed=6, low=2, high=70)]
    together = training.forward(data, "cross_entropy").result()
    assert [len(o["logprobs"].data) for o in together.loss_fn_outputs] == [d.model_input.length for d in data]
    alone = training.forward([data[17]], "cross_entropy").result()
    np.testing.assert_allclose(
        together.loss_fn_outputs[17]["logprobs"].data, alone.loss_fn_outputs[0]["logprobs"].data, atol=1e-4
    )


def test_get_info_and_tokenizer_describe_the_model(client):
    training = client.create_lora_training_client("student", rank=4).result()
    info = training.get_info()
    assert (info.is_lora, info.lora_rank, info.model_data.model_name, info.model_data.arch) == (
        True,
        4,
        "student",
        "qwen3",
    )
    tokenizer = training.get_tokenizer()
    assert tokenizer.decode(tokenizer.encode("module mux(input a);")) == "module mux(input a);"
