"""Sampling and scoring through the bridge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from localtinker.bridge.calls import Call
from localtinker.bridge.capabilities import FROZEN_SAMPLERS, TOPK_SCORES
from localtinker.bridge.promises import scored
from localtinker.bridge.state import Bridge, Client, check_tokens, listed, newest_of
from localtinker.bridge.upstream import Json, accepted
from localtinker.errors import NotFoundError, RequestError

MAX_SAMPLES = 1024
NEW_OPTIONS = ("topk_sample_logprobs", "target_prompt_logprobs", "prompt_alt_tokens_k")
"""Options that the engines ignore: without a refusal their results would be missing."""


async def asample(call: Call) -> Json:
    bridge, body = call.bridge, call.json()
    for option in NEW_OPTIONS:
        if body.get(option):
            raise RequestError(
                f"{option}: {bridge.engine.name} {bridge.engine.version} has none"
            )
    if body.get("topk_prompt_logprobs") and TOPK_SCORES in bridge.engine.lacks:
        raise RequestError(f"topk_prompt_logprobs: {bridge.engine.lacks[TOPK_SCORES]}")
    base_model, path = await _weights_of(bridge, body)
    if path is not None and not bridge.frozen:
        await _check_newest(bridge, path)
    length = _checked_length(bridge, body, base_model)
    answer = accepted(await bridge.upstream.send("POST", "/asample", json.dumps(body).encode()))
    last_n = body.get("prompt_logprobs_last_n") or length - 1
    wanted = body.get("prompt_logprobs") or body.get("topk_prompt_logprobs")
    promise = scored(answer["request_id"], length if wanted else 0, last_n)
    ids = [f"{promise}:{index}" for index in range(body["num_samples"])]
    return {"request_id": promise, "sample_sequence_ids": ids}


def _checked_length(bridge: Bridge, body: Json, base_model: str) -> int:
    """Check a request for samples, and fill in what the engine requires. Returns the prompt's length."""
    try:
        tokens = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
        params: dict[str, Any] = body["sampling_params"]
        count = body.setdefault("num_samples", 1)
        limits = bridge.limits.get(base_model)
        check_tokens("prompt", tokens, limits)
        if params.get("max_tokens") is None and limits is not None:
            params["max_tokens"] = max(limits.context - len(tokens), 1)
        if isinstance(params.get("stop"), str):
            params["stop"] = [params["stop"]]
        wrong = _wrong_option(count, params)
    except (KeyError, TypeError) as error:
        raise RequestError(
            f"body: not a request for samples ({error!r})", status=422
        ) from error
    if wrong:
        raise RequestError(wrong)
    return len(tokens)


def _wrong_option(count: int, params: Mapping[str, Any]) -> str | None:
    if not 1 <= count <= MAX_SAMPLES:
        return f"num_samples: must be between 1 and {MAX_SAMPLES}"
    if params.get("max_tokens") is not None and params["max_tokens"] < 1:
        return "sampling_params.max_tokens: must be at least 1"
    if params.get("temperature", 1) < 0:
        return "sampling_params.temperature: must not be below 0"
    if not 0 < params.get("top_p", 1) <= 1:
        return "sampling_params.top_p: must be above 0 and at most 1"
    return None


async def create_sampling_session(call: Call) -> Json:
    """Refuse weights that do not exist or cannot be sampled now, instead of at the first sample."""
    bridge, body = call.bridge, call.json()
    path = body.get("model_path")
    if path is None:
        bridge.check_model(str(body.get("base_model")))
    else:
        saved = await listed(bridge, path.removeprefix("tinker://").split("/")[0])
        if path not in {one["tinker_path"] for one in saved}:
            raise NotFoundError(f"model_path: {path!r} does not exist")
        if not bridge.frozen:
            await _check_newest(bridge, path)
    return await bridge.upstream.post("/create_sampling_session", body)


async def _weights_of(bridge: Bridge, body: Json) -> tuple[str, str | None]:
    """Return base model and path of the weights that a request samples."""
    session = body.get("sampling_session_id")
    if session is None:
        return str(body.get("base_model") or bridge.models[0]), body.get("model_path")
    if session not in bridge.samplers:
        answer = await bridge.upstream.send("GET", f"/samplers/{session}")
        sampler = accepted(answer)
        bridge.samplers[session] = sampler["base_model"], sampler.get("model_path")
    return bridge.samplers[session]


async def _check_newest(bridge: Bridge, path: str) -> None:
    """Raise if the engine would sample other weights than those at `path`.

    SkyRL's GPU backends sample the weights that a client saved last. JAX samples what is in the client's slot:
    it puts saved weights there before their first sample, which moves the trainer back to them, and not again.
    """
    model = path.removeprefix("tinker://").split("/")[0]
    client = bridge.clients.get(bridge.aliases.get(model, model))
    if client is None and not bridge.on_jax:
        client = Client(model, await newest_of(bridge, model))
        bridge.clients[model] = client
    if client is None or client.newest is None:
        raise NotFoundError(
            f"{path} cannot be sampled: its client is not open here. Open a client from the state of the same "
            "name and save its weights again"
        )
    consequence = bridge.engine.lacks[FROZEN_SAMPLERS]
    if path != client.newest:
        raise RequestError(
            f"{path} is not the newest of its client, which is {client.newest}: {consequence}"
        )
    if bridge.on_jax and client.moved:
        raise RequestError(f"{path}: its client was trained since: {consequence}")
