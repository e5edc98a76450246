"""The flow run that works on a run: its identity and names, and its cancellation while the worker is gone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import httpx
from prefect import get_client
from prefect.runtime import deployment, flow_run
from prefect.utilities.urls import url_for

from rtl_core.config import Options, RunConfig, load_config
from rtl_core.errors import ConfigError
from rtl_core.run.opening import open_session
from rtl_core.run.session import Session
from rtl_core.run.stopping import is_transient
from rtl_distill.tasks.cluster import cluster_of
from rtl_distill.tasks.logs import lines_in_flow_run_log

POLL_S = 2.0
VALIDATION = ".validation"
"""End of the name of a run that only validates the problems of another."""


def this_flow_run() -> dict[str, Any]:
    """Return what the run's lock stores: the flow run, and the deployment that starts such runs, if there is one."""
    name = f"{flow_run.flow_name}/{deployment.name}" if deployment.id else None
    # A temporary server has no pages.
    page = url_for("flow-run", obj_id=flow_run.id) if deployment.id and flow_run.id else None
    return {
        "flow_run": str(flow_run.id) if flow_run.id else None,
        "deployment": name,
        "page": page,
    }


async def tag_with_run(run: str) -> None:
    """Tag this flow run with its run's name; nothing depends on it, so that a lost server does not matter."""
    if flow_run.id:
        with suppress(httpx.HTTPError):
            async with get_client() as client:
                await client.update_flow_run(UUID(flow_run.id), tags=[*flow_run.tags, run])


@asynccontextmanager
async def session_of_flow(config: RunConfig, **options: Any) -> AsyncIterator[Session]:
    """Open a run in the current flow run: its lines are in the flow run's log, which has the run's name as a tag, and
    its jobs are on its cluster. `options`: see `open_session`."""
    with lines_in_flow_run_log(), cluster_of(config) as cluster:
        async with open_session(config, cluster=cluster, **options) as session:
            await tag_with_run(session.run.removesuffix(VALIDATION))
            yield session


def named_by_run() -> str:
    """Name of a flow run of `train` or `validate`: what it does, and the run's name."""
    parameters = flow_run.parameters
    options = Options.model_validate(parameters.get("options") or {})
    overrides = [*(parameters.get("overrides") or []), *options.as_overrides()]
    name = parameters.get("config", "demo")
    # The flow itself raises what is wrong with other keys.
    naming = [text for text in overrides if re.match(r"\s*run\.name\b", text)]
    with suppress(ConfigError):
        name = load_config(name, naming, check_files=False).run.name
    return f"{flow_run.flow_name} {name}"


def named_by_epoch() -> str:
    """Name of a flow run of one epoch, counted from 1 as in the run's log."""
    session, epoch = flow_run.parameters["session"], flow_run.parameters["epoch"]
    return f"{session.run} epoch {epoch + 1} of {session.config.run.epochs}"


@asynccontextmanager
async def cancelled_with_flow_run(before: Callable[[], None]) -> AsyncIterator[None]:
    """Cancel the block if its flow run is cancelled in Prefect, even if the worker that would send the signal is gone.

    `before` is called first. Without a deployment there is no worker, and the flow run is not watched.
    """
    task = asyncio.current_task()
    if task is None or not deployment.id or not flow_run.id:
        yield
        return
    watcher = asyncio.create_task(_watch(UUID(str(flow_run.id)), task, before))
    try:
        yield
    finally:
        watcher.cancel()


async def _watch(
    flow_run_id: UUID, task: asyncio.Task[Any], before: Callable[[], None]
) -> None:
    async with get_client() as client:
        while True:
            await asyncio.sleep(POLL_S)
            try:
                state = (await client.read_flow_run(flow_run_id)).state
            except Exception as error:
                if is_transient(error) or "httpx" in type(error).__module__:
                    continue  # an unreachable server is no cancellation
                raise
            if state is not None and (state.is_cancelling() or state.is_cancelled()):
                before()
                task.cancel()
                return
