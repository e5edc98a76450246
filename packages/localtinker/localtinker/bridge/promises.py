"""Results of requests. The SDK asks for them again and again, also through a restarted bridge.

The promise that the SDK gets says how its result must be translated: `t.ID` not at all, `s.P.N.ID` holds scores
of a prompt of P tokens, of which the last N were requested (P = 0: none), `b.ID` is the bridge's own work. ID of
the others is the engine's.
"""

from __future__ import annotations

import asyncio
import re

import numpy as np
from starlette.responses import JSONResponse, Response

from localtinker.bridge.calls import Call
from localtinker.bridge.upstream import (
    LONG_POLL_S,
    NOT_NUMBERS,
    Answer,
    FailedError,
    Json,
    PendingError,
    UnreachableError,
)
from localtinker.errors import RequestError
from localtinker.wire import pb

LOST = re.compile(r"not loaded|unknown model_id|Model .* not found|Model not initialized")
"""In the engine's errors: it no longer holds a training client, such as after its restart."""
MISTAKES = re.compile(
    rf"not supported|Unknown|must be|must have|configured for|mismatch|unavailable in|{NOT_NUMBERS}"
)
"""In the engine's errors: the request is at fault, and repeating it does not help."""
OUTAGE_S = 300.0
"""How long a result is waited for while the engine does not answer. As long does the SDK try to send a request."""


def trained(promise: str) -> str:
    return f"t.{promise}"


def scored(promise: str, length: int, last_n: int) -> str:
    return f"s.{length}.{last_n}.{promise}"


async def retrieve_future(call: Call) -> Json | Response:
    bridge, promise = call.bridge, str(call.json().get("request_id"))
    kind, *numbers, theirs = promise.split(".")
    try:
        if promise in bridge.work:
            return await _own(bridge.work[promise])
        if kind not in ("s", "t"):
            raise RequestError(f"request_id: no result {promise!r} here", status=410)
        answer = await bridge.upstream.result(theirs)
        bridge.reached()
        if kind == "s":
            return _scores(answer.body, *map(int, numbers))
    except PendingError:
        bridge.reached()
        return _try_again(promise, "active", bridge.waits.get(promise, ""))
    except UnreachableError as error:
        since_s = bridge.unreached()
        words = f"the engine at {bridge.upstream.url} has not answered for {since_s:.0f} s ({error})"
        if since_s > OUTAGE_S:
            return {"error": words, "category": "server"}
        await asyncio.sleep(2)  # the SDK asks again at once
        return _try_again(promise, "paused_capacity", words)
    except FailedError as error:
        return failure(error.message)
    return _trained(answer)


async def _own(work: asyncio.Task[Json]) -> Json:
    done, _ = await asyncio.wait({work}, timeout=LONG_POLL_S)
    if not done:
        raise PendingError
    return work.result()


def failure(message: str) -> Json:
    """Return what the SDK gets for work that failed. Raises RequestError (404) if the engine no longer holds
    the client: it must be opened again."""
    if LOST.search(message):
        raise RequestError(
            f"{message}: open the client again from its last saved state", status=404
        )
    category = "user" if MISTAKES.search(message) else "server"
    return {"type": "request_failed", "error": message, "category": category}


def _try_again(promise: str, state: str, reason: str) -> Response:
    body = {"type": "try_again", "request_id": promise, "queue_state": state}
    return JSONResponse(body | {"queue_state_reason": reason}, status_code=408)


def _protobuf(body: bytes) -> Response:
    return Response(body, media_type="application/x-protobuf")


def _trained(answer: Answer) -> Json | Response:
    if "protobuf" in answer.headers.get("content-type", ""):
        return _protobuf(answer.body)
    result = answer.json()
    path = result.get("path") or ""
    model, _, name = path.removeprefix("tinker://").partition("/")
    if path and "/" not in name:  # sampler weights, whose path lacks its kind
        return {**result, "path": f"tinker://{model}/{kind_and_name(name)}"}
    return result


EXTERNAL = "external-"
"""Prefix of the names of sampler weights that the SDK saved to download them."""


def kind_and_name(name: str) -> str:
    if name.startswith(EXTERNAL):
        return f"external_weights/{name.removeprefix(EXTERNAL)}"
    return f"sampler_weights/{name}"


def _scores(body: bytes, length: int, last_n: int) -> Response:
    """Return a SampleResponse whose prompt_logprobs have one entry for each token, NaN for those that were not
    requested. JAX leaves out the first token; no engine knows `prompt_logprobs_last_n`."""
    if not length:
        return _protobuf(body)
    response = pb.SampleResponse.FromString(body)
    values = np.frombuffer(response.prompt_logprobs, np.float32)[-last_n:]
    if len(values) < last_n or np.isnan(values).any():
        raise FailedError(
            f"the engine gave no score for some of the last {last_n} tokens ({NOT_NUMBERS})"
        )
    scores = np.full(length, np.nan, np.float32)
    scores[-last_n:] = values
    response.prompt_logprobs = scores.tobytes()
    return _protobuf(response.SerializeToString())
