"""Rows of larger models share common prefixes of their prompts without a change of results."""

import numpy as np
import pytest
import torch
from localtinker_helpers import SHAPE, answered, served
from transformers import AutoModelForCausalLM, LlamaConfig

from localtinker import decoder, models
from localtinker.batching import GenerationBatch
from localtinker.sampling import PromptOptions, SampleJob, SampleRequest, SamplingOptions
from localtinker.wire import pb

CONFIG = LlamaConfig(**SHAPE | {"num_hidden_layers": 2, "initializer_range": 0.2})


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "LARGE_BYTES", 0)
    return served(tmp_path, CONFIG)


def group():
    """Answers to two prompts, one of them twice, and a prompt alone."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(3, 300, 60), rng.integers(3, 300, 45)
    rows = [np.r_[first, rng.integers(3, 300, n)] for n in (20, 7, 31)] + [
        np.r_[second, rng.integers(3, 300, 9)]
    ]
    return [row.tolist() for row in (*rows, rows[1], first)]


TARGETS = np.random.default_rng(1).integers(3, 300, (79, 3))
ASKED = [
    PromptOptions(logprobs=True, targets_RK=TARGETS),
    PromptOptions(logprobs=True, last_n=7),
    PromptOptions(logprobs=True, topk=3),
    PromptOptions(topk=2),
    PromptOptions(logprobs=True),
    PromptOptions(),
]


@pytest.mark.parametrize("tokens", [1, 4])
def test_scores_and_samples_equal_those_of_each_prompt_alone(model, tokens, monkeypatch):
    prompts = group()
    rows = []
    packed = decoder.DenseDecoder.packed_hidden

    def counted(self, layout):
        hidden = packed(self, layout)
        rows.append(len(hidden))
        return hidden

    monkeypatch.setattr(decoder.DenseDecoder, "packed_hidden", counted)
    options = SamplingOptions(max_tokens=tokens)
    jobs = [SampleJob(prompts[i], 2, i, options, ASKED[i]) for i in range(len(prompts))]
    together, _ = answered(model.sampler(None, deterministic=False), jobs)
    # The prompt alone has its last token as its own row. Prompts with more than one token to sample are not packed.
    assert rows == ([59 + (1 + 21 + 8 + 32) + 54] if tokens == 1 else [])
    for i, (sequences, scores) in enumerate(together):
        truth = true_logprobs(model, prompts[i])
        if ASKED[i].logprobs:
            first = 1 if ASKED[i].last_n is None else len(prompts[i]) - 7
            mine = scores.logprobs_P[first:]
            np.testing.assert_allclose(
                mine, truth[first - 1 :][np.arange(len(mine)), prompts[i][first:]], atol=1e-5
            )
        if ASKED[i].topk:
            best = np.sort(truth, -1)[:, ::-1][: len(prompts[i]) - 1, : ASKED[i].topk]
            np.testing.assert_allclose(scores.topk[1][1:], best, atol=1e-5)
        if ASKED[i].targets_RK is not None:
            theirs = np.take_along_axis(truth[: len(TARGETS)], TARGETS, -1)
            np.testing.assert_allclose(scores.targets[0], theirs, atol=1e-5)
        for sequence in sequences:
            assert abs(sequence.logprobs[0] - truth[-1][sequence.tokens[0]]) < 1e-5


@pytest.mark.parametrize("tokens", [1, 4])
def test_a_response_counts_a_prompt_that_another_of_its_pass_paid_for(model, tokens):
    """The fifth prompt is the second again, and the last job a later part of one that another process began."""
    options = SamplingOptions(max_tokens=tokens)
    jobs = [SampleJob(prompt, 2, 0, options, PromptOptions()) for prompt in group()]
    jobs.append(SampleJob(group()[3], 2, 0, options, PromptOptions(), first_sample=2))
    answers = {}
    requests = [
        SampleRequest(**vars(job), take=lambda answer, i=i: answers.setdefault(i, answer))
        for i, job in enumerate(jobs)
    ]
    batch = GenerationBatch(model.decoder(None), model.vocabulary)
    batch.admit([row for request in requests for row in request.make_rows()])
    while batch.live:
        batch.step()
    counted = [pb.SampleResponse.FromString(answers[i]) for i in range(len(jobs))]
    assert [one.prompt_cache_hit_tokens for one in counted] == [0, 0, 0, 0, 67, 0, 0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_groups_that_join_and_leave_a_batch_are_sampled_as_if_alone(tmp_path, model, dtype):
    """Groups of different sizes, with prompts and answers of different lengths."""
    if dtype != "float32":
        model = served(tmp_path, CONFIG, dtype)
    prompts = group()
    batch = GenerationBatch(model.decoder(None), model.vocabulary)
    requests, answers = {}, set()

    def admit(numbers):
        rows = []
        for i in numbers:
            options = SamplingOptions(max_tokens=(90, 3, 20, 40, 70, 2)[i])
            prompt, count = prompts[i], (4, 1, 2, 3, 2, 5)[i]
            requests[i] = SampleRequest(
                prompt, count, i, options, PromptOptions(), take=lambda _, i=i: answers.add(i)
            )
            rows += requests[i].make_rows()
        batch.admit(rows)

    admit([5, 1, 3])
    for number in range(120):
        if number in (1, 30):
            admit([0, 2] if number == 1 else [4])
        batch.step()
    assert not batch.live
    assert sorted(answers) == list(range(6))
    for i, request in requests.items():
        for sequence in request.rows:
            whole = prompts[i] + sequence.tokens
            truth = true_logprobs(model, whole[:-1])[len(prompts[i]) - 1 :]
            theirs = truth[np.arange(len(sequence.tokens)), sequence.tokens]
            np.testing.assert_allclose(
                sequence.logprobs, theirs, atol=1e-4 if dtype == "float32" else 0.3
            )


@torch.no_grad()
def true_logprobs(model, prompt):
    whole = AutoModelForCausalLM.from_pretrained(model.path, dtype=model.model.dtype)
    logits = whole(input_ids=torch.tensor([prompt]), use_cache=False).logits[0].float()
    return torch.log_softmax(logits, -1).numpy()
