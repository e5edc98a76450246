"""Training through the SDK: optimizer, initialisation, and outputs of passes.

The gradients of each loss, their accumulation, and the agreement of trainer and sampler are cases of `localtinker check-service`
(test_certify.py).
"""

import numpy as np
import pytest
import torch
from localtinker_helpers import (
    cross_entropy_data,
    datum,
    random_sequences,
    saved_weights,
    train,
)
from tinker import types

from localtinker.trainer import collate
from localtinker.wire import TrainDatum

# AdamW with beta 0 and an enormous eps changes a parameter by -gradient, so this step reveals gradients through the SDK.
SHOW_GRADIENT = types.AdamParams(learning_rate=1e8, beta1=0.0, beta2=0.0, eps=1e8)


def test_the_seed_determines_the_initialisation(client, tinker_service):
    made = [
        client.create_lora_training_client("student", rank=4, seed=s).result()
        for s in (5, 5, 6)
    ]
    weights = [saved_weights(tinker_service, c, "fresh") for c in made]
    name = next(n for n in weights[0] if "lora_A" in n)
    assert torch.equal(weights[0][name], weights[1][name])
    assert not torch.equal(weights[0][name], weights[2][name])


@pytest.mark.parametrize("kind", ["attn", "mlp", "unembed"])
def test_only_the_chosen_kinds_of_layers_are_trained(client, tinker_service, kind):
    flags = {f"train_{k}": k == kind for k in ("attn", "mlp", "unembed")}
    training = client.create_lora_training_client("student", rank=4, seed=1, **flags).result()
    weights = saved_weights(tinker_service, training, "fresh")
    part = {"attn": "self_attn", "mlp": ".mlp.", "unembed": "lm_head"}[kind]
    assert weights
    assert all(part in name for name in weights)


def test_steps_equal_torchs_adamw_with_clipping_and_decay(client, tinker_service):
    training = client.create_lora_training_client("student", rank=4, seed=1).result()
    train(training)
    data = cross_entropy_data(4, seed=3)
    settings = {
        "learning_rate": 3e-3,
        "beta1": 0.8,
        "beta2": 0.9,
        "eps": 1e-6,
        "weight_decay": 0.1,
    }
    fresh = client.create_training_client_from_state(
        training.save_state("start").result().path
    ).result()
    start = saved_weights(tinker_service, fresh, "start")

    shown = client.create_training_client_from_state(
        training.save_state("start2").result().path
    ).result()
    shown.forward_backward(data, "cross_entropy")
    norm = shown.optim_step(SHOW_GRADIENT).result().metrics["grad_norm:mean"]
    moved = saved_weights(tinker_service, shown, "moved")

    clip = norm / 3
    fresh.forward_backward(data, "cross_entropy")
    fresh.optim_step(types.AdamParams(**settings, grad_clip_norm=clip)).result()
    after = saved_weights(tinker_service, fresh, "after")
    for name, value in start.items():
        parameter = torch.nn.Parameter(value.clone())
        parameter.grad = (value - moved[name]) * (clip / norm)
        torch.optim.AdamW(
            [parameter], lr=3e-3, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1
        ).step()
        assert torch.allclose(parameter.detach(), after[name], atol=2e-5), name


def test_outputs_keep_the_order_and_length_of_the_data(client):
    training = client.create_lora_training_client("student", rank=4, seed=1).result()
    data = [
        datum(s, weights=[1.0] * (len(s) - 1))
        for s in random_sequences(40, seed=6, low=2, high=70)
    ]
    together = training.forward(data, "cross_entropy").result()
    assert [len(o["logprobs"].data) for o in together.loss_fn_outputs] == [
        d.model_input.length for d in data
    ]
    alone = training.forward([data[17]], "cross_entropy").result()
    np.testing.assert_allclose(
        together.loss_fn_outputs[17]["logprobs"].data,
        alone.loss_fn_outputs[0]["logprobs"].data,
        atol=1e-4,
    )


def test_weights_count_where_they_are_given_and_are_1_elsewhere():
    tokens, zero = np.arange(3), np.zeros(3, np.float32)
    plain = TrainDatum(tokens, {"target_tokens": tokens})
    weighted = TrainDatum(tokens, {"target_tokens": tokens, "weights": zero})
    for data, sums in (([plain, weighted], [3, 0]), ([weighted, plain], [0, 3])):
        inputs, _ = collate(data, ["weights"])
        assert inputs["weights"].sum((1, 2)).tolist() == sums
