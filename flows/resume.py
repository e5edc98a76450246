"""Resume: restart every run that a crash ended. Scheduled every few minutes, it recovers even if everything else died.

A run is dead if no process holds its lock. It is restarted if a deployment had started it and its row says
`running` (it was killed, or stopped because of a transient error) or that a signal stopped it (its machine
was shut down, its worker restarted). Runs that were cancelled, paused, finished, or failed permanently are
left alone.
"""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from prefect import flow, get_client
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import arun_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.run import folder
from rtl_core.run.lock import is_held, lock_path, read_holder
from rtl_distill.tasks.logs import lines_in_flow_run_log
from rtl_grader.progress import log_line

STARTING_S = 120.0
"""Seconds within which a triggered flow run must have a process."""
ATTEMPTS = 20
"""Maximum number of flow runs that die before they take the run's lock; after that a person has to look."""


@flow(name="resume", flow_run_name="resume what crashed", validate_parameters=True)
async def resume(history: str = "runs/history.duckdb") -> list[str]:
    """Restart every crashed run of a history through the deployment that had started it.

    Args:
        history: the DuckDB file of the runs; only runs of this machine are restarted.

    Returns:
        Names of the runs that were restarted.
    """
    if not Path(history).is_file():
        return []
    runs = History(Path(history))
    started = []
    with lines_in_flow_run_log():
        async with get_client() as client:
            for record in runs.runs():
                try:
                    config = folder.config_of(runs, record.name)
                    holder = read_holder(lock_path(config))
                    dead = should_restart(record, config, holder)
                    if dead and await restart(client, config, holder):
                        started.append(record.name)
                        log_line(f"{record.name} had crashed; it is restarted")
                # Affects only this run, such as another user's lock.
                except (ConfigError, OSError) as error:
                    log_line(str(error))
    return started


def should_restart(record: RunRecord, config: RunConfig, holder: dict[str, Any]) -> bool:
    """Whether a run is dead although it should be running."""
    return (
        (record.status == "running" or record.ended_by == "signal")
        and bool(holder.get("deployment"))
        and holder.get("host") == socket.gethostname()
        and not folder.pause_path(config).exists()
        and not is_held(lock_path(config))
    )


async def restart(client: PrefectClient, config: RunConfig, holder: dict[str, Any]) -> bool:
    """Trigger the run's deployment once for each death. Returns whether this call did.

    Does nothing if its flow run was cancelled or will run again by itself. If the new flow run dies before
    it takes the run's lock, the next call triggers another one. ConfigError if the deployment no longer
    exists, or after `ATTEMPTS` flow runs.
    """
    flow_run_id = UUID(holder["flow_run"])
    try:
        dead = await client.read_flow_run(flow_run_id)
    except ObjectNotFound:
        dead = None
    if dead is not None and not await _confirm_end(client, dead):
        return False
    for attempt in range(ATTEMPTS):
        key = f"resume/{config.run.name}/{flow_run_id}/{attempt}"
        same_key = FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=[key]))
        earlier = await client.read_flow_runs(flow_run_filter=same_key)
        if not earlier:
            try:
                await arun_deployment(
                    holder["deployment"],
                    parameters={"config": str(folder.write_config(config))},
                    idempotency_key=key,
                    timeout=0,
                    as_subflow=False,
                )
            except ObjectNotFound:
                raise ConfigError(
                    f"{config.run.name} had crashed, and the server no longer has its deployment "
                    f"{holder['deployment']}",
                    f"register it again, or resume with {folder.command_for(config, 'resume')}",
                ) from None
            return True
        if _is_starting(earlier[0]) or not await _confirm_end(client, earlier[0]):
            return False
    raise ConfigError(
        f"{config.run.name} had crashed, and {ATTEMPTS} flow runs in succession died before they worked on it",
        f"see their logs; {folder.command_for(config, 'resume')} starts it here",
    )


async def _confirm_end(client: PrefectClient, flow_run: FlowRun) -> bool:
    """Tell Prefect that a flow run's process is gone. Returns whether another flow run may replace it.

    Prefect does not notice the end of a process whose worker died. Telling it also frees the deployment's
    concurrency slot.
    """
    state = flow_run.state
    if state is None or state.is_scheduled() or state.is_cancelled():
        return False
    why = "its process is gone"
    if state.is_cancelling():
        # The process that should have confirmed it is gone.
        await client.set_flow_run_state(flow_run.id, Cancelled(message=why), force=True)
        return False
    if not state.is_final():
        await client.set_flow_run_state(flow_run.id, Crashed(message=why), force=True)
    return True


def _is_starting(flow_run: FlowRun) -> bool:
    """Whether a flow run may still take the lock: it is recent, or a process on this machine works on it."""
    state = flow_run.state
    if state is None or state.is_final():
        return False
    if (datetime.now(UTC) - state.timestamp).total_seconds() < STARTING_S:
        return True
    # Not its child processes, which inherit the variable and may outlive the run briefly.
    return any(
        (process.info["environ"] or {}).get("PREFECT__FLOW_RUN_ID") == str(flow_run.id)
        and "prefect.engine" in " ".join(process.info["cmdline"])
        for process in psutil.process_iter(["environ", "cmdline"])
    )
