"""Connections to a Tinker service: endpoint, credential, SDK session, and tokenizers of its models."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import tinker
from tinker.lib._auth_token_provider import AuthTokenProvider

from localtinker.client.session import closed_at_the_end, find_credential
from localtinker.errors import CredentialError, StartError
from rtl_core.backend.tinker.embedded import copy_saved_weights, local_models
from rtl_core.backend.tinker.engines import reached
from rtl_core.backend.tinker.faults import sdk_errors
from rtl_core.backend.tinker.marks import marks_of
from rtl_core.backend.tinker.services import (
    TEACHER_KEY,
    Endpoint,
    TinkerService,
    folder_of,
    services_of,
)
from rtl_core.config import RunConfig
from rtl_core.errors import InfrastructureError, PolicyError
from rtl_core.types.tell import Tell
from rtl_core.types.tokenizer import Tokenizer
from rtl_grader.progress import log_line


def credential(service: TinkerService) -> tuple[AuthTokenProvider, str]:
    """Return the credential for a service, its own or the SDK's, and its source in words. Raises
    PolicyError if it is missing or invalid."""
    try:
        provider, source = find_credential(service.key)
    except CredentialError as error:
        raise PolicyError(error.message, sign_in(service)) from error
    return provider, TEACHER_KEY if service.key else source


def sign_in(service: TinkerService) -> str:
    """Return how to get a credential for a service, in words."""
    name = TEACHER_KEY if service.part == "teacher" else "TINKER_API_KEY"
    return f"export {name}=tml-..., or store a key with `tinker auth login`; `--set {service.setting}=local` needs none"


@contextmanager
def tinker_endpoint(
    service: TinkerService,
    on_restart: Tell = log_line,
    log_folder: Path | None = None,
) -> Iterator[Endpoint]:
    """Yield the endpoint of a run's service. The embedded service, or the bridge to an engine, runs as long as
    this context; `on_restart` receives a message when it died and was restarted. The log of a bridge is in
    `log_folder` (None: kept nowhere). Raises PolicyError if the key of a remote service is missing, or an
    engine cannot be used."""
    config = service.config
    if service.is_local:
        from localtinker.process import KeptTinker

        copy_saved_weights(service)
        try:
            process = KeptTinker(
                local_models(service),
                service.state,
                on_restart=on_restart,
                threads=config.tinker.local_threads,
                deterministic=config.tinker.local_deterministic,
                device=config.tinker.local_device,
                dtype=config.tinker.local_dtype,
            )
        except StartError as error:
            raise InfrastructureError(error.message, error.hint) from error
        with process as server:
            marks = marks_of(config)
            yield Endpoint(server.base_url, server.api_key, server.kill, marks=marks)
        return
    with reached(service, on_restart, log_folder) as now:
        if now.through is None:
            credential(service)
        yield replace(now.through or Endpoint(service.url, service.key), marks=marks_of(config))


@asynccontextmanager
async def tinker_session(endpoint: Endpoint) -> AsyncIterator[tinker.ServiceClient]:
    """Open an SDK session on a service and close it afterwards."""
    with sdk_errors():
        service = tinker.ServiceClient(
            user_metadata=endpoint.marks, base_url=endpoint.base_url, api_key=endpoint.api_key
        )
    async with closed_at_the_end(service):
        yield service


def load_tokenizer(name: str, config: RunConfig) -> Tokenizer:
    """Load the tokenizer of a model from its folder on this machine, else from the hub."""
    from transformers import AutoTokenizer

    # An unreachable hub is reported once, below, instead of at every retry.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    for service in services_of(config):
        if service.is_local:
            local_models(service)  # raises the error of a model that the embedded service needs
    source = str(folder_of(config, name) or name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        # Silences a misleading warning: the model itself refuses sequences that are too long.
        tokenizer.deprecation_warnings[
            "sequence-length-is-longer-than-the-specified-maximum"
        ] = True
        return cast(Tokenizer, tokenizer)
    except (
        Exception
    ) as error:  # of many kinds: a damaged file, a missing package, an unknown class
        words = (str(error) or type(error).__name__).splitlines()[0]
        raise PolicyError(
            f"the tokenizer of {name!r} cannot be loaded from {source}: {words}",
            "check the network and the name, or set its folder: [tinker.local_models] with "
            f'"{name}" = "/path/to/folder"',
        ) from error
