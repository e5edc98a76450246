"""Sampling and scoring through the bridge."""

from __future__ import annotations

from localtinker.bridge.capabilities import FROZEN_SAMPLERS, TOPK_SCORES
from localtinker.bridge.state import Bridge, Call, check_tokens, model_of
from localtinker.bridge.upstream import Json
from localtinker.errors import NotFoundError, RequestError

NEW_OPTIONS = ("topk_sample_logprobs", "target_prompt_logprobs", "prompt_alt_tokens_k")
"""Options that engines ignore: without a refusal their results would be missing."""


async def asample(call: Call) -> Json:
    bridge = call.bridge
    lacks = bridge.engine.lacks
    body = call.json("prompt", "sampling_params")
    for option in NEW_OPTIONS:
        if body.get(option):
            raise RequestError(f"{option}: {bridge.engine.name} has none")
    if body.get("topk_prompt_logprobs") and TOPK_SCORES in lacks:
        raise RequestError(f"topk_prompt_logprobs: {lacks[TOPK_SCORES]}")
    sampled = await _sampled(bridge, body)
    if sampled.get("model_path"):
        await _check_newest(bridge, sampled["model_path"])
    length = _checked_length(body, bridge, sampled["base_model"])
    promise = (await bridge.upstream.post("/asample", body))["request_id"]
    if body.get("prompt_logprobs") or body.get("topk_prompt_logprobs"):
        last_n = body.get("prompt_logprobs_last_n") or length - 1
        promise = f"s.{length}.{last_n}.{promise}"
    else:
        promise = f"t.{promise}"
    ids = [f"{promise}:{index}" for index in range(body["num_samples"])]
    return {"request_id": promise, "sample_sequence_ids": ids}


async def _sampled(bridge: Bridge, body: Json) -> Json:
    """Return base model and path of the weights that a request samples."""
    session = body.get("sampling_session_id")
    if session is None:
        return {"base_model": bridge.engine.models[0], **body}
    if session not in bridge.samplers:
        bridge.samplers[session] = (
            await bridge.upstream.send(f"GET /samplers/{session}")
        ).json()
    return bridge.samplers[session]


def _checked_length(body: Json, bridge: Bridge, model: str) -> int:
    """Check a request for samples, and fill in what the engine requires. Returns the prompt's length."""
    tokens = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
    limits = bridge.limits.get(model)
    check_tokens("prompt", tokens, limits)
    params = body["sampling_params"]
    if limits is not None and params.get("max_tokens") is None:
        params["max_tokens"] = max(limits.context - len(tokens), 1)
    if isinstance(params.get("stop"), str):
        params["stop"] = [params["stop"]]
    if body.setdefault("num_samples", 1) < 1:
        raise RequestError("num_samples: must be at least 1")
    if params.get("temperature", 1) < 0:
        raise RequestError("sampling_params.temperature: must not be below 0")
    return len(tokens)


async def create_sampling_session(call: Call) -> Json:
    bridge, body = call.bridge, call.json()
    path = body.get("model_path")
    if path is None:
        bridge.check_model(body.get("base_model"))
    elif path not in await bridge.saved(model_of(path), "sampler_weights"):
        raise NotFoundError(f"model_path: {path!r} does not exist")
    else:
        await _check_newest(bridge, path)
    return await bridge.upstream.post("/create_sampling_session", body)


async def _check_newest(bridge: Bridge, path: str) -> None:
    """Raise if the engine would sample other weights than those at `path`.

    SkyRL's GPU backends sample the weights that a client saved last. JAX samples what is in the client's place:
    it puts saved weights there before their first sample, which moves the trainer back to them, and not again.
    """
    consequence = bridge.engine.lacks.get(FROZEN_SAMPLERS)
    if consequence is None:
        return
    model = model_of(path)
    client = next((one for one in bridge.clients.values() if one.model == model), None)
    if client is None and not bridge.on_jax:  # opened through an earlier process of the bridge
        client = bridge.client(model)
        client.newest = (await bridge.saved(model, "sampler_weights"))[-1]
    if client is None or client.newest is None:
        raise NotFoundError(
            f"{path} cannot be sampled: its client is not open here. Open a client from the state of the same "
            "name, and save its weights again"
        )
    if path != client.newest or (bridge.on_jax and client.moved):
        raise RequestError(
            f"{path} is no longer what its client samples ({client.newest}): {consequence}"
        )
