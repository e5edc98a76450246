"""Engines that speak an older version of Tinker's protocol: recognised by what they answer, and reached through a
bridge that this process starts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tinker.lib.base_url import DEFAULT_BASE_URL

from localtinker.bridge import Engine, recognise
from localtinker.bridge.engines import EngineError, OtherVersionError
from localtinker.errors import StartError
from rtl_core.backend.tinker.services import Reached, TinkerService, folder_of
from rtl_core.errors import InfrastructureError, PolicyError

ANSWER_S = 10.0
"""Timeout of each of the two requests that recognise an engine."""
RECOGNISED: dict[str, Engine | None] = {}
"""URL -> what answered there last. The start of a run does not ask again what its checks have asked."""


def engine_of(service: TinkerService) -> Engine | None:
    """Return the engine that serves at a service's URL; None if its server needs no bridge.

    Without a name in `tinker.engine`, a server that cannot be asked counts as one that needs no bridge: the
    requests that follow say what is wrong with it. Raises PolicyError if it is an engine that cannot be
    used, or not the one that is named.
    """
    named, url = service.config.tinker.engine, service.address
    must = named == "skyrl" and service.part != "teacher"
    if named == "tinker" or (url == DEFAULT_BASE_URL and not must):
        return None
    if url not in RECOGNISED:
        try:
            engine = recognise(url, ANSWER_S, upstream_key(service))
        except EngineError as error:
            if must or isinstance(error, OtherVersionError):
                raise PolicyError(f"{service.setting}: {error.message}", error.hint) from error
            return None
        if must and (engine is None or engine.name != named):
            raise PolicyError(
                f"{service.setting}: at {url} is no SkyRL, which tinker.engine names",
                'set tinker.engine = "auto", or the URL of a SkyRL',
            )
        RECOGNISED[url] = engine
    return RECOGNISED[url]


def upstream_key(service: TinkerService) -> str | None:
    """Return the key for an engine itself, which not every engine asks for."""
    return service.key or os.environ.get("TINKER_API_KEY")


@contextmanager
def reached(
    service: TinkerService, tell: Callable[[str], None], log_folder: Path | None = None
) -> Iterator[TinkerService]:
    """Yield a remote service as its clients reach it: as it is, or through a bridge that runs as long as this
    context. `tell` receives a line when the bridge died and was restarted; its log is in `log_folder` (None:
    kept nowhere). Raises PolicyError (see `engine_of`), InfrastructureError if the bridge does not start."""
    engine = engine_of(service)
    if engine is None:
        yield service
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
            )
        except StartError as error:
            raise InfrastructureError(error.message, error.hint) from error
        stack.enter_context(bridge)
        through = Reached(engine, bridge.base_url, bridge.api_key, bridge.kill)
        yield replace(service, through=through)
