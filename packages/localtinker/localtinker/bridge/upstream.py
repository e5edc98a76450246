"""Requests of the bridge to its engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx

from localtinker.bridge.engines import API
from localtinker.errors import RequestError

NOT_NUMBERS = "as after a token beyond the vocabulary or a prompt beyond the context"
LONG_POLL_S = 30.0
"""How long a request for a result waits; the SDK's timeout for it is 45 s."""
_REQUEST_S = 120.0
_HOPS = ("content-type", "content-disposition", "location", "expires")
"""Headers of an answer that are passed on."""
Json = dict[str, Any]


class UnreachableError(Exception):
    """The engine did not answer. The SDK is told to send the request again."""


class PendingError(Exception):
    """The result is not there yet."""


class FailedError(Exception):
    """The engine accepted the work and failed at it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True)
class Answer:
    """An engine's answer to one request."""

    status: int
    body: bytes
    headers: dict[str, str]

    def json(self) -> Json:
        """The object in the body, empty if there is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def for_sdk(self) -> int:
        """The status for the SDK, which sends a request again for minutes that is answered with 408, 409, 425,
        429 or a 5xx. The engine would refuse it each time."""
        lasting = self.status in (408, 409, 425) or self.status >= 500
        return 400 if lasting else self.status

    @property
    def detail(self) -> str:
        """What an error says."""
        detail = self.json().get("detail", "")
        if isinstance(detail, list):  # the fields that the engine's validation refused
            parts = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in detail]
            return "; ".join(parts)
        return str(detail) or self.body.decode(errors="replace")[:200]


class Upstream:
    """An engine's API. `key` is the engine's own."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"X-API-Key": key} if key else {},
            timeout=httpx.Timeout(_REQUEST_S, connect=10.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
        )

    async def send(
        self, method: str, route: str, body: bytes = b"", kind: str = "application/json"
    ) -> Answer:
        """Send one request to a route below /api/v1. Raises UnreachableError."""
        return await self._send(method, route, body, kind, _REQUEST_S)

    async def _send(
        self, method: str, route: str, body: bytes, kind: str, timeout_s: float
    ) -> Answer:
        try:
            response = await self._http.request(
                method,
                API + route,
                content=body,
                headers={"content-type": kind},
                timeout=httpx.Timeout(timeout_s, connect=10.0),
            )
        except httpx.ConnectTimeout as error:
            raise UnreachableError("no connection in 10 s") from error
        except httpx.TimeoutException as error:
            raise PendingError from error
        except httpx.HTTPError as error:
            raise UnreachableError(str(error) or type(error).__name__) from error
        headers = {name: value for name, value in response.headers.items() if name in _HOPS}
        return Answer(response.status_code, response.content, headers)

    async def post(self, route: str, body: Json) -> Json:
        """Send a JSON request and return the JSON answer. Raises RequestError with the engine's refusal."""
        return accepted(await self.send("POST", route, json.dumps(body).encode()))

    async def result(self, promise: str) -> Answer:
        """Return the result of a promise. Raises PendingError, FailedError, and RequestError (410) if the
        engine has no such promise."""
        body = json.dumps({"request_id": promise}).encode()
        answer = await self._send(
            "POST", "/retrieve_future", body, "application/json", LONG_POLL_S
        )
        if answer.status < 300:
            return answer
        if answer.status == 408:
            raise PendingError
        if answer.status == 404:
            raise RequestError("request_id: the engine has no such result", status=410)
        if answer.status >= 500:  # JSON has no NaN
            raise FailedError(
                f"the engine cannot deliver the result ({answer.detail}), {NOT_NUMBERS}"
            )
        raise FailedError(answer.detail)

    async def done(self, route: str, body: Json) -> Json:
        """Send a request for work and wait until it is done. Raises FailedError and RequestError."""
        promise = (await self.post(route, body))["request_id"]
        while True:
            try:
                return (await self.result(promise)).json()
            except PendingError:
                continue


def accepted(answer: Answer) -> Json:
    """Return the JSON of an accepted request. Raises RequestError with the engine's refusal."""
    if answer.status < 300:
        return answer.json()
    raise RequestError(answer.detail, status=answer.for_sdk)
