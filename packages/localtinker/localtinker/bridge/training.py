"""Training clients through the bridge: opening, batches, steps, closing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from localtinker.bridge.capabilities import CLIPPING, LOSS, SEVERAL_TARGETS
from localtinker.bridge.promises import SHARE, WEIGHT, failure
from localtinker.bridge.state import Bridge, Call, Client, check_tokens
from localtinker.bridge.upstream import FailedError, Json, UnreachableError
from localtinker.errors import RequestError
from localtinker.losses import LOSSES
from localtinker.wire import TrainRequest, decode_train_request, pb

FULL = ("Maximum number of LoRA adapters", "register_adapter")
"""In the engine's errors (JAX, FSDP): all its places for training clients are taken."""
ALL_TAKEN = "all the engine's places for training clients are taken"
PLACE_S = 400.0
"""How long a place is waited for. SkyRL drops clients that were not closed 300 s after their last heartbeat, and
looks for them once a minute."""
PAUSE_S = 5.0


async def create_model(call: Call) -> Json:
    body = call.json("session_id", "base_model", "lora_config")
    call.bridge.check_model(body["base_model"])
    if (body.get("optimizer_config") or {}).get("type", "adamw") != "adamw":
        raise RequestError("optimizer_config: the engine has only AdamW")
    partial = [name for name, value in body["lora_config"].items() if value is False]
    if partial:
        raise RequestError(
            f"lora_config: the engine trains all layers, whatever {partial[0]} is"
        )
    return await _begin(call.bridge, body)


async def load_weights(call: Call) -> Json:
    bridge, body = call.bridge, call.json("path")
    if body.get("model_id"):
        return await _send(call, "/load_weights", body)
    info = await bridge.upstream.post("/weights_info", {"tinker_path": body["path"]})
    lora = {"rank": info["lora_rank"]}
    return await _begin(bridge, {**body, "base_model": info["base_model"], "lora_config": lora})


async def _begin(bridge: Bridge, body: Json) -> Json:
    session, number = body["session_id"], body["model_seq_id"]

    async def begin() -> Json:
        return bridge.begin(_open(bridge, body, f"{session}:train:{number}"))

    return await bridge.once((session, number), begin)


async def _open(bridge: Bridge, body: Json, own_id: str) -> Json:
    try:
        async with bridge.opening:
            if bridge.on_jax:
                await _clear_place(bridge, body)
            client = Client(await _created(bridge, body))
        bridge.sessions.setdefault(body["session_id"], []).append(client)
        if (
            "path" not in body
        ):  # the SDK takes the id from the answer, so it survives a restart of the bridge
            bridge.clients[client.model] = client
            return {"model_id": client.model}
        bridge.clients[own_id] = client
        state = {
            "model_id": client.model,
            "path": body["path"],
            "optimizer": body.get("optimizer"),
        }
        return await bridge.upstream.done("/load_weights", state)
    except FailedError as error:
        return failure(bridge, str(error))
    except UnreachableError as error:
        return {"error": f"the engine does not answer ({error})", "category": "server"}


async def _created(bridge: Bridge, body: Json) -> str:
    """Create a client at the engine, and wait for a place if all are taken. Returns the engine's id."""
    until = time.monotonic() + PLACE_S
    while True:
        try:
            made = await bridge.upstream.done("/create_model", body)
        except FailedError as error:
            if not any(words in str(error) for words in FULL):
                raise
            if time.monotonic() > until:
                raise FailedError(
                    f"{ALL_TAKEN}: other runs must end first, or it must have more ({error})"
                ) from error
            bridge.waits_for = f"{ALL_TAKEN}: waiting for one to be closed, or dropped without a heartbeat for 300 s"
            await asyncio.sleep(PAUSE_S)
        else:
            bridge.waits_for = ""
            return made["model_id"]


async def _clear_place(bridge: Bridge, body: Json) -> None:
    """JAX leaves the gradient of a client that was closed or dropped in its place, and would apply it in the
    first step of the next client there. A step with rate 0 of a client that is closed at once clears it."""
    client = {"model_id": await _created(bridge, body)}
    await bridge.upstream.done("/optim_step", {**client, "adam_params": {"learning_rate": 0.0}})
    await bridge.upstream.done("/unload_model", client)


async def forward_backward(call: Call) -> Json:
    bridge = call.bridge
    batch = decode_train_request(call.body, call.request.headers.get("content-encoding"))
    _check_batch(batch, bridge)
    client = bridge.client(batch.model_id)
    message = pb.ForwardBackwardRequest.FromString(call.body)
    message.model_id = client.model
    if bridge.on_jax:
        _make_sums(message, batch)

    async def send() -> Json:
        body = message.SerializeToString()
        answer = await bridge.upstream.send(
            "POST /forward_backward", body, "application/x-protobuf"
        )
        promise = answer.json()["request_id"]
        client.sequences += 0 if batch.forward_only else len(batch.data)
        return {"request_id": f"f.{promise}"}

    return await bridge.once((client.model, batch.seq_id), send)


def _make_sums(message: Any, batch: TrainRequest) -> None:
    """Give a batch weights for which JAX's loss of a sequence, Σ w l / max(Σ w, 1e-9), is a sum times `SHARE`."""
    for datum, decoded in zip(message.data, batch.data, strict=True):
        given = decoded.inputs.get("weights", np.ones(len(decoded.tokens_T)))
        if given.sum() * SHARE > 1:
            raise RequestError(f"weights: their sum must be at most {1 / SHARE:g} a sequence")
        tensor = datum.loss_fn_inputs["weights"]
        tensor.Clear()
        tensor.dtype = pb.DTYPE_FLOAT32
        tensor.dense = (given * WEIGHT).astype(np.float32).tobytes()


def _check_batch(batch: TrainRequest, bridge: Bridge) -> None:
    """Raise RequestError for a batch that the engine refuses, or computes with although it is wrong."""
    lacks = bridge.engine.lacks
    if LOSS + batch.loss_fn in lacks:
        raise RequestError(f"loss_fn: {lacks[LOSS + batch.loss_fn]}")
    loss = LOSSES.get(batch.loss_fn)
    limits = next(iter(bridge.limits.values()), None)
    for index, datum in enumerate(batch.data):
        where = f"data[{index}]"
        for name in ("target_tokens", *(loss.required if loss else ())):
            if name not in datum.inputs:
                raise RequestError(f"{where}.loss_fn_inputs: {batch.loss_fn} needs {name!r}")
        for name, values in datum.inputs.items():
            _check_input(f"{where}.loss_fn_inputs.{name}", values, len(datum.tokens_T), lacks)
        for tokens in (datum.tokens_T, datum.inputs["target_tokens"]):
            check_tokens(where, tokens, limits)


def _check_input(where: str, values: np.ndarray, length: int, lacks: Mapping[str, str]) -> None:
    if values.ndim > 1 and SEVERAL_TARGETS in lacks:
        raise RequestError(f"{where}: {lacks[SEVERAL_TARGETS]}")
    if len(values) != length:
        raise RequestError(f"{where}: {len(values)} values for {length} tokens")
    if not np.isfinite(values).all():
        raise RequestError(f"{where}: contains a number that is not finite")


async def optim_step(call: Call) -> Json:
    """JAX divides the gradient by the number of sequences: with eps scaled as the gradient is, AdamW's step is that of
    the sum."""
    bridge = call.bridge
    body = call.json("model_id", "adam_params")
    adam = body["adam_params"]
    if bridge.on_jax and adam.get("grad_clip_norm"):
        raise RequestError(f"grad_clip_norm: {bridge.engine.lacks[CLIPPING]}")
    client = bridge.client(body["model_id"])
    if bridge.on_jax:
        adam["eps"] = adam.get("eps", 1e-12) * SHARE / max(client.sequences, 1)
    client.moved = True

    async def send() -> Json:
        answer = await _send(call, "/optim_step", body)
        client.sequences = 0
        return answer

    return await bridge.once((client.model, body.get("seq_id")), send)


async def unload_model(call: Call) -> Json:
    return await _send(call, "/unload_model", call.json("model_id"))


async def _send(call: Call, route: str, body: Json) -> Json:
    """Pass a request of a client on, with the engine's id of the client."""
    client = call.bridge.client(body["model_id"])
    answer = await call.bridge.upstream.post(route, {**body, "model_id": client.model})
    return {**answer, "request_id": f"t.{answer['request_id']}"}


async def get_info(call: Call) -> Json:
    bridge = call.bridge
    body = call.json("model_id")
    model = bridge.client(body["model_id"]).model
    info = await bridge.upstream.post("/get_info", {"model_id": model})
    data = info["model_data"]
    limits = bridge.limits.get(data["model_name"])
    if limits is not None:
        data["tokenizer_id"] = str(limits.folder)
    rank = (data.get("lora_config") or {}).get("rank")
    return {"is_lora": True, "lora_rank": rank, **info, **body}


async def finish(call: Call) -> Json:
    """Close a session's training clients, which would otherwise keep their places for 300 s."""
    bridge, session = call.bridge, call.request.path_params["session"]
    clients = bridge.sessions.get(session) or []
    bridge.sessions[session] = None
    for client in clients:
        await bridge.upstream.send("POST /unload_model", {"model_id": client.model})
    return {}


async def session_heartbeat(call: Call) -> Json:
    body = call.json("session_id")
    if call.bridge.sessions.get(body["session_id"], []) is None:
        raise RequestError("session_id: this session is finished", status=410)
    return await call.bridge.upstream.post("/session_heartbeat", body)
