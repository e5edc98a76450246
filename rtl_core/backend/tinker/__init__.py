"""The Tinker backend, through the `tinker` SDK: the cloud, the embedded service that a run starts, or any other URL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

# The SDK reads these when it is imported or first used.
os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from rtl_core.backend.base import Backend, Readiness
from rtl_core.backend.registry import BACKENDS
from rtl_core.backend.tinker import checkpoints
from rtl_core.backend.tinker.clients import TinkerBackend
from rtl_core.backend.tinker.connect import (
    load_tokenizer,
    tinker_endpoint,
    tinker_session,
)
from rtl_core.backend.tinker.embedded import (
    describe_saved,
    embedded_readiness,
    service_errors,
    temporary_folder,
)
from rtl_core.backend.tinker.engines import RECOGNISED, reached
from rtl_core.backend.tinker.faults import sdk_errors
from rtl_core.backend.tinker.pauses import Pauses, pauses_reported
from rtl_core.backend.tinker.readiness import remote_readiness, stored_weights
from rtl_core.backend.tinker.services import TinkerService, services_of
from rtl_core.backend.tinker.sessions import Sessions
from rtl_core.config import RunConfig
from rtl_core.errors import BackendUnavailableError, InfrastructureError, PolicyError
from rtl_core.types.finding import Finding
from rtl_core.types.tell import Tell
from rtl_core.types.tokenizer import Tokenizer
from rtl_grader.progress import log_line

Entered = TypeVar("Entered")


class _Tinker:
    """See `Provider`."""

    def embedded(self, config: RunConfig) -> bool:
        return config.tinker.is_local

    async def check(self, config: RunConfig) -> Readiness:
        parts = await asyncio.gather(*(_readiness(service) for service in services_of(config)))
        return parts[0] if len(parts) == 1 else _combined(*parts)

    def tokenizer(self, config: RunConfig, model: str) -> Tokenizer:
        return load_tokenizer(model, config)

    @asynccontextmanager
    async def open(self, config: RunConfig, tell: Tell) -> AsyncIterator[Backend]:
        services = services_of(config)
        async with AsyncExitStack() as stack:
            reported = stack.enter_context(
                pauses_reported(
                    tell, services=sum(not service.is_local for service in services)
                )
            )
            opened = []
            for service in services:
                line = (
                    tell if service.part != "teacher" else lambda text: tell(f"teacher: {text}")
                )
                if service.is_local and service.part == "teacher":
                    stack.enter_context(temporary_folder(service.state))
                endpoint = await stack.enter_async_context(
                    in_thread(tinker_endpoint(service, line, config.run.folder))
                )
                # The embedded service needs no credit, and its answers do not show that another service serves again.
                pauses = Pauses(line) if service.is_local else reported
                opened.append(await stack.enter_async_context(Sessions(endpoint, pauses, line)))
            yield TinkerBackend(opened[0], opened[-1], config)

    async def stored(self, config: RunConfig) -> set[str]:
        service = services_of(config)[0]
        if service.is_local:
            from localtinker.registry import live_checkpoints

            with service_errors():
                return set(live_checkpoints(service.state))
        async with in_thread(reached(service, log_line)) as now:
            with sdk_errors():
                return set(await stored_weights(now))

    async def export(
        self, config: RunConfig, state_path: str, name: str, folder: Path
    ) -> list[Path]:
        if config.tinker.is_local:
            return checkpoints.copy_adapter(config, state_path, folder)
        async with in_thread(tinker_endpoint(services_of(config)[0])) as endpoint:
            with sdk_errors():
                async with tinker_session(endpoint) as service:
                    return await checkpoints.download_adapter(
                        service, endpoint.rest(), state_path, name, folder, endpoint.marks
                    )


async def _readiness(service: TinkerService) -> Readiness:
    if service.is_local:
        return embedded_readiness(service)
    RECOGNISED.pop(service.address, None)
    try:
        async with in_thread(reached(service, log_line)) as now:
            return await remote_readiness(now)
    except (PolicyError, InfrastructureError) as error:
        busy = isinstance(error, BackendUnavailableError)
        return Readiness([Finding.of("engine", error, busy)])


def _combined(student: Readiness, teacher: Readiness) -> Readiness:
    """Merge the readiness of the student's and the teachers' service. Findings of the latter are marked as such."""
    findings = list(student.findings)
    for finding in teacher.findings:
        if not finding.about.startswith("tinker."):
            finding = replace(finding, about=f"teacher: {finding.about}")
        findings.append(finding)
    context, saved = {**teacher.context, **student.context}, {**student.saved, **teacher.saved}
    return Readiness(
        findings, context, student.checkpoint_bytes, saved, student.newest_weights_only
    )


@asynccontextmanager
async def in_thread(context: AbstractContextManager[Entered]) -> AsyncIterator[Entered]:
    """Enter a slow context manager in a thread. If cancelled while entering, exit it afterwards."""
    entering = asyncio.create_task(asyncio.to_thread(context.__enter__))
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError:
        await asyncio.wait([entering])
        if entering.exception() is None:
            context.__exit__(None, None, None)
        raise
    with ExitStack() as stack:
        stack.push(context.__exit__)
        yield entering.result()


BACKENDS.register("tinker")(_Tinker())


async def base_model_of(config: RunConfig, path: str) -> str:
    """Return the base model of the adapter saved at `path` on the configuration's service. The embedded
    service knows the weights of all runs in `run.directory`. Raises PolicyError if the service has no such
    weights, or a key is missing."""
    service = services_of(config)[0]
    if service.is_local:
        return describe_saved(service, path, "--model").base_model
    with tinker_endpoint(service) as endpoint, sdk_errors():
        return (await checkpoints.describe(endpoint.rest(), path)).base_model
