"""Requests of the bridge to its engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from localtinker.bridge.engines import API, Engine
from localtinker.errors import RequestError

NOT_NUMBERS = "as after a token beyond the vocabulary or a prompt beyond the context"
LONG_POLL_S = 30.0
"""How long a request for a result waits; the SDK's timeout for it is 45 s."""
_REQUEST_S = 120.0
Json = dict[str, Any]


class UnreachableError(Exception):
    """The engine did not answer. The SDK is told to send the request again."""


class PendingError(Exception):
    """The result is not there yet."""


class FailedError(Exception):
    """The engine accepted the work and failed at it."""


@dataclass(frozen=True)
class Answer:
    """An engine's answer to one request."""

    status: int
    body: bytes
    kind: str

    def json(self) -> Json:
        """Return the object in the body of an accepted request. Raises RequestError with the engine's refusal."""
        if self.status < 300:
            return json.loads(self.body) if self.body else {}
        raise RequestError(self.detail, status=self.for_sdk)

    @property
    def for_sdk(self) -> int:
        """The status for the SDK, which sends a request again for minutes that is answered with 408, 409, 425,
        429 or a 5xx. The engine would refuse it each time."""
        return 400 if self.status in (408, 409, 425) or self.status >= 500 else self.status

    @property
    def detail(self) -> str:
        """What a refusal says."""
        try:
            return str(json.loads(self.body)["detail"])
        except (ValueError, KeyError, TypeError):
            return self.body.decode(errors="replace")[:200]


class Upstream:
    """An engine's API. `key` is the engine's own."""

    def __init__(
        self,
        url: str,
        engine: Engine,
        key: str | None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url, self._engine = url.rstrip("/"), engine
        headers = {"X-API-Key": key or ""}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        self._http = httpx.AsyncClient(
            base_url=self.url, headers=headers, limits=limits, transport=transport
        )

    async def send(
        self,
        call: str,
        body: bytes | Mapping[str, Any] = b"",
        kind: str = "application/json",
        timeout_s: float = _REQUEST_S,
    ) -> Answer:
        """Send one request: `call` is its method and its path below /api/v1. Fields of a JSON body that the engine
        does not know are left out, because TuFT refuses them. Raises UnreachableError, and PendingError for no answer
        in time."""
        method, path = call.split(" ", 1)
        if not isinstance(body, bytes):
            known = self._engine.fields.get(call, "").split()
            body = json.dumps({name: body[name] for name in known if name in body}).encode()
        headers = {"content-type": kind}
        timeout = httpx.Timeout(timeout_s, connect=10.0)
        try:
            got = await self._http.request(
                method, API + path, content=body, headers=headers, timeout=timeout
            )
        except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
            raise PendingError from error
        except httpx.HTTPError as error:
            raise UnreachableError(str(error) or type(error).__name__) from error
        return Answer(got.status_code, got.content, got.headers.get("content-type", kind))

    async def post(self, route: str, body: Mapping[str, Any]) -> Json:
        """Send a JSON request. Raises RequestError with the engine's refusal."""
        return (await self.send(f"POST {route}", body)).json()

    async def result(self, promise: str) -> Answer:
        """Return the result of a promise. Raises PendingError, FailedError, and RequestError (410) if the
        engine has no such promise."""
        answer = await self.send(
            "POST /retrieve_future", {"request_id": promise}, timeout_s=LONG_POLL_S
        )
        if answer.status == 408:
            raise PendingError
        if answer.status == 404:
            raise RequestError("request_id: the engine has no such result", status=410)
        if answer.status >= 500:  # JSON has no NaN
            raise FailedError(
                f"the engine cannot deliver the result ({answer.detail}), {NOT_NUMBERS}"
            )
        if answer.status >= 300:
            raise FailedError(answer.detail)
        return answer

    async def done(self, route: str, body: Mapping[str, Any]) -> Json:
        """Send a request for work and wait until it is done. Raises FailedError and RequestError."""
        promise = (await self.post(route, body))["request_id"]
        while True:
            try:
                return (await self.result(promise)).json()
            except PendingError:
                continue
