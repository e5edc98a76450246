"""Training clients through the bridge: opening, batches, steps, closing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
from starlette.requests import Request

from localtinker.bridge.capabilities import CLIPPING, LOSS, SEVERAL_TARGETS
from localtinker.bridge.promises import SHARE, WEIGHT
from localtinker.bridge.state import Bridge, Client
from localtinker.bridge.upstream import FailedError, UnreachableError
from localtinker.checks import check_data
from localtinker.errors import RequestError
from localtinker.futures import Json
from localtinker.losses import LOSSES
from localtinker.wire import TrainDatum, TrainRequest, decode_train_request, pb

FULL = ("Maximum number of LoRA adapters", "register_adapter")
"""In the engine's errors (JAX, FSDP): all its places for training clients are taken."""
ALL_TAKEN = "all the engine's places for training clients are taken"
PLACE_S = 400.0
"""How long a place is waited for. SkyRL drops clients that were not closed 300 s after their last heartbeat, and
looks for them once a minute."""
PAUSE_S = 5.0


async def create_model(bridge: Bridge, body: Json, request: Request) -> Json:
    bridge.check_model(body["base_model"])
    optimizer = body.get("optimizer_config") or {}
    left_out = any(value is False for value in body["lora_config"].values())  # a seed may be 0
    if optimizer.get("type", "adamw") != "adamw" or left_out:
        raise RequestError(
            "the engine trains adapters of all layers, with AdamW, and nothing else"
        )
    return _begin(bridge, body)


async def load_weights(bridge: Bridge, body: Json, request: Request) -> Json:
    if body.get("model_id"):
        return await _send(bridge, "/load_weights", body)
    info = await bridge.upstream.post("/weights_info", {"tinker_path": body["path"]})
    lora = {"rank": info["lora_rank"]}
    return _begin(bridge, {**body, "base_model": info["base_model"], "lora_config": lora})


def _begin(bridge: Bridge, body: Json) -> Json:
    """Begin to open a client, unless the same request was sent before."""
    own_id = f"{body['session_id']}:train:{body['model_seq_id']}"
    promise = f"b.{own_id}"
    if promise not in bridge.work:
        bridge.work[promise] = asyncio.create_task(_open(bridge, body, own_id))
    return {"request_id": promise}


async def _open(bridge: Bridge, body: Json, own_id: str) -> Json:
    session = body["session_id"]
    try:
        async with bridge.opening:
            if bridge.on_jax:
                await _clear_place(bridge, body)
            client = Client(await _created(bridge, body))
        bridge.sessions[session] = [*(bridge.sessions.get(session) or []), client]
        if "path" not in body:
            # The SDK takes the id from the answer: the engine's, which needs no memory.
            bridge.clients[client.model] = client
            return {"model_id": client.model}
        bridge.clients[own_id] = client
        state = {
            "model_id": client.model,
            "path": body["path"],
            "optimizer": body.get("optimizer"),
        }
        return await bridge.upstream.done("/load_weights", state)
    except UnreachableError as error:
        return {"error": f"the engine does not answer ({error})", "category": "server"}
    except RequestError as error:
        if error.status == 404:
            raise
        return {"error": error.message, "category": "user"}


async def _created(bridge: Bridge, body: Json) -> str:
    """Create a client at the engine, and wait for a place if all are taken. Returns the engine's id."""
    until = time.monotonic() + PLACE_S
    while True:
        try:
            made = await bridge.upstream.done("/create_model", body)
            bridge.waits_for = ""
            return str(made["model_id"])
        except FailedError as error:
            if not any(words in str(error) for words in FULL):
                raise
            bridge.waits_for = (
                f"{ALL_TAKEN} ({error}): other runs must end, or be silent for 300 s"
            )
            if time.monotonic() > until:
                raise FailedError(bridge.waits_for) from error
            await asyncio.sleep(PAUSE_S)


async def _clear_place(bridge: Bridge, body: Json) -> None:
    """JAX leaves the gradient of a client that was closed or dropped in its place, and would apply it in the
    first step of the next client there. A step with rate 0 of a client that is closed at once clears it."""
    client = {"model_id": await _created(bridge, body)}
    await bridge.upstream.done("/optim_step", {**client, "adam_params": {"learning_rate": 0.0}})
    await bridge.upstream.done("/unload_model", client)


async def forward_backward(bridge: Bridge, body: Json, request: Request) -> Json:
    content = await request.body()
    batch = decode_train_request(content, request.headers.get("content-encoding"))
    _check_batch(batch, bridge)
    client = bridge.client(batch.model_id)
    message = pb.ForwardBackwardRequest.FromString(content)
    message.model_id = client.model
    if bridge.on_jax:
        for datum, decoded in zip(message.data, batch.data, strict=True):
            _make_sum(datum.loss_fn_inputs["weights"], decoded)

    async def send() -> Json:
        call, kind = "POST /forward_backward", "application/x-protobuf"
        answer = await bridge.upstream.send(call, message.SerializeToString(), kind)
        promise = answer.json()["request_id"]
        client.sequences += 0 if batch.forward_only else len(batch.data)
        return {"request_id": f"f.{promise}"}

    return await bridge.once((client.model, batch.seq_id), send)


def _make_sum(weights: Any, datum: TrainDatum) -> None:
    """Write weights for which JAX's loss of a sequence, Σ w l / max(Σ w, 1e-9), is a sum times `SHARE`."""
    given = datum.inputs.get("weights", np.ones(len(datum.tokens_T)))
    if given.sum() * SHARE > 1:
        raise RequestError(f"weights: their sum must be at most {1 / SHARE:g} a sequence")
    weights.Clear()
    weights.dtype = pb.DTYPE_FLOAT32
    weights.dense = (given * WEIGHT).astype(np.float32).tobytes()


def _check_batch(batch: TrainRequest, bridge: Bridge) -> None:
    """Raise RequestError for a batch that the engine refuses, or computes with although it is wrong."""
    lacks = bridge.engine.lacks
    if LOSS + batch.loss_fn in lacks:
        raise RequestError(f"loss_fn: {lacks[LOSS + batch.loss_fn]}")
    loss = LOSSES.get(batch.loss_fn)
    check_data(batch, loss.required if loss else (), bridge.limits())
    if SEVERAL_TARGETS in lacks:
        for index, datum in enumerate(batch.data):
            if datum.inputs["target_tokens"].ndim > 1:
                raise RequestError(f"data[{index}].loss_fn_inputs: {lacks[SEVERAL_TARGETS]}")


async def optim_step(bridge: Bridge, body: Json, request: Request) -> Json:
    """JAX divides the gradient by the number of sequences: with eps scaled as the gradient is, AdamW's step is that of
    the sum."""
    adam = body["adam_params"]
    if bridge.on_jax and adam.get("grad_clip_norm"):
        raise RequestError(f"grad_clip_norm: {bridge.engine.lacks[CLIPPING]}")
    client = bridge.client(body["model_id"])
    client.moved = True
    if bridge.on_jax:
        adam["eps"] = adam.get("eps", 1e-12) * SHARE / max(client.sequences, 1)

    async def send() -> Json:
        answer = await _send(bridge, "/optim_step", body)
        client.sequences = 0
        return answer

    return await bridge.once((client.model, body.get("seq_id")), send)


async def unload_model(bridge: Bridge, body: Json, request: Request) -> Json:
    return await _send(bridge, "/unload_model", body)


async def _send(bridge: Bridge, route: str, body: Json) -> Json:
    """Pass a request of a client on, with the engine's id of the client."""
    model = bridge.client(body["model_id"]).model
    answer = await bridge.upstream.post(route, {**body, "model_id": model})
    return {**answer, "request_id": f"t.{answer['request_id']}"}


async def get_info(bridge: Bridge, body: Json, request: Request) -> Json:
    model = bridge.client(body["model_id"]).model
    info = await bridge.upstream.post("/get_info", {"model_id": model})
    data = info["model_data"]
    if limits := bridge.folders.get(data["model_name"]):
        data["tokenizer_id"] = str(limits.folder)
    rank = (data.get("lora_config") or {}).get("rank")
    return {"is_lora": True, "lora_rank": rank, **info, **body}


async def finish(bridge: Bridge, body: Json, request: Request) -> Json:
    """Close a session's training clients, which would otherwise keep their places for 300 s."""
    session = request.path_params["session"]
    clients, bridge.sessions[session] = bridge.sessions.get(session) or [], None
    for client in clients:
        await bridge.upstream.send("POST /unload_model", {"model_id": client.model})
    return {}


async def session_heartbeat(bridge: Bridge, body: Json, request: Request) -> Json:
    if bridge.sessions.get(body["session_id"], []) is None:
        raise RequestError("session_id: this session is finished", status=410)
    return await bridge.upstream.post("/session_heartbeat", body)
