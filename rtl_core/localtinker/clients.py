"""Training clients: created, used, parked on disk when idle, released when their session is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rtl_core.localtinker import NotFoundError
from rtl_core.localtinker.lora import LoraSpec
from rtl_core.localtinker.models import ServedModel
from rtl_core.localtinker.registry import Registry
from rtl_core.localtinker.trainer import TrainingModel

logger = logging.getLogger(__name__)


@dataclass
class Client:
    """A training client. `model` is None while it is parked on disk, in blob `parked`."""

    model_id: str
    session_id: str
    base: ServedModel
    spec: LoraSpec
    model: TrainingModel | None = None
    parked: str | None = None
    last_used: float = field(default_factory=time.monotonic)


class Clients:
    """All training clients of a service. Methods that use a model (`create`, `live`, `park`, `drop`) run on the compute thread."""

    def __init__(self, registry: Registry, *, micro_tokens: int) -> None:
        self._registry = registry
        self._micro_tokens = micro_tokens
        self._clients: dict[str, Client] = {}

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def resident(self) -> int:
        """Number of adapters in memory."""
        return sum(client.model is not None for client in list(self._clients.values()))

    def get(self, model_id: str) -> Client:
        """Return a live or parked client. Raises NotFoundError if there is none, for instance after a restart."""
        client = self._clients.get(model_id)
        if client is None:
            raise NotFoundError(
                f"model_id: there is no training client {model_id!r}; after a restart, create one from a saved state"
            )
        client.last_used = time.monotonic()
        return client

    def create(
        self,
        model_id: str,
        session_id: str,
        base: ServedModel,
        spec: LoraSpec,
        metadata: dict[str, Any] | None,
        loaded: Callable[[TrainingModel], None] = lambda model: None,
    ) -> None:
        """Create a client. `loaded` may load saved weights into its model; if it fails, no client is created."""
        self._registry.add_run(model_id, session_id, base.name, spec.to_json(), metadata)
        self._clients[model_id] = Client(model_id, session_id, base, spec, self._model(model_id, base, spec, loaded))

    def _model(
        self, model_id: str, base: ServedModel, spec: LoraSpec, loaded: Callable[[TrainingModel], None]
    ) -> TrainingModel:
        model = TrainingModel(model_id, base, spec, micro_tokens=self._micro_tokens)
        try:
            loaded(model)
        except BaseException:
            model.release()
            raise
        return model

    def live(self, model_id: str) -> TrainingModel:
        """Return the model of a client, loaded from disk if it was parked."""
        client = self.get(model_id)
        if client.model is None:
            assert client.parked is not None
            folder = self._registry.blob_path(client.parked)
            client.model = self._model(
                model_id, client.base, client.spec, lambda model: model.load(folder, optimizer=True)
            )
            self._registry.release_blob(client.parked)
            client.parked = None
        return client.model

    def idle(self, seconds: float) -> list[str]:
        """Return the clients in memory that were not used for `seconds`."""
        now = time.monotonic()
        return [c.model_id for c in list(self._clients.values()) if c.model and now - c.last_used > seconds]

    def orphaned(self) -> list[str]:
        """Return the clients whose session is over."""
        return [c.model_id for c in list(self._clients.values()) if self._registry.is_over(c.session_id)]

    def park(self, model_id: str) -> None:
        """Move a client to disk, unless it holds gradients of an unfinished step."""
        client = self._clients.get(model_id)
        if client is None or client.model is None or client.model.has_gradients:
            return
        save = partial(client.model.save, optimizer=True)
        client.parked, _ = self._registry.write_blob(save, durable=False)
        client.model.release()
        client.model = None
        logger.info("parked idle training client %s", model_id)

    def drop(self, model_id: str) -> None:
        """Delete a client; its checkpoints stay."""
        client = self._clients.pop(model_id, None)
        if client is None:
            return
        if client.model is not None:
            client.model.release()
        if client.parked is not None:
            self._registry.release_blob(client.parked)
