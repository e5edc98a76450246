"""Requests of the bridge to its engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyqwest

from localtinker.errors import RequestError
from localtinker.futures import Json
from localtinker.settings import API

NOT_NUMBERS = "as after a token beyond the vocabulary or a prompt beyond the context"
LONG_POLL_S = 30.0
"""How long a request for a result waits; the SDK's timeout for it is 45 s."""
_REQUEST_S = 120.0
NEWER = (
    "display_name",
    "optimizer_config",
    "prompt_alt_tokens_k",
    "prompt_logprobs_last_n",
    "record_stability_info",
    "target_prompt_logprobs",
    "topk_sample_logprobs",
)
"""Fields of requests that SDK 0.25 has not: TuFT refuses them. The bridge honours or refuses those that matter."""
BROKEN = (ConnectionError, pyqwest.ReadError, pyqwest.WriteError, pyqwest.RemoteProtocolError)


class UnreachableError(Exception):
    """The engine did not answer. The SDK is told to send the request again."""


class LateError(UnreachableError):
    """The engine did not answer in time."""


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

    def content(self) -> bytes:
        """Return the body of an accepted request. Raises RequestError with the engine's refusal."""
        if self.status >= 300:
            raise RequestError(self.detail, status=self.for_sdk)
        return self.body

    def json(self) -> Json:
        """Return the object in the body of an accepted request."""
        content: Json = json.loads(self.content() or b"{}")
        return content

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
    """An engine's API. `key` is the engine's own; `http` is for tests."""

    def __init__(self, url: str, key: str | None, http: Any = None) -> None:
        self.url, self._key = url.rstrip("/"), key or ""
        # The SDK's own: httpx takes ten times the CPU time for each request.
        self._http = http or pyqwest.Client(
            pyqwest.HTTPTransport(connect_timeout=10.0, tls_include_system_certs=True)
        )

    async def send(
        self,
        call: str,
        body: bytes | Mapping[str, Any] = b"",
        kind: str = "application/json",
        timeout_s: float = _REQUEST_S,
    ) -> Answer:
        """Send one request: `call` is its method and its path below /api/v1. Raises UnreachableError."""
        method, path = call.split(" ", 1)
        if not isinstance(body, bytes):
            body = json.dumps({name: body[name] for name in body if name not in NEWER}).encode()
        headers = {"content-type": kind, "x-api-key": self._key}
        try:
            async with asyncio.timeout(timeout_s):
                got = await self._http.execute(method, self.url + API + path, headers, body)
        except BROKEN as error:
            raise UnreachableError(str(error) or type(error).__name__) from error
        except TimeoutError as error:
            raise LateError(f"no answer in {timeout_s:.0f} s") from error
        return Answer(got.status, got.content, got.headers.get("content-type", kind))

    async def post(self, route: str, body: Mapping[str, Any]) -> Json:
        """Send a JSON request. Raises RequestError with the engine's refusal."""
        return (await self.send(f"POST {route}", body)).json()

    async def result(self, promise: str) -> Answer:
        """Return the result of a promise. Raises PendingError, FailedError, and RequestError (410) if the
        engine has no such promise."""
        asked = {"request_id": promise}
        try:
            answer = await self.send("POST /retrieve_future", asked, timeout_s=LONG_POLL_S)
        except LateError as error:
            raise PendingError from error
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
