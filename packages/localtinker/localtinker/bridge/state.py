"""What a bridge knows of the clients that were opened through it.

Nothing of it is on disk. The promises that the SDK gets say what the bridge must know to translate their results
(promises.py), so requests in flight survive a restart of the bridge; newest sampler weights are asked of the
engine. Clients opened from a saved state are lost by a restart, and are then answered with 404.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from starlette.requests import Request

from localtinker.bridge.engines import Engine
from localtinker.bridge.upstream import Upstream
from localtinker.errors import NotFoundError
from localtinker.futures import Json
from localtinker.routing import Reply
from localtinker.settings import context_of


@dataclass
class Client:
    """A training client: its id at the engine, the path of its newest sampler weights, whether it was trained after
    they were saved, and how many sequences its gradient holds."""

    model: str
    newest: str | None = None
    moved: bool = True
    sequences: int = 0


@dataclass(frozen=True)
class Limits:
    """Of a model: the size of its vocabulary, and its context in tokens. There are none without its folder."""

    name: str
    folder: Path | None = None
    vocab_size: int = 1 << 30
    max_context: int = 1 << 30

    @classmethod
    def of(cls, name: str, folder: Path) -> Limits:
        config = json.loads((folder / "config.json").read_text())
        text = SimpleNamespace(**config.get("text_config", config))
        return cls(name, folder, text.vocab_size, context_of(text, most=1 << 30))


@dataclass
class Bridge:
    """A bridge's state."""

    engine: Engine
    upstream: Upstream
    folders: dict[str, Limits]
    """Name of a served model -> limits, if its folder is known."""
    key: str
    clients: dict[str, Client] = field(default_factory=dict)
    """Id that the SDK uses -> training client."""
    sessions: dict[str, list[Client] | None] = field(default_factory=dict)
    """Session -> its training clients, None once it is finished."""
    samplers: dict[str, Json] = field(default_factory=dict)
    """Sampling session -> what it samples."""
    work: dict[str, asyncio.Task[Json]] = field(default_factory=dict)
    """Promise of the bridge itself -> the work."""
    sent: dict[tuple[str, Any], asyncio.Task[Json]] = field(default_factory=dict)
    """Request that must not be done twice -> its answer, or the wait for it."""
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    waits_for: str = ""
    """What the opening of a client waits for."""
    silent_since: float | None = None
    """Since when the engine has not answered."""

    @property
    def on_jax(self) -> bool:
        return self.engine.backend == "jax"

    def client(self, model_id: str) -> Client:
        """Return a training client by the SDK's id. Raises NotFoundError if it was opened through an earlier process
        of the bridge, unless all that matters of it can be asked of the engine."""
        if model_id not in self.clients:
            if ":train:" in model_id or self.on_jax:
                raise NotFoundError(
                    f"model_id: {model_id!r} is not open: open it from its last saved state"
                )
            self.clients[model_id] = Client(model_id)
        return self.clients[model_id]

    async def once(
        self, key: tuple[str, Any], request: Callable[[], Coroutine[Any, Any, Json]]
    ) -> Json:
        """Send a request, or return its answer if it was sent before: the SDK sends one again whose answer was lost
        or is late. `key`: who sends it, and its sequence number. One that failed may be sent again."""
        if key not in self.sent or None in key:
            self.sent[key] = asyncio.create_task(request())
        sent = self.sent[key]
        try:
            # Shielded, so that it goes on although the first who asked for it has gone.
            return await asyncio.shield(sent)
        except Exception:
            if self.sent.get(key) is sent:
                del self.sent[key]
            raise

    def check_model(self, name: object) -> None:
        if name not in self.engine.models:
            served = ", ".join(self.engine.models)
            raise NotFoundError(f"base_model: {name!r} is not served here; served is {served}")

    def silent_s(self) -> float:
        """Return for how many seconds the engine has not answered, which was noticed now."""
        self.silent_since = self.silent_since or time.monotonic()
        return time.monotonic() - self.silent_since

    def limits(self) -> Limits:
        """Return those of the served model. An engine with several has none, because a request may not name its."""
        none = Limits(self.engine.name)
        models = self.engine.models
        return self.folders.get(models[0], none) if len(models) == 1 else none

    async def saved(self, model: str) -> list[Json]:
        """Return the engine's list of what a training client saved."""
        listing = await self.upstream.send(f"GET /training_runs/{model}/checkpoints")
        rows: list[Json] = listing.json()["checkpoints"]
        return rows

    async def saved_for_sampling(self, model: str) -> list[str]:
        """Return the paths of a training client's sampler weights, the newest last."""
        rows = sorted(await self.saved(model), key=lambda row: row["time"])
        return [row["tinker_path"] for row in rows if "/sampler_weights/" in row["tinker_path"]]


Handler = Callable[[Bridge, Json, Request], Awaitable[Reply]]
"""Answers a request, given the JSON object in its body (empty if it has another)."""
