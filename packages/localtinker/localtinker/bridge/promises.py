"""Results of requests. The SDK asks for them again and again, also through a restarted bridge.

The promise that the SDK gets says how its result must be translated: `s.P.N.ID` holds scores of a prompt of P tokens,
of which the last N were requested, `f.ID` is a training pass, `e.ID` weights that are saved to be downloaded, `t.ID`
anything else; `b.ID` is the opening of a client, which is work of the bridge itself. ID of the others is the engine's.
"""

from __future__ import annotations

import asyncio
import re

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse

from localtinker.bridge.state import Bridge
from localtinker.bridge.upstream import (
    LONG_POLL_S,
    NOT_NUMBERS,
    Answer,
    FailedError,
    PendingError,
    UnreachableError,
)
from localtinker.errors import RequestError
from localtinker.futures import Json
from localtinker.routing import Reply
from localtinker.wire import pb

SHARE = 2.0**-17
"""JAX's gradient, of that of a sum of losses: a sequence's weights are then up to 2^17 in sum."""
WEIGHT = 1e-9 * SHARE
"""For a weight of 1: JAX divides a sequence's loss by the sum of its weights, or by 1e-9 if that is less."""
PROMISE = re.compile(r"(?:[tef]|s\.(?P<length>\d+)\.(?P<last>\d+))\.(?P<theirs>-?\d+)")
LOST = re.compile(r"not loaded|unknown model_id|Model .*not found|Model not initialized")
"""In the engine's errors: it no longer holds a training client, such as after its restart."""
MISTAKES = re.compile(
    rf"not supported|Unknown|[Mm]ust |configured for|mismatch|unavailable in|{NOT_NUMBERS}"
)
"""In the engine's errors: the request is at fault, and repeating it does not help."""
EXTERNAL = "external-"
"""Prefix of the names of sampler weights that were saved to be downloaded."""
OUTAGE_S = 300.0
"""How long a result is waited for while the engine does not answer. As long does the SDK try to send a request."""
PAUSE_S = 2.0
"""Until then the SDK is answered, which asks again at once."""


async def retrieve_future(bridge: Bridge, body: Json, request: Request) -> Reply:
    promise = str(body["request_id"])
    told = PROMISE.fullmatch(promise)
    state, reason = "active", bridge.waits_for
    try:
        if promise in bridge.work:
            return await _own(bridge.work[promise])
        if told is None:
            raise RequestError(f"request_id: no result {promise!r} here", status=410)
        answer = await bridge.upstream.result(told["theirs"])
        bridge.silent_since = None
        if told["length"]:
            return _scored(answer.body, int(told["length"]), int(told["last"]))
        return _passed(answer.body) if promise.startswith("f") else _plain(promise, answer)
    except FailedError as error:
        return failure(bridge, str(error))
    except PendingError:
        bridge.silent_since = None
    except UnreachableError as error:
        silent_s = bridge.silent_s()
        state = "paused_capacity"
        reason = f"the engine at {bridge.upstream.url} has not answered for {silent_s:.0f} s ({error})"
        if silent_s > OUTAGE_S:
            return {"error": reason, "category": "server"}
        await asyncio.sleep(PAUSE_S)
    waiting = {"queue_state": state, "queue_state_reason": reason}
    return JSONResponse({"type": "try_again", "request_id": promise, **waiting}, 408)


async def _own(work: asyncio.Task[Json]) -> Json:
    await asyncio.wait({work}, timeout=LONG_POLL_S)
    if not work.done():
        raise PendingError
    return work.result()


def failure(bridge: Bridge, message: str) -> Json:
    """Return what the SDK gets for work that failed. Raises RequestError (404) if the engine no longer holds
    the client: it must be opened again."""
    if LOST.search(message):
        known = bridge.clients.items()
        bridge.clients = {key: client for key, client in known if client.model not in message}
        raise RequestError(
            f"{message}: open the client again from its last saved state", status=404
        )
    category = "user" if MISTAKES.search(message) else "server"
    return {"error": message, "category": category}


def _plain(promise: str, answer: Answer) -> bytes | Json:
    if "protobuf" in answer.kind:
        return answer.body
    result = answer.json()
    place, _, name = (result.get("path") or "").rpartition("/")
    if promise.startswith("e"):
        path = f"{place}/external_weights/{name.removeprefix(EXTERNAL)}"
        return {"type": "save_weights_external", "path": path}
    if place.count("/") == 2:  # sampler weights, whose path lacks its kind
        result["path"] = f"{place}/sampler_weights/{name}"
    return result


def _passed(body: bytes) -> bytes:
    """Return a ForwardBackwardOutput with the sum of the losses."""
    output = pb.ForwardBackwardOutput.FromString(body)
    sums = (
        [output.metrics["total_loss:sum"]] if "total_loss:sum" in output.metrics else []
    )  # GPUs
    for record in output.loss_fn_outputs:
        if "elementwise_loss" in record.fields:  # JAX, with the bridge's weights
            losses = np.frombuffer(record.fields["elementwise_loss"].data, np.float32)
            sums.append(losses.sum(dtype=np.float64) / WEIGHT)
            del record.fields["elementwise_loss"]
    if sums:
        output.metrics["loss:sum"] = sum(sums)
    return output.SerializeToString()


def _scored(body: bytes, length: int, last_n: int) -> bytes:
    """Return a SampleResponse whose prompt_logprobs have one entry for each token, NaN for those that were not
    requested. JAX leaves out the first token; no engine knows `prompt_logprobs_last_n`."""
    response = pb.SampleResponse.FromString(body)
    values = np.frombuffer(response.prompt_logprobs, np.float32)[-last_n:]
    if len(values) < last_n or np.isnan(values).any():
        raise FailedError(
            f"the engine gave no score to some of the last {last_n} tokens, {NOT_NUMBERS}"
        )
    scores = np.full(length, np.nan, np.float32)
    scores[-last_n:] = values
    response.prompt_logprobs = scores.tobytes()
    return response.SerializeToString()
