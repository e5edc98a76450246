"""Deterministic mode: the same seed and prompt give the same bits, whatever else runs."""

from __future__ import annotations

import random

import pytest
import torch
from localtinker_helpers import connect, params, prompt, random_sequences, train

from rtl_core.localtinker.batching import is_batch_invariant
from rtl_core.localtinker.models import load_model
from rtl_core.localtinker.process import LocalTinker


@pytest.fixture(scope="module")
def service(models_by_name, tmp_path_factory):
    with LocalTinker(models_by_name, tmp_path_factory.mktemp("deterministic"), deterministic=True) as running:
        yield running


def draw(sampler, requests) -> dict[int, tuple[list[int], list[float]]]:
    """{request number: (tokens, logprobs)} of requests sent all at once."""
    futures = {n: sampler.sample(prompt(s), 1, params(length, seed=n)) for n, s, length in requests}
    return {n: (f.result().sequences[0].tokens, f.result().sequences[0].logprobs) for n, f in futures.items()}


def test_samples_do_not_depend_on_companions_or_on_the_order_of_arrival(service):
    requests = [(n, s, 10 + 11 * (n % 9)) for n, s in enumerate(random_sequences(40, seed=1, low=2, high=70))]
    with connect(service) as client:
        training = client.create_lora_training_client("student", rank=8, seed=1).result()
        train(training, 3, learning_rate=5e-3)
        sampler = training.save_weights_and_get_sampling_client().result()
        together = draw(sampler, requests)
        shuffled = requests.copy()
        random.Random(0).shuffle(shuffled)
        noise = [(1000 + n, s, 90) for n, s in enumerate(random_sequences(30, seed=2, low=2, high=120))]
        among_others = draw(sampler, [x for pair in zip(noise, shuffled, strict=False) for x in pair])
        assert {n: v for n, v in among_others.items() if n < 1000} == {n: together[n] for n, _, _ in shuffled[:30]}
        for request in requests[::13]:
            assert draw(sampler, [request]) == {request[0]: together[request[0]]}


def test_logprobs_do_not_depend_on_companions(service):
    sequences = random_sequences(30, seed=3, low=2, high=90)
    with connect(service) as client:
        sampler = client.create_sampling_client(base_model="teacher").result()
        alone = [sampler.compute_logprobs(prompt(s)).result() for s in sequences[:5]]
        futures = [sampler.compute_logprobs(prompt(s)) for s in reversed(sequences)]
        together = [f.result() for f in futures][::-1]
        assert together[:5] == alone


def test_a_restart_gives_the_same_samples(models_by_name, tmp_path, service):
    requests = [(n, s, 30) for n, s in enumerate(random_sequences(6, seed=4))]
    with connect(service) as client:
        first = draw(client.create_sampling_client(base_model="student").result(), requests)
    alone = {"student": models_by_name["student"]}
    with LocalTinker(alone, tmp_path, deterministic=True) as other, connect(other) as client:
        assert draw(client.create_sampling_client(base_model="student").result(), requests) == first


def test_rows_keep_their_bits_where_kernels_are_not_batch_invariant(models_by_name, monkeypatch):
    """In this process: with the check failing, every row must run alone, and still give one answer."""
    from rtl_core.localtinker import samplers
    from rtl_core.localtinker.sampling import PromptOptions, SampleRequest, SamplingOptions

    model = load_model("student", models_by_name["student"], dtype="float32", device="cpu", max_context=512)
    monkeypatch.setattr(samplers, "is_batch_invariant", lambda decoder, width: False)
    sampler = model.sampler(None, deterministic=True)
    answers = []

    def request(seed: int) -> SampleRequest:
        keep = lambda sequences, scores: answers.append(sequences[0].tokens)  # noqa: E731
        return SampleRequest([5, 6, 7], 1, seed, SamplingOptions(20), PromptOptions(), keep, lambda error: None)

    for group in ([1], [2, 1, 3]):
        batches = []
        for batch, rows in sampler.place([row for seed in group for row in request(seed).make_rows()], batches):
            batch.admit(rows)
            batches.append(batch)
        assert len(batches) == len(group)
        while any(batch.live for batch in batches):
            for batch in batches:
                batch.step()
    assert answers[0] == answers[2]
    assert len({tuple(a) for a in answers}) == 3


def test_the_check_of_batch_invariance_notices_a_kernel_that_is_not(models_by_name):
    model = load_model("student", models_by_name["student"], dtype="float32", device="cpu", max_context=512)
    decoder = model.sampler(None, deterministic=False).decoder
    assert is_batch_invariant(decoder, 128)  # true of the kernels of every CPU seen so far
    step = decoder.step

    def uneven(tokens, positions, cache, width):
        logits = step(tokens, positions, cache, width)
        return logits + 1e-6 * torch.arange(logits.shape[0])[:, None]

    decoder.step = uneven
    assert not is_batch_invariant(decoder, 128)
