"""Deterministic mode: the same seed and prompt give the same bits, independently of other requests."""

import random

import numpy as np
from localtinker_helpers import answered, params, prompt, random_sequences, train

from localtinker.sampling import PromptOptions, SampleJob, SamplingOptions


def draw(sampler, requests):
    """Mapping of request number to (tokens, logprobs), for requests sent at once."""
    futures = {
        n: sampler.sample(prompt(s), 1, params(length, seed=n)) for n, s, length in requests
    }
    return {
        n: (f.result().sequences[0].tokens, f.result().sequences[0].logprobs)
        for n, f in futures.items()
    }


def test_samples_do_not_depend_on_other_requests_or_their_order(deterministic_client):
    requests = [
        (n, s, 5 + 11 * (n % 5))
        for n, s in enumerate(random_sequences(14, seed=1, low=2, high=70))
    ]
    training = deterministic_client.create_lora_training_client(
        "student", rank=8, seed=1
    ).result()
    train(training, 3, learning_rate=5e-3)
    sampler = training.save_weights_and_get_sampling_client().result()
    together = draw(sampler, requests)
    shuffled = requests.copy()
    random.Random(0).shuffle(shuffled)
    noise = [
        (1000 + n, s, 40) for n, s in enumerate(random_sequences(10, seed=2, low=2, high=120))
    ]
    among_others = draw(
        sampler, [x for pair in zip(noise, shuffled, strict=False) for x in pair]
    )
    assert {n: v for n, v in among_others.items() if n < 1000} == {
        n: together[n] for n, _, _ in shuffled[:10]
    }
    for request in requests[::6]:
        assert draw(sampler, [request]) == {request[0]: together[request[0]]}


def test_logprobs_do_not_depend_on_other_requests(deterministic_client):
    sequences = random_sequences(30, seed=3, low=2, high=90)
    sampler = deterministic_client.create_sampling_client(base_model="teacher").result()
    alone = [sampler.compute_logprobs(prompt(s)).result() for s in sequences[:5]]
    futures = [sampler.compute_logprobs(prompt(s)) for s in reversed(sequences)]
    together = [f.result() for f in futures][::-1]
    assert together[:5] == alone


def job(seed=1, max_tokens=20, **prompt_options):
    return SampleJob(
        [5, 6, 7, 8], 1, seed, SamplingOptions(max_tokens), PromptOptions(**prompt_options)
    )


def test_each_row_runs_alone(student):
    sampler = student.sampler(None, deterministic=True)
    ((alone, _),), rows = answered(sampler, [job(seed=1)])
    together, others = answered(sampler, [job(seed=n) for n in (2, 1, 3)])
    assert rows + others == [1, 1, 1, 1]
    assert together[1][0] == alone
    assert len({tuple(sequences[0].tokens) for sequences, _ in together}) == 3


def test_scores_of_a_prompt_do_not_depend_on_the_number_of_requests(student, monkeypatch):
    """Even if the rounding of the head's product depends on the number of rows, as with some kernels."""
    sampler = student.sampler(None, deterministic=True)
    logits = sampler.decoder.logits
    monkeypatch.setattr(
        sampler.decoder, "logits", lambda hidden: logits(hidden) * (1 + 1e-6 * len(hidden))
    )
    jobs = [job(logprobs=True, max_tokens=1) for _ in range(4)]
    answers = [*answered(sampler, jobs[:1])[0], *answered(sampler, jobs[1:])[0]]
    for _, scores in answers:
        np.testing.assert_array_equal(scores.logprobs_P, answers[0][1].logprobs_P)
