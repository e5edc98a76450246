"""What a proxy can do with a request other than forward it. `strike_of` makes a strike of a fault
(faults.toml) from the name of a function here and its arguments."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from tinker.proto import tinker_public_pb2 as pb

from benchmarks.rehearsal.proxy import Call

Strike = Callable[[Call], Awaitable[Response]]


def strike_of(name: str, *given: Any) -> Strike:
    return lambda call: globals()[name](call, *given)


async def refused(call: Call, status: int, detail: str = "rehearsed") -> Response:
    """An HTTP error; the service never sees the request."""
    return JSONResponse({"detail": detail}, status)


async def paused(call: Call, state: str, reason: str) -> Response:
    """The queue is paused: there is no answer yet."""
    await asyncio.sleep(0.5)
    words = {"type": "try_again", "queue_state": state, "queue_state_reason": reason}
    return JSONResponse({**words, "request_id": call.said["request_id"]}, 408)


async def failed(call: Call, category: str) -> Response:
    """The service does the work and reports a failure."""
    await call.send()
    return JSONResponse({"error": "rehearsed: a node was lost", "category": category})


async def gone(call: Call, kind: str, status: int, detail: str) -> Response:
    """The session, sampler or trainer that the request names is gone permanently."""
    call.proxy.lost[call.owners[kind]] = status, detail
    return JSONResponse({"detail": detail}, status)


async def weights_deleted(call: Call) -> Response:
    """The saved weights that the request names have just been deleted."""
    run_id, kind, name = call.said["model_path"].removeprefix("tinker://").split("/")
    path = f"/api/v1/training_runs/{run_id}/checkpoints/{kind}/{name}"
    deleted = await call.proxy.http.delete(
        path, headers={"x-api-key": call.request.headers["x-api-key"]}
    )
    deleted.raise_for_status()
    return await call.send()


class CutOff(Response):
    """Begins an answer and closes the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"1000")],
            }
        )
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


async def reset(call: Call) -> Response:
    """The connection breaks before the service has the request."""
    return CutOff()


async def reset_after(call: Call) -> Response:
    """The connection breaks after the service has done the work."""
    await call.send()
    return CutOff()


async def slow(call: Call, seconds: float) -> Response:
    """The answer is delayed."""
    await asyncio.sleep(seconds)
    return await call.send()


async def twice(call: Call) -> Response:
    """The service gets the request twice."""
    await call.send()
    return await call.send()


async def redirected(call: Call) -> Response:
    """A redirect to the same address."""
    return Response(status_code=307, headers={"location": str(call.request.url)})


async def instead(
    call: Call, text: str | bytes, media_type: str = "application/json"
) -> Response:
    """The service does the work, but another text comes with status 200."""
    await call.send()
    return Response(text, media_type=media_type)


async def page(call: Call) -> Response:
    """The sign-in page of a network."""
    return await instead(
        call,
        "<!doctype html><html><body><h1>Sign in to this network</h1></body></html>",
        "text/html",
    )


async def no_protobuf(call: Call) -> Response:
    return await instead(call, b"\xff" * 40, "application/x-protobuf")


async def cut_short(call: Call) -> Response:
    """Half of the answer, as if it were complete."""
    answer = await call.send()
    return Response(
        bytes(answer.body)[: len(answer.body) // 2],
        media_type=answer.media_type or "application/json",
    )


async def changed(call: Call, message: Any, change: Callable[[Any], object]) -> Response:
    """The service's answer, a protobuf message, after a change."""
    answer = await call.send()
    if answer.status_code != 200:
        return answer
    found = message.FromString(bytes(answer.body))
    change(found)
    return Response(found.SerializeToString(), media_type="application/x-protobuf")


async def fewer(call: Call, kind: str, most: int) -> Response:
    """An answer with at most `most` of its sequences or loss outputs; a negative number drops that many at the end."""

    def change(found: Any) -> None:
        del (found.sequences if kind == "SampleResponse" else found.loss_fn_outputs)[most:]

    return await changed(call, getattr(pb, kind), change)


def edited(values: bytes, kind: Any, how: str, *given: Any) -> bytes:
    """Return an array with one value changed (`set`), repeated (`repeat`), or cut (`from`, `until`)."""
    array = np.frombuffer(values, kind).copy()
    if how == "set":
        array[given[0]] = given[1]
    cut = {"from": slice(given[0], None), "until": slice(given[0])}.get(how, slice(None))
    return np.tile(array[cut], given[0] if how == "repeat" else 1).astype(kind).tobytes()


async def samples(call: Call, field: str, *edit: Any) -> Response:
    """An answer with changed `tokens` or `logprobs` of its sequences, or changed `prompt_logprobs`."""

    def change(found: Any) -> None:
        for one in [found] if field == "prompt_logprobs" else found.sequences:
            values = edited(
                getattr(one, field), np.int32 if field == "tokens" else np.float32, *edit
            )
            setattr(one, field, values)

    return await changed(call, pb.SampleResponse, change)


async def trained(call: Call, value: float) -> Response:
    """A forward-backward pass in which every log-probability is `value`."""

    def change(found: Any) -> None:
        for record in found.loss_fn_outputs:
            field = record.fields["logprobs"]
            field.data = np.full(len(field.data) // 4, value, np.float32).tobytes()

    return await changed(call, pb.ForwardBackwardOutput, change)


async def metric_is_nan(call: Call) -> Response:
    return await changed(
        call, pb.ForwardBackwardOutput, lambda found: found.metrics.update({"loss:sum": np.nan})
    )
