"""What a proxy can do with a request instead of passing it on: each function makes one kind of strike of a fault (faults.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from tinker.proto import tinker_public_pb2 as pb

from benchmarks.rehearsal.proxy import Call

Strike = Callable[[Call], Awaitable[Response]]

PAGE = "<!doctype html><html><body><h1>Sign in to this network</h1></body></html>"


def refused(status: int, detail: str = "rehearsed") -> Strike:
    """An error of HTTP; the service sees nothing."""

    async def strike(call: Call) -> Response:
        return JSONResponse({"detail": detail}, status)

    return strike


def paused(state: str, reason: str) -> Strike:
    """The queue is paused: the answer is not there yet."""

    async def strike(call: Call) -> Response:
        await asyncio.sleep(0.5)
        words = {"type": "try_again", "queue_state": state, "queue_state_reason": reason}
        return JSONResponse({**words, "request_id": call.said["request_id"]}, 408)

    return strike


def failed(category: str) -> Strike:
    """The service did the work and says that it failed."""

    async def strike(call: Call) -> Response:
        await call.send()
        return JSONResponse({"error": "rehearsed: a node was lost", "category": category})

    return strike


def gone(kind: str, status: int, detail: str) -> Strike:
    """The session, sampler or trainer that the request names is gone for good."""

    async def strike(call: Call) -> Response:
        call.proxy.lost[call.owners[kind]] = status, detail
        return JSONResponse({"detail": detail}, status)

    return strike


async def weights_deleted(call: Call) -> Response:
    """The saved weights that the request names were deleted just before."""
    run_id, kind, name = call.said["model_path"].removeprefix("tinker://").split("/")
    path = f"/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}"
    deleted = await call.proxy.http.delete(path, headers={"x-api-key": call.request.headers["x-api-key"]})
    deleted.raise_for_status()
    return await call.send()


class CutOff(Response):
    """Begins an answer and closes the connection before its end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


async def reset(call: Call) -> Response:
    """The connection breaks before the service has the request."""
    return CutOff()


async def reset_after(call: Call) -> Response:
    """The connection breaks when the service has done what was asked."""
    await call.send()
    return CutOff()


def slow(seconds: float) -> Strike:
    """The answer takes so much longer."""

    async def strike(call: Call) -> Response:
        await asyncio.sleep(seconds)
        return await call.send()

    return strike


async def twice(call: Call) -> Response:
    """The service gets the same request twice."""
    await call.send()
    return await call.send()


async def redirected(call: Call) -> Response:
    """To where it came from."""
    return Response(status_code=307, headers={"location": str(call.request.url)})


def instead(text: str | bytes, media_type: str = "application/json") -> Strike:
    """The service does what was asked, and something else comes with status 200."""

    async def strike(call: Call) -> Response:
        await call.send()
        return Response(text, media_type=media_type)

    return strike


async def cut_short(call: Call) -> Response:
    """Half of the answer, as if it were whole."""
    answer = await call.send()
    return Response(bytes(answer.body)[: len(answer.body) // 2], media_type=answer.media_type or "application/json")


def changed(message: Any, change: Callable[[Any], object]) -> Strike:
    """The service's answer, a protobuf message, with a change."""

    async def strike(call: Call) -> Response:
        answer = await call.send()
        if answer.status_code != 200:
            return answer
        found = message.FromString(bytes(answer.body))
        change(found)
        return Response(found.SerializeToString(), media_type="application/x-protobuf")

    return strike


def samples(change: Callable[[Any], object]) -> Strike:
    """An answer to a sampling request, whose sequences `change` changes."""
    return changed(pb.SampleResponse, lambda found: change(found.sequences))


def tokens(change: Callable[[np.ndarray], np.ndarray]) -> Strike:
    """Samples whose first sequence has other tokens [T]."""

    def edit(sequences: Any) -> None:
        sequences[0].tokens = change(np.frombuffer(sequences[0].tokens, np.int32).copy()).astype(np.int32).tobytes()

    return samples(edit)


def logprobs(change: Callable[[np.ndarray], np.ndarray]) -> Strike:
    """Samples whose sequences have other log-probabilities [T]."""

    def edit(sequences: Any) -> None:
        for one in sequences:
            one.logprobs = change(np.frombuffer(one.logprobs, np.float32).copy()).astype(np.float32).tobytes()

    return samples(edit)


def scores(change: Callable[[np.ndarray], np.ndarray]) -> Strike:
    """An answer to a scoring request with other log-probabilities [P] of the prompt."""

    def edit(found: Any) -> None:
        values = change(np.frombuffer(found.prompt_logprobs, np.float32).copy())
        found.prompt_logprobs = values.astype(np.float32).tobytes()

    return changed(pb.SampleResponse, edit)


def trained(change: Callable[[Any], object]) -> Strike:
    """An answer to a forward-backward pass with a change."""
    return changed(pb.ForwardBackwardOutput, change)


def set_at(place: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    """An array with one other value."""

    def change(array: np.ndarray) -> np.ndarray:
        array[place] = value
        return array

    return change


def set_trained(value: float) -> Callable[[Any], None]:
    """A pass in which every log-probability is `value`."""

    def change(output: Any) -> None:
        for record in output.loss_fn_outputs:
            field = record.fields["logprobs"]
            field.data = np.full(len(field.data) // 4, value, np.float32).tobytes()

    return change
