"""SDK calls that every run makes, and those that only some options of a run or other programs make."""

from __future__ import annotations

import asyncio
from functools import partial

import numpy as np
import tinker
import torch
from tinker import types

from localtinker.certify.bench import LEARNING, SAMPLING, TRAINING, Bench
from localtinker.certify.cases import NotTriedError, case, option
from localtinker.certify.data import (
    PROMPT,
    TEXTS,
    after_prompt,
    are_logprobs,
    data_for,
    logprobs_of,
    own_loss,
    params,
    policy_data,
    prompt,
    sequences,
    variants,
)
from localtinker.client.requests import exchange_credential, supported_models
from localtinker.losses import LOSSES, policy_losses

GREEDY = {"temperature": 0.0}
OTHERS = "only other programs need it"
DISTRIBUTIONS = "`learning.algorithm = distribution_distillation` cannot be used"


@case(
    "capabilities",
    needs=(),
    without="no run can start: the server is unreachable, or does not list what it serves",
)
async def test_capabilities(bench: Bench) -> str:
    """The server accepts the key, and lists the models that it samples and trains."""
    server = bench.server
    auth = await exchange_credential(server.url, server.credential[0])
    server.token = await auth.get_token() or ""
    models = await supported_models(server.url, auth)
    assert models, "no model is listed"
    trainable = [name for name, model in models.items() if model.trainable is not False]
    local = [name for name in server.folders if name in trainable]
    choices = [*local, *trainable]
    server.student = server.student or next(iter(choices), None)
    assert server.student in models, (
        f"the student {server.student!r} is not listed; listed are {', '.join(models)}"
    )
    assert server.student in trainable, f"{server.student!r} is not trainable there"
    server.context = models[server.name].max_context_length
    length = f"{server.context:,} tokens" if server.context else "an unknown length"
    return f"{len(models)} models; the student is {server.student}, up to {length}"


@case("session", needs=("capabilities",), without="no run can start")
async def test_session(bench: Bench) -> str:
    """A session can be opened, and its heartbeat is accepted."""
    session_id = await bench.session_id()
    status, reply = await bench.heartbeat(session_id)
    assert status < 300, (
        f"the heartbeat is answered with {status} ({reply}), so the SDK considers the session lost"
    )
    return "opened and alive"


@case(
    "create_sampling_client",
    without="neither the untrained student nor a teacher can be sampled or scored",
)
async def test_base_sampler(bench: Bench) -> str:
    """A base model can be sampled without an adapter, as the first call of an examination."""
    (answer,) = await bench.sample(await bench.base_sampler(), 1, 4)
    return f"{len(answer.tokens)} tokens"


@case("create_lora_training_client", without="nothing can be trained")
async def test_create_lora(bench: Bench) -> str:
    """A new adapter of the requested rank can be opened on the student, and reports its model and rank."""
    info = (await bench.trainer()).get_info()
    model = info.model_data.model_name
    return bench.demand_described("the training client", model, info.lora_rank)


@case("sample", needs=SAMPLING, without="no groups of answers")
async def test_sample(bench: Bench) -> str:
    """One request returns several different samples, each with a log-probability for every token."""
    answers = await bench.sample(await bench.base_sampler(), 6, 24)
    for answer in answers:
        logprobs = answer.logprobs
        assert logprobs is not None, "a sample without logprobs"
        assert len(logprobs) == len(answer.tokens), (
            f"{len(logprobs)} logprobs for {len(answer.tokens)} tokens"
        )
        assert are_logprobs(np.asarray(logprobs)), "logprobs that are not log-probabilities"
    different = len({tuple(answer.tokens) for answer in answers})
    assert different > 1, "all samples of a request are the same"
    return f"{different} different ones of 6"


@case(
    "sample: max_tokens",
    needs=SAMPLING,
    without="`sampling.max_tokens` does not bound an answer",
)
async def test_max_tokens(bench: Bench) -> str:
    """An answer has at most max_tokens tokens; the reason at this limit is `length`."""
    for length in (1, 7):
        for answer in await bench.sample(await bench.base_sampler(), 4, length):
            count = len(answer.tokens)
            reason = str(answer.stop_reason)
            assert 0 < count <= length, f"{count} tokens where max_tokens is {length}"
            assert reason in ("stop", "length"), f"stop_reason {reason!r}"
            assert reason == "stop" or count == length, (
                f"{count} tokens of {length}, and the reason is {reason!r}"
            )
    return "1 and 7 tokens"


@case(
    "sample: stop tokens",
    needs=SAMPLING,
    without="answers do not end with the turn, or are trained on without their stop token",
)
async def test_stop_tokens(bench: Bench) -> str:
    """The first stop token is the last token of an answer, and the reason is `stop`."""
    sampler = await bench.base_sampler()
    free = await bench.sample(sampler, 4, 12)
    (greedy,) = await bench.sample(sampler, 1, 2, **GREEDY)
    later = [answer.tokens[3:6] for answer in free]
    stops = sorted({greedy.tokens[0]}.union(*later))
    (first,) = await bench.sample(sampler, 1, 12, stop=stops, **GREEDY)
    answers = [first, *await bench.sample(sampler, 8, 24, stop=stops)]
    count = 0
    for answer in answers:
        places = [place for place, token in enumerate(answer.tokens) if token in stops]
        stops_here = str(answer.stop_reason) == "stop"
        count += stops_here
        assert not places or places == [len(answer.tokens) - 1], (
            f"an answer continues after a stop token: {answer.tokens}"
        )
        assert stops_here == bool(places), (
            f"the reason is {answer.stop_reason!r}, and the stop token is {'' if places else 'not '}the last one"
        )
    stopped = bool(first.tokens) and first.tokens[-1] in stops
    assert stopped, "the likeliest token was a stop token and did not stop the answer"
    return f"{count} of {len(answers)} stopped"


@option(
    "sample: seed",
    needs=SAMPLING,
    without="a run cannot be reproduced token by token (`run.seed`)",
)
async def test_seed(bench: Bench) -> str:
    """The same seed gives the same sample, and different seeds give different ones."""
    sampler = await bench.base_sampler()
    samples = []
    for seed in (7, 7, 8, 9):
        (answer,) = await bench.sample(sampler, 1, 12, seed=seed)
        samples.append(tuple(answer.tokens))
    assert samples[0] == samples[1], "the same seed gave two different samples"
    assert len(set(samples)) > 1, "three seeds gave the same sample"
    return "the same sample twice"


@option(
    "sample: top_p",
    needs=SAMPLING,
    without="`sampling.top_p` and protocols of evaluation below 1 cannot be used",
)
async def test_top_p(bench: Bench) -> str:
    """A tiny top_p leaves only the likeliest token."""
    sampler = await bench.base_sampler()
    answers = await bench.sample(sampler, 6, 1, top_p=1e-6)
    tokens = {answer.tokens[0] for answer in answers}
    assert len(tokens) == 1, "top_p=1e-6 leaves more than one token"
    (greedy,) = await bench.sample(sampler, 1, 1, **GREEDY)
    tokens_to_score = (*tokens, greedy.tokens[0])
    texts = [[*PROMPT, token] for token in tokens_to_score]
    first, second = after_prompt(await bench.score(sampler, texts))
    bench.compare([first], [second], "the token that top_p left and the likeliest one")
    return "one token"


@case("compute_logprobs", needs=SAMPLING, without="no teacher, and no check of the trainer")
async def test_compute_logprobs(bench: Bench) -> str:
    """All tokens of a sequence but the first have a log-probability."""
    scores = await bench.base_scores()
    return f"{sum(map(len, scores))} tokens"


@case(
    "compute_logprobs: completion",
    needs=(*SAMPLING, "compute_logprobs"),
    without="no teacher: a run requests only the scores of a completion",
)
async def test_completion(bench: Bench) -> str:
    """With prompt_logprobs_last_n the last n tokens have the same scores as without it."""
    sampler = await bench.base_sampler()
    tokens = sequences(1, seed=3)[0]
    (whole,) = await bench.score(sampler, [tokens])
    values = await sampler.compute_logprobs(prompt(tokens), prompt_logprobs_last_n=4)
    last = values[-4:]
    count = len(last) - last.count(None)
    assert count == 4, f"{count} of the last 4 tokens are scored"
    return bench.compare(
        [np.asarray(last, np.float64)],
        [whole[-4:]],
        "the last 4 scores, requested alone and with all others,",
    )


@option("likeliest tokens", needs=(*SAMPLING, "compute_logprobs"), without=DISTRIBUTIONS)
async def test_likeliest(bench: Bench) -> str:
    """With topk_prompt_logprobs each scored position has its likeliest tokens, whose log-probabilities
    agree with the scores."""
    sampler = await bench.base_sampler()
    (greedy,) = await bench.sample(sampler, 1, 4, **GREEDY)
    tokens = [*PROMPT, *greedy.tokens]
    count = len(greedy.tokens)
    (scores,) = await bench.score(sampler, [tokens])
    answer = await sampler.sample(
        prompt(tokens),
        1,
        params(1),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=3,
        prompt_logprobs_last_n=count,
    )
    top = answer.topk_prompt_logprobs_np
    assert top is not None, "none are returned"
    values = np.asarray(top.logprobs, np.float64)[-count:]
    assert values.shape == (count, 3), (
        f"the shape of the 3 likeliest tokens at {count} positions is {values.shape}"
    )
    return bench.compare(
        [values[:, 0]],
        [scores[-count:]],
        "the likeliest tokens' log-probabilities and their scores",
    )


CONSEQUENCES = {
    **dict.fromkeys(LOSSES, OTHERS),
    **{loss: f"`learning.loss = {loss!r}` cannot be used" for loss in policy_losses()},
    "cross_entropy": "a warm start cannot be used (`learning.warm_start_steps`)",
    "importance_sampling": "nothing can be trained: it is the default loss, and most cases below need it",
}
"""Mapping of each loss to what a run cannot do without it."""


async def test_loss(bench: Bench, loss: str) -> str:
    """The loss {loss} of a batch matches its formula, with default and with other parameters."""
    trainer = await bench.trainer()
    base = await bench.trainer_logprobs(trainer, TEXTS, loss)
    words = ""
    for parameters in variants(loss):
        data = data_for(loss, base)
        output = await trainer.forward_backward(data, loss, parameters or None)  # type: ignore[arg-type]
        logprobs = logprobs_of(output, data)
        metrics = output.metrics
        finite = all(map(np.isfinite, metrics.values()))
        assert finite, f"metrics that are not finite: {metrics}"
        sum_by_formula = sum(
            float(own_loss(loss, torch.from_numpy(logp), item, parameters))
            for logp, item in zip(logprobs, data, strict=True)
        )
        reported = metrics.get("loss:sum")
        if reported is None:
            return f"{sum(map(len, logprobs))} tokens; no loss:sum is reported"
        allowed = 1e-3 * abs(sum_by_formula) + 1e-2
        assert abs(reported - sum_by_formula) <= allowed, (
            f"loss:sum is {reported:.5g}, but its formula gives {sum_by_formula:.5g} {parameters or ''}"
        )
        words = words or f"loss:sum {reported:.5g}, by its formula {sum_by_formula:.5g}"
    return words


for loss in LOSSES:
    register = partial(case, f"forward_backward: {loss}", needs=TRAINING, loss=loss)
    register(without=CONSEQUENCES[loss], needed=loss == "importance_sampling")(test_loss)


@option("forward", needs=(*LEARNING, "forward_backward: cross_entropy"), without=DISTRIBUTIONS)
async def test_forward(bench: Bench) -> str:
    """A forward pass gives the same log-probabilities as a training pass, and leaves no gradient."""
    trainer = await bench.trainer()
    zeros = [np.zeros(len(tokens) - 1) for tokens in TEXTS]
    data = data_for("cross_entropy", zeros)
    first = logprobs_of(await trainer.forward(data, "cross_entropy"), data)
    await trainer.optim_step(types.AdamParams(learning_rate=0.01))
    return bench.compare(
        logprobs_of(await trainer.forward_backward(data, "cross_entropy"), data),
        first,
        "after a step without gradients log-probabilities",
    )


@case("optim_step", needs=LEARNING, without="nothing is learnt")
async def test_optim_step(bench: Bench) -> str:
    """Steps make sequences with a positive advantage likelier than those with a negative one."""
    trainer = await bench.trainer()
    signs = (1.0, -1.0)
    texts = sequences(len(signs))
    before = await bench.trainer_logprobs(trainer, texts)
    adam = types.AdamParams(learning_rate=1e-3)
    await bench.step(trainer, policy_data(before, signs), 3, adam)
    after = await bench.trainer_logprobs(trainer, texts)
    # Both may become less likely, because they share weights.
    changes = zip(after, before, strict=True)
    up, down = (new.sum() - old.sum() for new, old in changes)
    words = f"3 steps moved them by {up:+.3g} and {down:+.3g}"
    assert up - down > 0.01, words
    return words


@case(
    "many requests in flight",
    needs=(*LEARNING, "compute_logprobs", "optim_step"),
    without="answers are mixed up or lost while a run samples a batch concurrently",
)
async def test_in_flight(bench: Bench) -> str:
    """About 50 concurrent requests all get their own answer, while a step is trained."""
    sampler = await bench.base_sampler()
    trainer = await bench.trainer()
    texts = sequences(16, seed=6)
    alone = await bench.score(sampler, texts[:4])
    prompts = [tokens[:8] for tokens in texts * 2]
    data = await bench.batch(trainer, (1.0, -1.0))
    shape = params(8)
    requests = [sampler.sample(prompt(tokens), 2, shape) for tokens in prompts]
    scores, _, *samples = await asyncio.gather(
        bench.score(sampler, texts),
        bench.step(trainer, data),
        *requests,
    )
    assert all(len(answer.sequences) == 2 for answer in samples), (
        "a request for 2 samples returned another number"
    )
    return bench.compare(
        scores[:4], alone, "scores of the same texts, alone and with other requests,"
    )


@option(
    "get_tokenizer",
    needs=TRAINING,
    without="only other programs need it; a run loads the tokenizer from the hub or from `[tinker.local_models]`",
)
async def test_get_tokenizer(bench: Bench) -> str:
    """The training client reports a tokenizer that can be loaded."""
    trainer = await bench.trainer()
    try:
        tokenizer = await asyncio.wait_for(asyncio.to_thread(trainer.get_tokenizer), 60)
    except (OSError, TimeoutError) as error:
        why = str(error).splitlines()[0] if str(error) else "the hub does not respond"
        raise NotTriedError(
            f"the tokenizer that the server names cannot be loaded here: {why}"
        ) from error
    text = "module mux(input a, output y);"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text, (
        "the tokenizer does not reproduce a text"
    )
    return f"{len(tokenizer)} tokens"


@option(
    "finish",
    needs=TRAINING,
    without="training clients of finished runs stay on the server until it drops them",
)
async def test_finish(bench: Bench) -> str:
    """A session can be finished, after which its heartbeat is answered with 410 or 404."""
    service = tinker.ServiceClient(base_url=bench.server.url, api_key=bench.server.api_key)
    session_id = (await asyncio.to_thread(lambda: service.holder)).get_session_id()
    await service.close("success")
    status, _ = await bench.heartbeat(session_id)
    assert status in (404, 410), f"a finished session's heartbeat is answered with {status}"
    return f"then {status}"
