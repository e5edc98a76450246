"""A request to the bridge."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from localtinker.bridge.state import Bridge
from localtinker.bridge.upstream import Json
from localtinker.errors import RequestError


@dataclass(frozen=True)
class Call:
    """A request of the SDK, with the bridge that answers it."""

    bridge: Bridge
    request: Request
    body: bytes

    def json(self) -> Json:
        """Return the JSON object in the body. Raises RequestError (422) for anything else."""
        try:
            body = json.loads(self.body)
        except ValueError as error:
            raise RequestError(f"body: not JSON ({error})", status=422) from error
        if not isinstance(body, dict):
            raise RequestError("body: not a JSON object", status=422)
        return body

    def fields(self, *names: str) -> Json:
        """Return the body, which must have these fields."""
        body = self.json()
        for name in names:
            if body.get(name) is None:
                raise RequestError(f"{name}: is missing", status=422)
        return body


Handler = Callable[[Call], Awaitable[Json | Response]]
