"""Sampling and scoring through the bridge."""

from __future__ import annotations

from starlette.requests import Request

from localtinker.bridge.capabilities import FROZEN_SAMPLERS, TOPK_SCORES
from localtinker.bridge.state import Bridge
from localtinker.checks import check_tokens
from localtinker.errors import NotFoundError, RequestError
from localtinker.futures import Json
from localtinker.registry import run_of

NEW_OPTIONS = ("topk_sample_logprobs", "target_prompt_logprobs", "prompt_alt_tokens_k")


async def asample(bridge: Bridge, body: Json, request: Request) -> Json:
    for option in NEW_OPTIONS:
        if body.get(option):
            raise RequestError(f"{option}: {bridge.engine.name} has none")
    lacking = bridge.engine.lacks.get(TOPK_SCORES)
    if lacking and body.get("topk_prompt_logprobs"):
        raise RequestError(f"topk_prompt_logprobs: {lacking}")
    session = body.get("sampling_session_id") or ""
    if session and session not in bridge.samplers:
        sampler = await bridge.upstream.send(f"GET /samplers/{session}")
        bridge.samplers[session] = sampler.json()
    sampled = {**bridge.samplers.get(session, {}), **body}
    if sampled.get("model_path"):
        await _check_newest(bridge, sampled["model_path"])
    length = _check_request(body, bridge)
    kind = "t"
    if body.get("prompt_logprobs") or body.get("topk_prompt_logprobs"):
        last_n = body.get("prompt_logprobs_last_n") or length - 1
        kind = f"s.{length}.{last_n}"
    answer = await bridge.upstream.post("/asample", body)
    promise = f"{kind}.{answer['request_id']}"
    ids = [f"{promise}:{index}" for index in range(body["num_samples"])]
    return {"request_id": promise, "sample_sequence_ids": ids}


def _check_request(body: Json, bridge: Bridge) -> int:
    """Check a request for samples, and fill in what the engine requires. Returns the prompt's length."""
    tokens = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
    limits = bridge.limits()
    check_tokens("prompt", tokens, limits)
    params = body["sampling_params"]
    if limits.folder and params.get("max_tokens") is None:
        params["max_tokens"] = max(limits.max_context - len(tokens), 1)
    if isinstance(params.get("stop"), str):
        params["stop"] = [params["stop"]]
    if body.setdefault("num_samples", 1) < 1 or params.get("temperature", 1) < 0:
        raise RequestError("num_samples must be at least 1, and temperature not below 0")
    return len(tokens)


async def create_sampling_session(bridge: Bridge, body: Json, request: Request) -> Json:
    path = body.get("model_path")
    if path is None:
        bridge.check_model(body["base_model"])
    elif path not in await bridge.saved_for_sampling(run_of(path)):
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
    model = run_of(path)
    client = next((one for one in bridge.clients.values() if one.model == model), None)
    if client is None and not bridge.on_jax:  # opened through an earlier process of the bridge
        client = bridge.client(model)
        client.newest = (await bridge.saved_for_sampling(model))[-1]
    if client is None:
        raise NotFoundError(
            f"{path} cannot be sampled, because its client is not open: open one from the state of the same name, "
            "and save its weights again"
        )
    if path != client.newest or (bridge.on_jax and client.moved):
        raise RequestError(
            f"{path} is no longer what its client samples ({client.newest}): {consequence}"
        )
