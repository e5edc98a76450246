"""Engines that speak an older version of Tinker's protocol: recognised by what they answer, and reached through a
bridge that this process starts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
from tinker.lib.base_url import DEFAULT_BASE_URL

from localtinker.bridge import Engine, recognise
from localtinker.bridge.engines import EngineError, OtherVersionError
from localtinker.errors import StartError
from rtl_core.backend.tinker.services import Endpoint, TinkerService, folder_of
from rtl_core.errors import BackendUnavailableError, InfrastructureError, PolicyError
from rtl_core.types.tell import Tell

ANSWER_S = 20.0
"""Timeout of each of the requests that recognise an engine."""
BRIDGE_S = 300.0
"""Timeout of the start of a bridge, which waits until its engine has done what others asked for."""
RECOGNISED: dict[str, Engine | None] = {}
"""URL -> what answered there last. The start of a run does not ask again what its checks have asked."""
BRIDGES: set[str] = set()
"""Those URLs at which a bridge answers that somebody has started (`rtl-distill serve bridge`)."""


def engine_of(service: TinkerService) -> Engine | None:
    """Return the engine that serves at a service's URL; None if its server needs no bridge.

    Without a name in `tinker.engine`, a server that cannot be asked counts as one that needs no bridge: the
    requests that follow say what is wrong with it. Raises PolicyError if it is an engine that cannot be
    used, or not the one that is named, and BackendUnavailableError if it is busy.
    """
    named, url = service.config.tinker.engine, service.address
    must = named == "skyrl" and service.part != "teacher"
    if named == "tinker" or (url == DEFAULT_BASE_URL and not must):
        return None
    if url not in RECOGNISED:
        try:
            key = upstream_key(service)
            engine = recognise(url, ANSWER_S, key) or _engine_of_bridge(url, key)
        except EngineError as error:
            if named == "skyrl" or isinstance(error, OtherVersionError):
                raise PolicyError(f"{service.setting}: {error.message}", error.hint) from error
            return None
        if must and (engine is None or engine.name != named):
            raise PolicyError(
                f"{service.setting}: at {url} is no SkyRL, which tinker.engine names",
                'set tinker.engine = "auto", or the URL of a SkyRL',
            )
        if engine and engine.name == "skyrl" and engine.backend is None:
            raise BackendUnavailableError(
                f"SkyRL at {url} is busy and does not say with which backend it works",
                "try again when it is idle",
            )
        RECOGNISED[url] = engine
    return RECOGNISED[url]


def _engine_of_bridge(url: str, key: str | None) -> Engine | None:
    """Return the engine behind a bridge at `url`; None if another server answers."""
    headers = {"X-API-Key": key or ""}
    with suppress(httpx.HTTPError, ValueError, LookupError, TypeError):
        answer = httpx.get(f"{url}/api/v1/local/engine", headers=headers, timeout=ANSWER_S)
        fields = answer.json()
        engine = Engine(fields.pop("engine"), **fields)
        BRIDGES.add(url)
        return engine
    return None


def upstream_key(service: TinkerService) -> str | None:
    """Return the key for an engine itself, which not every engine asks for."""
    return service.key or os.environ.get("TINKER_API_KEY")


@contextmanager
def reached(
    service: TinkerService, tell: Tell, log_folder: Path | None = None
) -> Iterator[TinkerService]:
    """Yield a remote service as its clients reach it: as it is, or through a bridge that runs as long as this
    context. `tell` receives a line when the bridge died and was restarted; its log is in `log_folder` (None:
    kept nowhere). Raises PolicyError (see `engine_of`), InfrastructureError if the bridge does not start."""
    engine = engine_of(service)
    if engine is None:
        yield service
        return
    if service.address in BRIDGES:
        key = upstream_key(service) or ""
        yield replace(service, through=Endpoint(service.address, key, engine=engine))
        return
    from localtinker.process import KeptBridge

    folders = {name: folder_of(service.config, name) for name in service.models.values()}
    with ExitStack() as stack:
        place = log_folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log_path = place / f"bridge-{service.part}.log"
        try:
            bridge = KeptBridge(
                service.address,
                log_path,
                on_restart=tell,
                upstream_key=upstream_key(service),
                models={name: folder for name, folder in folders.items() if folder},
                timeout_s=BRIDGE_S,
            )
        except StartError as error:
            raise InfrastructureError(error.message, error.hint) from error
        stack.enter_context(bridge)
        through = Endpoint(bridge.base_url, bridge.api_key, bridge.kill, engine)
        yield replace(service, through=through)
