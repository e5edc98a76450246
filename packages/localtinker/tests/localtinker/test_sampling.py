"""Sampling and scoring through the SDK, beyond the cases of `localtinker check-service` (test_certify.py)."""

import numpy as np
import pytest
import torch
from localtinker_helpers import PROMPT, params, prompt, raw_http, wait_for
from tinker import types
from transformers import AutoModelForCausalLM, AutoTokenizer, TopPLogitsWarper

from localtinker.sampling import SamplingOptions, _truncate


@pytest.fixture
def exact(deterministic_client):
    """A sampler whose tokens do not depend on the rest of the batch."""
    return deterministic_client.create_sampling_client(base_model="student").result()


@pytest.fixture(scope="module")
def reference(models_by_name):
    """The student, loaded with transformers."""
    return AutoModelForCausalLM.from_pretrained(
        models_by_name["student"], dtype=torch.float32
    ).eval()


def reference_logprobs(model, tokens):
    """[P, V] log-probabilities of the token after each position."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([list(tokens)])).logits[0].double(), -1)


def test_sampling_frequencies_follow_the_model_distribution(sampler, reference):
    count = 4000
    futures = [sampler.sample(prompt(), 1000, params(1, seed=s)) for s in range(count // 1000)]
    drawn = np.bincount(
        [s.tokens[0] for f in futures for s in f.result().sequences], minlength=512
    )
    truth = reference_logprobs(reference, PROMPT)[-1].exp().numpy()
    top = np.argsort(truth)[::-1][:12]
    sigma = np.sqrt(count * truth[top] * (1 - truth[top]))
    assert np.all(np.abs(drawn[top] - count * truth[top]) < 5 * sigma)


def test_temperature_sharpens_the_distribution(sampler, reference):
    response = sampler.sample(prompt(), 1000, params(1, seed=0, temperature=0.5)).result()
    truth = torch.softmax(reference_logprobs(reference, PROMPT)[-1] / 0.5, -1)
    best = int(truth.argmax())
    share = np.mean([s.tokens[0] == best for s in response.sequences])
    assert abs(share - truth[best].item()) < 5 * np.sqrt(truth[best].item() / 1000)


def test_samples_of_one_seeded_request_differ_and_start_with_the_single_one(exact):
    single = exact.sample(prompt(), 1, params(seed=7)).result().sequences[0].tokens
    several = [s.tokens for s in exact.sample(prompt(), 6, params(seed=7)).result().sequences]
    assert several[0] == single
    assert len({tuple(tokens) for tokens in several}) == 6


@pytest.mark.parametrize("temperature", [0.0, 1e-40])
def test_the_lowest_temperatures_are_greedy(sampler, reference, temperature):
    tokens = (
        sampler.sample(prompt(), 1, params(10, temperature=temperature))
        .result()
        .sequences[0]
        .tokens
    )
    truth = reference_logprobs(reference, [*PROMPT, *tokens])[len(PROMPT) - 1 : -1]
    chosen = truth[range(10), tokens]
    # Either of two tokens may be chosen whose probabilities differ by rounding only.
    torch.testing.assert_close(chosen, truth.max(-1).values, atol=1e-4, rtol=0)


def test_top_k_keeps_only_the_k_most_likely(sampler, reference):
    response = sampler.sample(prompt(), 300, params(1, seed=1, top_k=3)).result()
    allowed = set(reference_logprobs(reference, PROMPT)[-1].topk(3).indices.tolist())
    assert {s.tokens[0] for s in response.sequences} == allowed


def test_top_p_equals_that_of_transformers():
    shaped_BV = torch.log_softmax(
        3 * torch.randn(40, 200, generator=torch.Generator().manual_seed(0)), -1
    )
    for top_p in (0.05, 0.3, 0.7, 0.95):
        ours = _truncate(shaped_BV, [SamplingOptions(max_tokens=1, top_p=top_p)] * 40)
        theirs = TopPLogitsWarper(top_p)(None, shaped_BV.clone())
        torch.testing.assert_close(ours.softmax(-1), theirs.softmax(-1))
        assert (ours == -torch.inf).any()


def test_temperature_applies_before_top_p(sampler, reference):
    """As in other services: a low temperature makes the nucleus smaller."""
    response = sampler.sample(
        prompt(), 500, params(1, seed=1, temperature=0.2, top_p=0.7)
    ).result()
    cold = (reference_logprobs(reference, PROMPT)[-1] / 0.2)[None]
    nucleus = set(TopPLogitsWarper(0.7)(None, cold)[0].isfinite().nonzero()[:, 0].tolist())
    assert {s.tokens[0] for s in response.sequences} <= nucleus


def test_the_end_token_stops_unless_the_stop_list_is_empty(sampler, models_by_name):
    end = AutoTokenizer.from_pretrained(models_by_name["student"]).eos_token_id
    default = types.SamplingParams(max_tokens=400, seed=0)
    stopped = [
        s
        for s in sampler.sample(prompt(), 32, default).result().sequences
        if s.stop_reason == "stop"
    ]
    assert stopped
    assert all(s.tokens[-1] == end and end not in s.tokens[:-1] for s in stopped)
    free = sampler.sample(prompt(), 32, params(400, seed=0)).result().sequences
    assert all(len(s.tokens) == 400 and s.stop_reason == "length" for s in free)


def test_a_stop_string_ends_the_sample_even_across_tokens(exact, models_by_name):
    tokenizer = AutoTokenizer.from_pretrained(models_by_name["student"])
    free = exact.sample(prompt(), 1, params(40, seed=11)).result().sequences[0].tokens
    text = tokenizer.decode(free[9:11])  # a string of two tokens
    assert text
    stopped = exact.sample(prompt(), 1, params(40, seed=11, stop=[text])).result().sequences[0]
    assert stopped.stop_reason == "stop"
    assert stopped.tokens == free[: len(stopped.tokens)]
    assert text in tokenizer.decode(stopped.tokens)
    assert text not in tokenizer.decode(stopped.tokens[:-1])


def test_topk_prompt_logprobs_are_the_most_likely_tokens_at_each_position(sampler, reference):
    response = sampler.sample(
        prompt(),
        1,
        params(1),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=4,
        prompt_logprobs_last_n=3,
    ).result()
    rows = response.topk_prompt_logprobs
    assert len(rows) == len(PROMPT)
    assert rows[0] is None
    truth = reference_logprobs(reference, PROMPT)
    for position in range(len(PROMPT) - 3, len(PROMPT)):
        values, ids = truth[position - 1].topk(4)
        assert [i for i, _ in rows[position]] == ids.tolist()
        np.testing.assert_allclose([v for _, v in rows[position]], values, atol=1e-4)


def test_topk_sample_logprobs_contain_the_greedy_choice(sampler):
    response = sampler.sample(
        prompt(), 2, params(5, temperature=0.0), topk_sample_logprobs=3
    ).result()
    for sequence in response.sequences:
        assert [row[0][0] for row in sequence.topk_logprobs] == sequence.tokens
        np.testing.assert_allclose(
            [row[0][1] for row in sequence.topk_logprobs], sequence.logprobs, atol=1e-6
        )


@pytest.mark.parametrize("sparse", [False, True])
def test_target_prompt_logprobs_score_the_named_tokens(sampler, reference, sparse):
    ids = torch.full((len(PROMPT) - 1, 5), -1, dtype=torch.int64)
    ids[2, 1], ids[4, 0] = 77, 78
    target = (
        types.TensorData.from_torch_sparse(ids, pad_value=-1)
        if sparse
        else types.TensorData.from_torch(ids)
    )
    assert (target.sparse_crow_indices is not None) == sparse
    response = sampler.sample(prompt(), 1, params(1), target_prompt_logprobs=target).result()
    got = response.target_prompt_logprobs.to_torch()
    truth = reference_logprobs(reference, PROMPT)
    assert got[2, 1].item() == pytest.approx(truth[2, 77].item(), abs=1e-4)
    assert got[4, 0].item() == pytest.approx(truth[4, 78].item(), abs=1e-4)
    assert int(got.count_nonzero()) == 2


def test_cancelling_a_future_stops_the_work(tinker_service):
    # Not with the SDK, which can cancel only after it has read the request's id.
    body = {
        "base_model": "student",
        "num_samples": 256,
        "sampling_params": {"max_tokens": 2000, "stop": []},
    }
    body["prompt"] = {"chunks": [{"type": "encoded_text", "tokens": PROMPT}]}
    with raw_http(tinker_service) as http:
        request = http.post("asample", json=body).raise_for_status().json()["request_id"]
        wait_for(tinker_service, lambda status: status["rows_running"] >= 256)
        http.post("cancel_future", json={"request_id": request}).raise_for_status()
        wait_for(tinker_service, lambda status: status["rows_running"] == 0)
