"""Training clients through the bridge: opening, batches, steps, closing."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import numpy as np

from localtinker.bridge.calls import Call
from localtinker.bridge.capabilities import CLIPPING, LOSS, SEVERAL_TARGETS
from localtinker.bridge.promises import failure, trained
from localtinker.bridge.state import Bridge, Client, check_tokens
from localtinker.bridge.upstream import FailedError, Json, UnreachableError, accepted
from localtinker.errors import RequestError
from localtinker.losses import LOSSES
from localtinker.wire import TrainRequest, decode_train_request, pb

FULL = ("Maximum number of LoRA adapters", "_adapter_store_unsupported", "register_adapter")
"""In the engine's errors: all its places for training clients are taken."""
PLACE_S = 330.0
"""How long a place is waited for. SkyRL drops clients that were not closed 300 s after their last heartbeat, and
looks for them once a minute."""
_RETRY_S = 5.0


async def create_model(call: Call) -> Json:
    body = call.fields("session_id", "base_model", "lora_config")
    bridge = call.bridge
    bridge.check_model(body["base_model"])
    if (body.get("optimizer_config") or {}).get("type", "adamw") not in ("adam", "adamw"):
        raise RequestError("optimizer_config: the engine has only AdamW")
    partial = [name for name, on in body["lora_config"].items() if on is False]
    if partial:
        raise RequestError(
            f"lora_config: the engine trains all layers, so not {', '.join(partial)} = false"
        )
    return _begin(call, body, None)


async def load_weights(call: Call) -> Json:
    """Since SDK 0.38 one request opens a client from a state, and the SDK derives the client's id itself."""
    body = call.fields("path")
    if body.get("model_id"):
        client = call.bridge.client(body["model_id"])
        promise = await call.bridge.upstream.post(
            "/load_weights", body | {"model_id": client.model}
        )
        return {"request_id": trained(promise["request_id"])}
    info = await call.bridge.upstream.post("/weights_info", {"tinker_path": body["path"]})
    lora = {"rank": info["lora_rank"]}
    fields = {"base_model": info["base_model"], "lora_config": lora}
    return _begin(call, body | fields, body["path"])


def _begin(call: Call, body: Json, state: str | None) -> Json:
    """Begin to open a client, once for each sequence number: a request whose answer was lost is sent again."""
    bridge = call.bridge
    session, number = body["session_id"], body.get("model_seq_id")
    key = ("open", session, number)
    if key not in bridge.answered:
        own_id = f"{session}:train:{number}" if state is not None else None
        promise = bridge.begin(_open(bridge, body, state, own_id, key))
        bridge.answered[key] = {"request_id": promise}
    return bridge.answered[key]


async def _open(
    bridge: Bridge, body: Json, state: str | None, own_id: str | None, key: Any
) -> Json:
    fields = {name: body[name] for name in ("session_id", "base_model", "lora_config")}
    try:
        async with bridge.opening:
            if bridge.on_jax:
                await _clear_place(bridge, fields)
            made = await _created(bridge, fields, key)
        client = Client(made["model_id"], moved=state is not None)
        own_id = own_id or client.model
        bridge.clients[own_id] = client
        bridge.aliases[client.model] = own_id
        bridge.sessions.setdefault(body["session_id"], []).append(client)
        if state is None:
            return {"type": "create_model", "model_id": own_id}
        load = {
            "model_id": client.model,
            "path": state,
            "optimizer": body.get("optimizer", True),
        }
        await bridge.upstream.done("/load_weights", load)
        return {"type": "load_weights"}
    except FailedError as error:
        return failure(error.message)
    except UnreachableError as error:
        return {"error": f"the engine does not answer: {error}", "category": "server"}


async def _created(bridge: Bridge, fields: Json, key: Any) -> Json:
    """Create a client at the engine, and wait for a place if all are taken."""
    begun = time.monotonic()
    while True:
        try:
            return await bridge.upstream.done("/create_model", fields)
        except FailedError as error:
            if not any(words in error.message for words in FULL):
                raise
            if time.monotonic() - begun > PLACE_S:
                raise FailedError(
                    f"all the engine's places for training clients are taken ({error.message}); their number must "
                    "be larger, or other runs must end first"
                ) from error
            promise = bridge.answered.get(key, {}).get("request_id", "")
            bridge.waits[promise] = (
                "all the engine's places for training clients are taken: waiting for another client to be closed "
                "or, 300 s after its last heartbeat, dropped"
            )
            await asyncio.sleep(_RETRY_S)


async def _clear_place(bridge: Bridge, fields: Json) -> None:
    """JAX leaves the gradient of a client that was closed or dropped in its place, and would apply it in the
    first step of the next client there. A step with rate 0 of a client that is closed at once clears it."""
    made = await _created(bridge, fields, None)
    await bridge.upstream.done(
        "/optim_step", {"model_id": made["model_id"], "adam_params": {"learning_rate": 0.0}}
    )
    await bridge.upstream.done("/unload_model", {"model_id": made["model_id"]})


async def forward_backward(call: Call) -> Json:
    bridge = call.bridge
    batch = decode_train_request(call.body, call.request.headers.get("content-encoding"))
    client = bridge.client(batch.model_id)
    _check_batch(bridge, batch)
    # Of a field that occurs twice, protobuf takes the last.
    body = call.body + pb.ForwardBackwardRequest(model_id=client.model).SerializeToString()
    kind = "application/x-protobuf"
    answer = accepted(await bridge.upstream.send("POST", "/forward_backward", body, kind))
    return {"request_id": trained(answer["request_id"])}


def _check_batch(bridge: Bridge, batch: TrainRequest) -> None:
    """Raise RequestError for a batch that the engine refuses, or computes with although it is wrong."""
    lacks = bridge.engine.lacks
    if LOSS + batch.loss_fn in lacks:
        raise RequestError(f"loss_fn: {lacks[LOSS + batch.loss_fn]}")
    loss = LOSSES.get(batch.loss_fn)
    limits = next(iter(bridge.limits.values()), None)
    for index, datum in enumerate(batch.data):
        where = f"data[{index}]"
        check_tokens(f"{where}.model_input", datum.tokens_T, limits)
        for name in ("target_tokens", *(loss.required if loss else ())):
            if name not in datum.inputs:
                raise RequestError(f"{where}.loss_fn_inputs: {batch.loss_fn} needs {name!r}")
        for name, values in datum.inputs.items():
            _check_input(
                f"{where}.loss_fn_inputs[{name!r}]", values, len(datum.tokens_T), lacks
            )
        check_tokens(
            f"{where}.loss_fn_inputs['target_tokens']", datum.inputs["target_tokens"], limits
        )


def _check_input(where: str, values: np.ndarray, length: int, lacks: Json) -> None:
    if values.ndim > 1 and SEVERAL_TARGETS in lacks:
        raise RequestError(f"{where}: {lacks[SEVERAL_TARGETS]}")
    if len(values) != length:
        raise RequestError(f"{where}: {len(values)} values for {length} tokens")
    if not np.isfinite(values).all():
        raise RequestError(f"{where}: contains a number that is not finite")


async def optim_step(call: Call) -> Json:
    body = call.fields("model_id", "adam_params")
    bridge = call.bridge
    client = bridge.client(body["model_id"])
    if body["adam_params"].get("grad_clip_norm") and bridge.on_jax:
        raise RequestError(f"adam_params.grad_clip_norm: {bridge.engine.lacks[CLIPPING]}")
    client.moved = True
    answer = await bridge.upstream.post("/optim_step", body | {"model_id": client.model})
    return {"request_id": trained(answer["request_id"])}


async def unload_model(call: Call) -> Json:
    body = call.fields("model_id")
    client = call.bridge.client(body["model_id"])
    answer = await call.bridge.upstream.post("/unload_model", body | {"model_id": client.model})
    call.bridge.clients.pop(body["model_id"], None)
    return {**answer, "request_id": trained(answer["request_id"])}


async def get_info(call: Call) -> Json:
    body = call.fields("model_id")
    client = call.bridge.client(body["model_id"])
    info = await call.bridge.upstream.post("/get_info", {"model_id": client.model})
    data = info["model_data"]
    limits = call.bridge.limits.get(data.get("base_model") or data.get("model_name"))
    if limits is not None:
        data["tokenizer_id"] = str(limits.folder)
    rank = (data.get("lora_config") or {}).get("rank")
    return {
        **info,
        "model_id": body["model_id"],
        "type": "get_info",
        "is_lora": True,
        "lora_rank": rank,
    }


async def finish(call: Call) -> Json:
    """Close a session's training clients, which would otherwise keep their places for 300 s."""
    bridge = call.bridge
    session = call.request.path_params["session"]
    bridge.finished.add(session)
    for client in bridge.sessions.pop(session, []):
        body = json.dumps({"model_id": client.model}).encode()
        await bridge.upstream.send("POST", "/unload_model", body)
    return {"type": "finish_session"}


async def session_heartbeat(call: Call) -> Json:
    body = call.fields("session_id")
    if body["session_id"] in call.bridge.finished:
        raise RequestError(f"session_id: {body['session_id']!r} is finished", status=410)
    return await call.bridge.upstream.post("/session_heartbeat", body)
