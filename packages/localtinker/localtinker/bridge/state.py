"""What a bridge knows of its engine and of the clients that were opened through it.

Nothing of it is on disk. The ids that the SDK gets say what the bridge must know to translate the answers
(promises.py), so requests in flight survive a restart of the bridge; the newest sampler weights are asked of the
engine. Clients opened from a saved state are lost by a restart, and are then answered with 404.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from localtinker.bridge.capabilities import FROZEN_SAMPLERS
from localtinker.bridge.engines import Engine
from localtinker.bridge.upstream import Json, Upstream
from localtinker.errors import NotFoundError, RequestError
from localtinker.settings import context_of

LOST = "the engine no longer holds this client: open it again from its last saved state"


@dataclass
class Client:
    """A training client, by the engine's id."""

    model: str
    newest: str | None = None
    """Path of its newest sampler weights."""
    moved: bool = False
    """Whether it was trained after they were saved."""


@dataclass(frozen=True)
class Limits:
    """Of a model whose folder is known."""

    folder: Path
    vocabulary: int
    context: int


@dataclass
class Bridge:
    """A bridge's state."""

    engine: Engine
    upstream: Upstream
    models: list[str]
    """Names of the base models that the engine serves."""
    limits: dict[str, Limits]
    key: str
    clients: dict[str, Client] = field(default_factory=dict)
    """Id that the SDK uses -> training client."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Engine's id of a training client -> the SDK's."""
    sessions: dict[str, list[Client]] = field(default_factory=dict)
    """Open session -> its training clients."""
    finished: set[str] = field(default_factory=set)
    samplers: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Sampling session -> base model and, if it has them, the path of its weights."""
    work: dict[str, asyncio.Task[Json]] = field(default_factory=dict)
    """Promise of the bridge itself -> the work."""
    answered: dict[Any, Json] = field(default_factory=dict)
    """Key of a request that must not be done twice -> its answer."""
    waits: dict[str, str] = field(default_factory=dict)
    """Promise of the bridge itself -> what the work waits for."""
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    silent_since: float | None = None
    """Since when the engine has not answered."""

    @property
    def frozen(self) -> bool:
        return FROZEN_SAMPLERS not in self.engine.lacks

    @property
    def on_jax(self) -> bool:
        return self.engine.backend == "jax"

    def client(self, model_id: str) -> Client:
        """Return a training client by the SDK's id. Raises NotFoundError if it was opened from a state through
        an earlier process of the bridge."""
        client = self.clients.get(model_id)
        if client is None and ":train:" in model_id:
            raise NotFoundError(f"model_id: {model_id!r}: {LOST}")
        return client or Client(model_id, moved=True)

    def check_model(self, name: str) -> None:
        if name not in self.models:
            served = ", ".join(self.models)
            raise NotFoundError(f"base_model: {name!r} is not served here; served is {served}")

    def reached(self) -> None:
        self.silent_since = None

    def unreached(self) -> float:
        """Return for how many seconds the engine has not answered."""
        now = time.monotonic()
        self.silent_since = self.silent_since or now
        return now - self.silent_since

    def begin(self, work: Coroutine[Any, Any, Json]) -> str:
        """Start work of the bridge. Returns its promise."""
        promise = f"b.{secrets.token_hex(8)}"
        self.work[promise] = asyncio.create_task(work)
        return promise


async def newest_of(bridge: Bridge, model: str) -> str | None:
    """Return the path of a training client's newest sampler weights, as the engine lists them."""
    saved = [one for one in await listed(bridge, model) if one["checkpoint_type"] == "sampler"]
    saved.sort(key=lambda one: one["time"])
    return saved[-1]["tinker_path"] if saved else None


async def listed(bridge: Bridge, model: str) -> list[Json]:
    """Return what the engine lists as saved by a training client."""
    answer = await bridge.upstream.send("GET", f"/training_runs/{model}/checkpoints")
    return answer.json().get("checkpoints", [])


def limits_of(folder: Path) -> Limits:
    config = json.loads((folder / "config.json").read_text())
    text = SimpleNamespace(**config.get("text_config", config))
    return Limits(folder, text.vocab_size, context_of(text, most=1 << 30))


def check_tokens(where: str, tokens: Any, limits: Limits | None) -> None:
    """Raise RequestError for no tokens, more than the context, or ids beyond the vocabulary. The engine would
    compute with them, and fail at the result or answer nonsense."""
    if len(tokens) == 0:
        raise RequestError(f"{where}: needs at least one token")
    if limits is None:
        return
    if len(tokens) > limits.context:
        raise RequestError(
            f"{where}: {len(tokens)} tokens, but the model takes at most {limits.context}"
        )
    if min(tokens) < 0 or max(tokens) >= limits.vocabulary:
        raise RequestError(f"{where}: token ids must be in [0, {limits.vocabulary})")
