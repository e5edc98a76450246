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
_RECOGNISED: dict[str, Engine | None] = {}
"""URL -> what answered there last. The start of a run does not ask again what its checks have asked."""


def engine_of(service: TinkerService, *, again: bool = True) -> Engine | None:
    """Return the engine that serves at a service's URL; None if its server needs no bridge. With `again`, the
    server is asked although it was before.

    Raises EngineError if it is an engine that cannot be used, or not the one that `tinker.engine` names.
    Without such a name, a server that cannot be asked counts as one that needs no bridge: the requests
    that follow say what is wrong with it.
    """
    named, url = service.config.tinker.engine, service.address
    must = named == "skyrl" and service.part != "teacher"
    if service.is_local or named == "tinker" or (url == DEFAULT_BASE_URL and not must):
        return None
    if url in _RECOGNISED and not again:
        return _RECOGNISED[url]
    try:
        engine = recognise(url, ANSWER_S, upstream_key(service))
    except EngineError as error:
        if must or isinstance(error, OtherVersionError):
            raise
        return None
    if must and (engine is None or engine.name != named):
        answers = "a server that needs no bridge" if engine is None else engine.name
        raise EngineError(
            f"{url} is {answers}, and tinker.engine is {named!r}",
            'set tinker.engine = "auto", or tinker.base_url to the URL of a SkyRL',
        )
    _RECOGNISED[url] = engine
    return engine


def upstream_key(service: TinkerService) -> str | None:
    """Return the key for an engine itself, which not every engine asks for."""
    return service.key or os.environ.get("TINKER_API_KEY") or None


@contextmanager
def reached(
    service: TinkerService,
    tell: Callable[[str], None] = lambda line: None,
    *,
    again: bool = False,
    log_folder: Path | None = None,
) -> Iterator[TinkerService]:
    """Yield a remote service as its clients reach it: as it is, or through a bridge that runs as long as this
    context.

    Args:
        tell: receives a line when the bridge died and was restarted.
        again: see `engine_of`.
        log_folder: folder for the log of the bridge; None: a temporary one.

    Raises:
        EngineError: see `engine_of`.
        StartError: the bridge did not start.
    """
    engine = engine_of(service, again=again)
    if engine is None:
        yield service
        return
    from localtinker.process import KeptBridge

    with ExitStack() as stack:
        if log_folder is None:
            log_folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        name = "bridge-teacher.log" if service.part == "teacher" else "bridge.log"
        bridge = stack.enter_context(
            KeptBridge(
                service.address,
                log_folder / name,
                on_restart=tell,
                upstream_key=upstream_key(service),
                models={
                    name: folder
                    for name in service.models.values()
                    if (folder := folder_of(service.config, name))
                },
            )
        )
        yield replace(
            service, through=Reached(engine, bridge.base_url, bridge.api_key, bridge.kill)
        )


@contextmanager
def engine_errors(service: TinkerService) -> Iterator[None]:
    """Translate errors of recognising an engine and of starting a bridge into ours."""
    try:
        yield
    except EngineError as error:
        raise PolicyError(f"{service.setting}: {error.message}", error.hint) from error
    except StartError as error:
        raise InfrastructureError(error.message, error.hint) from error
