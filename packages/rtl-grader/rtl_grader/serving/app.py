"""The HTTP API of the grading service: authentication, request limits, endpoints and error responses.

Each request is read completely, within a size limit and a timeout, before it is handled. All paths need the
token except `/health`, `/openapi.json` and `/docs`, which reveal nothing about problems or answers.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections import Counter
from importlib.metadata import version
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rtl_grader.errors import InfrastructureError
from rtl_grader.extraction.response import MAX_RESPONSE_CHARS
from rtl_grader.grading.answer_file import AnswerLine, AnswerRecord, line_of
from rtl_grader.grading.verdict_record import Record
from rtl_grader.serving.grading_queue import GradingQueue, QueueFullError
from rtl_grader.words import escaping_templates

MAX_BODY_BYTES = 32 << 20
STALL_S = 30.0
"""Timeout for the next part of a request."""
OPEN = ("/health", "/openapi.json", "/docs")
POLICY = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
}


class Batch(BaseModel):
    """A batch: answers to any of the problems, in any order."""

    answers: list[AnswerRecord] = Field(min_length=1)


class Verdicts(BaseModel):
    """The sealed records of the answers in order, as `rtl-grader grade` writes them."""

    verdicts: list[Record]


def create_app(queue: GradingQueue, token: str) -> FastAPI:
    """The application around a queue; requests carry `Authorization: Bearer TOKEN`."""
    about = "Verdicts of real simulators on answers to RTL problems. Repeats are free: an answer is graded once."
    app = FastAPI(
        title="rtl-grader",
        version=version("rtl-grader"),
        description=about,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(_Guard, token=token, queue=queue)
    _answer_errors(app)
    locked = [Depends(HTTPBearer(auto_error=False))]
    page = escaping_templates("rtl_grader.serving").get_template("docs.html")

    @app.post("/v1/grade", response_model=Verdicts, dependencies=locked)
    async def grade(batch: Batch) -> Response:
        """Grade a batch and wait for its verdicts. After 429 and 503, which carry Retry-After, or a lost
        connection, send the same batch again."""
        lines = _lines_of(batch, queue)
        if isinstance(lines, Response):
            return lines
        # ASCII, since an answer may contain lone surrogates.
        verdicts = json.dumps({"verdicts": await queue.grade(lines)})
        return Response(verdicts, media_type="application/json")

    @app.get("/v1/problems", dependencies=locked)
    async def problems() -> dict[str, Any]:
        """Executor, tools, and for each problem its fingerprint and the conditions of grading."""
        grader = queue.pool.grader
        about: dict[str, Any] = {}
        for name, problem in queue.problems.items():
            conditions = grader.conditions(problem).model_dump(mode="json")
            about[name] = {"fingerprint": problem.fingerprint, "conditions": conditions}
        return {"executor": grader.executor.name, "tools": grader.tools, "problems": about}

    @app.get("/health")
    async def health() -> Response:
        """200 while gradings succeed, 503 after several consecutive failures."""
        status = {
            "status": "ok" if queue.healthy else "the executor fails",
            "verdicts": len(queue.store),
        }
        return JSONResponse(status, 200 if queue.healthy else 503)

    @app.get("/metrics", dependencies=locked)
    async def metrics() -> Response:
        """Counters and gauges in Prometheus' text format."""
        return Response(generate_latest(queue.meters.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page.render(api=app.openapi()), headers=POLICY)

    return app


def _lines_of(batch: Batch, queue: GradingQueue) -> list[AnswerLine] | Response:
    """The answers of a batch as lines of a file, or the response that refuses it."""
    if len(batch.answers) > queue.capacity:
        count = len(batch.answers)
        return _refused(
            413, f"answers: {count} are more than the queue takes, {queue.capacity}"
        )
    lines = []
    for number, answer in enumerate(batch.answers):
        texts = (answer.response or "", *(answer.files or {}).values())
        size = sum(map(len, texts))
        if size > MAX_RESPONSE_CHARS:
            detail = f"answers.{number}: has {size} characters, more than {MAX_RESPONSE_CHARS}"
            return _refused(413, detail)
        try:
            lines.append(line_of(answer, number, queue.problems, {}, Counter()))
        except ValueError as error:
            return _refused(422, f"answers.{number}.{error}")
    return lines


def _refused(status: int, detail: str, **headers: str) -> Response:
    return JSONResponse({"detail": detail}, status, headers)


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def misread(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][1:])) or "body"
        return _refused(422, f"{where}: {first['msg']}")

    @app.exception_handler(InfrastructureError)
    async def failed(request: Request, error: InfrastructureError) -> Response:
        status, retry_after = 503, 30
        if isinstance(error, QueueFullError):
            status, retry_after = 429, error.retry_after
        return _refused(status, error.message, **{"Retry-After": str(retry_after)})


class _Guard:
    """Checks the token, reads the request within its limits, and counts responses."""

    def __init__(self, app: ASGIApp, token: str, queue: GradingQueue) -> None:
        self._app, self._token, self._meters = app, token.encode(), queue.meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._meters.responses.labels(message["status"]).inc()
            await send(message)

        sent = dict(scope["headers"]).get(b"authorization", b"")
        if scope["path"] not in OPEN and not hmac.compare_digest(
            sent, b"Bearer " + self._token
        ):
            response = _refused(
                401, "Authorization: missing or not `Bearer` and this service's token"
            )
            response.headers["WWW-Authenticate"] = "Bearer"
            return await response(scope, receive, counted)
        try:
            body = await _whole(receive)
        except TimeoutError:
            return await _refused(408, f"the request paused for more than {STALL_S:.0f} s")(
                scope, receive, counted
            )
        except ConnectionError:
            return self._meters.hung_up.inc()
        if len(body) > MAX_BODY_BYTES:
            detail = (
                f"the body has more than {MAX_BODY_BYTES >> 20} MiB: send fewer answers at once"
            )
            return await _refused(413, detail)(scope, receive, counted)
        waiting: list[Message] = [{"type": "http.request", "body": body}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        return await self._app(scope, replay, counted)


async def _whole(receive: Receive) -> bytes:
    """Return the body, cut off a little above `MAX_BODY_BYTES`. It is read to its end, since a client that
    is still sending does not see the response. Raises TimeoutError and ConnectionError."""
    body, more = bytearray(), True
    while more:
        message = await asyncio.wait_for(receive(), STALL_S)
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client left")
        if len(body) <= MAX_BODY_BYTES:
            body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)
