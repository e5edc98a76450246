"""`forward` runs on another path than `forward_backward`: both give the same numbers, at every moment of a training."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from localtinker_helpers import datum, prompt, random_sequences, train
from tinker import types


def of_two_targets(tokens: list[int]) -> types.Datum:
    """Cross entropy against a distribution over two tokens a position."""
    targets = torch.tensor([[t, (t + 7) % 100] for t in tokens])
    weights = torch.full(targets.shape, 0.5)
    inputs = {"target_tokens": types.TensorData.from_torch(targets), "weights": types.TensorData.from_torch(weights)}
    return types.Datum(model_input=prompt(tokens), loss_fn_inputs=inputs)


def assert_both_agree(training, data) -> np.ndarray:
    outputs = [f(data, "cross_entropy").result() for f in (training.forward, training.forward_backward)]
    training.optim_step(types.AdamParams(learning_rate=0.0)).result()  # forgets the gradients
    flat = [np.concatenate([o["logprobs"].data for o in output.loss_fn_outputs]) for output in outputs]
    np.testing.assert_allclose(flat[0], flat[1], atol=1e-4)
    assert outputs[0].metrics["loss:sum"] == pytest.approx(outputs[1].metrics["loss:sum"], rel=1e-5)
    assert outputs[0].metrics["tokens:sum"] == outputs[1].metrics["tokens:sum"]
    return flat[0]


@pytest.mark.slow
def test_forward_and_forward_backward_agree_before_and_after_steps_and_a_load(client):
    training = client.create_lora_training_client("student", rank=8, seed=1).result()
    # Several passes, some of one long sequence, for which attention has a way of its own.
    sequences = [*random_sequences(30, seed=3, low=2, high=90), *random_sequences(3, seed=4, low=300, high=500)]
    data = [datum(s, weights=[1.0] * (len(s) - 1)) for s in sequences]
    data += [of_two_targets(s) for s in random_sequences(3, seed=5, low=5, high=30)]
    fresh = assert_both_agree(training, data)
    saved = training.save_state("fresh").result().path
    train(training, 3, learning_rate=5e-3)
    stepped = assert_both_agree(training, data)
    assert np.abs(stepped - fresh).max() > 0.1
    training.load_state(saved).result()
    np.testing.assert_array_equal(assert_both_agree(training, data), fresh)


def test_forward_answers_the_same_whatever_runs_beside_it(client):
    """Passes run side by side; which thread takes which must not show."""
    trainings = [client.create_lora_training_client("student", rank=8, seed=s).result() for s in (1, 2)]
    data = [datum(s, weights=[1.0] * (len(s) - 1)) for s in random_sequences(60, seed=6, low=20, high=90)]
    alone = [t.forward(data, "cross_entropy").result().metrics["loss:sum"] for t in trainings]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(t.forward, data, "cross_entropy") for t in trainings * 3]
        together = [f.result().result().metrics["loss:sum"] for f in futures]
    assert together == alone * 3
