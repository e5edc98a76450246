"""Futures, whose answers clients collect by long poll, and how long they are kept."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from localtinker.errors import RequestError, SamplingError

Json = dict[str, Any]
"""A JSON object."""
Answer = bytes | Json
"""What a client collects: protobuf or JSON."""
_RETRIEVED_GRACE = 30.0  # seconds in which a client whose connection broke may ask again
_UNCLAIMED_LIFE = 3600.0  # seconds until an answer that was never collected is dropped


@dataclass
class Future:
    """A pending or finished answer: protobuf bytes, a JSON object, or an error with its category.

    `cancel` stops the work, if the request can be cancelled.
    """

    key: tuple | None
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    answer: asyncio.Future[Answer] = field(default_factory=asyncio.Future)
    cancel: Callable[[], None] | None = None
    expires: float = math.inf

    def collected(self) -> None:
        """Note that the client has the answer, or does not want it."""
        self.expires = time.monotonic() + _RETRIEVED_GRACE


class FutureStore:
    """All futures of the service. For the event loop; only `resolve` may be called from the compute thread."""

    def __init__(self) -> None:
        self._futures: dict[str, Future] = {}
        self._by_key: dict[tuple | None, Future] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def create(self, key: tuple | None = None) -> Future:
        """Return a new future. `key` identifies its request, so that a retry finds it again."""
        future = Future(key)
        self._futures[future.request_id] = future
        if key is not None:
            self._by_key[key] = future
        return future

    def existing(self, key: tuple | None) -> Future | None:
        """Return the future of an earlier send of the same request: the SDK retries when a connection breaks."""
        return self._by_key.get(key)

    def get(self, request_id: str) -> Future | None:
        return self._futures.get(request_id)

    def resolve(self, future: Future, answer: Answer | Exception) -> None:
        """Set the answer or the error: the client's fault if it is a `RequestError`, else the server's.
        Later calls do nothing."""
        with suppress(RuntimeError):  # the loop is closed: the service is shutting down
            loop = future.answer.get_loop()
            loop.call_soon_threadsafe(self._resolve, future, answer)

    def _resolve(self, future: Future, answer: Answer | Exception) -> None:
        if future.answer.done():
            return
        if isinstance(answer, RequestError):
            answer = {"error": answer.message, "category": "user"}
        elif isinstance(answer, Exception):
            message = str(answer)
            if not isinstance(answer, SamplingError):
                message = f"{type(answer).__name__}: {message}"
            answer = {"error": message, "category": "server"}
        future.answer.set_result(answer)
        future.expires = min(future.expires, time.monotonic() + _UNCLAIMED_LIFE)
        future.cancel = None

    def purge(self) -> None:
        """Drop answers that were collected or finished long enough ago."""
        now = time.monotonic()
        for future in list(self._futures.values()):
            if future.expires < now:
                del self._futures[future.request_id]
                self._by_key.pop(future.key, None)
