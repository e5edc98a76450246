"""Training clients: created, used, parked on disk when idle, released when their session is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rtl_core.localtinker import NotFoundError
from rtl_core.localtinker.lora import LoraSpec
from rtl_core.localtinker.models import ServedModel
from rtl_core.localtinker.registry import Registry
from rtl_core.localtinker.trainer import TrainingModel

logger = logging.getLogger(__name__)


@dataclass
class Client:
    """One training client. `model` is None while it is parked in blob `parked`."""

    model_id: str
    session_id: str
    base: ServedModel
    spec: LoraSpec
    model: TrainingModel | None = None
    parked: str | None = None
    last_used: float = field(default_factory=time.monotonic)


class Clients:
    """All training clients of a running service.

    `get` is for the event loop; what touches a model (`create`, `live`, `park`, `drop`) runs on the compute thread.
    """

    def __init__(self, registry: Registry, *, micro_tokens: int) -> None:
        self._registry = registry
        self._micro_tokens = micro_tokens
        self._clients: dict[str, Client] = {}

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def resident(self) -> int:
        """How many adapters are in memory."""
        return sum(client.model is not None for client in list(self._clients.values()))

    def get(self, model_id: str) -> Client:
        """A live or parked client. Raises NotFoundError when there is none, as after a restart of the service."""
        client = self._clients.get(model_id)
        if client is None:
            raise NotFoundError(
                f"model_id: no training client {model_id!r} is live here; after a restart of the service create one "
                "from a saved state"
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
        """A new client; `loaded` gives its model saved weights, and without them there is no client."""
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
        """The model of a client, brought back from disk if it was parked."""
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
        """Clients in memory that were not used for so long."""
        now = time.monotonic()
        return [c.model_id for c in list(self._clients.values()) if c.model and now - c.last_used > seconds]

    def sessions(self) -> set[str]:
        return {client.session_id for client in list(self._clients.values())}

    def of_session(self, session_id: str) -> list[str]:
        return [c.model_id for c in list(self._clients.values()) if c.session_id == session_id]

    def park(self, model_id: str) -> None:
        """Move a client to disk; one that holds gradients not yet stepped on stays."""
        client = self._clients.get(model_id)
        if client is None or client.model is None or client.model.has_gradients:
            return
        model = client.model
        client.parked, _ = self._registry.write_blob(lambda folder: model.save(folder, optimizer=True), durable=False)
        model.release()
        client.model = None
        logger.info("parked idle training client %s", model_id)

    def drop(self, model_id: str) -> None:
        """Forget a client for good; its checkpoints stay."""
        client = self._clients.pop(model_id, None)
        if client is None:
            return
        if client.model is not None:
            client.model.release()
        if client.parked is not None:
            self._registry.release_blob(client.parked)
