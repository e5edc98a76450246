"""Resume: start every run again that a crash ended. Scheduled every few minutes, it is what goes on when everything else died.

A run is dead when no process holds its lock. It is started again when its row says `running` (it was killed, or stopped for
something that time mends) or that a signal stopped it (its machine was shut down, its worker restarted), and when a deployment had
started it. One that was cancelled, paused, finished, or failed for a reason that no time mends is left alone.
"""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

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
from rtl_core.observe.progress import progress
from rtl_core.run import folder
from rtl_core.run.lock import is_held, lock_path, read_holder
from rtl_distill.operations import processes
from rtl_distill.tasks.logs import lines_in_flow_run_log

STARTING_S = 120.0
"""Seconds in which a flow run that was triggered again must have become a process."""
ATTEMPTS = 20
"""Flow runs that may die, one after another, before they take the run's lock; then somebody has to look."""


@flow(name="resume", flow_run_name="resume what crashed", validate_parameters=True)
async def resume(history: str = "runs/history.duckdb") -> list[str]:
    """Start every crashed run of a history again, through the deployment that had started it.

    Args:
        history: the DuckDB file of the runs; the runs must be this machine's.

    Returns:
        Names of the runs that were started.
    """
    if not Path(history).is_file():
        return []
    known, started = History(Path(history)), []  # one of an older release is brought forward, as by the run itself
    with lines_in_flow_run_log():
        async with get_client() as client:
            for record in known.runs():
                try:
                    config = folder.config_of(known, record.name)
                    holder = read_holder(lock_path(config))
                    if wants_to_run(record, config, holder) and await start_again(client, config, holder):
                        started.append(record.name)
                        progress.get().line(f"{record.name} had crashed; it is started again")
                except ConfigError as error:  # of this run alone
                    progress.get().line(str(error))
    return started


def wants_to_run(record: RunRecord, config: RunConfig, holder: dict[str, Any]) -> bool:
    """Whether a run is dead and should not be."""
    return (
        (record.status == "running" or record.ended_by == "signal")
        and bool(holder.get("deployment"))
        and holder.get("host") == socket.gethostname()
        and not folder.pause_path(config).exists()
        and not is_held(lock_path(config))
    )


async def start_again(client: PrefectClient, config: RunConfig, holder: dict[str, Any]) -> bool:
    """Trigger the run's deployment once for each death; whether this call did.

    Not when its flow run was cancelled, or is about to run again by itself. The flow run that is started may die in its turn
    before it takes the run's lock: then the next one is triggered. ConfigError where there is no such deployment any more.
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
        known = await client.read_flow_runs(
            flow_run_filter=FlowRunFilter(idempotency_key=FlowRunFilterIdempotencyKey(any_=[key]))
        )
        if not known:
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
                    f"{config.run.name} had crashed, and the server does not have its deployment {holder['deployment']} any more",
                    f"register it again, or go on with `rtl-distill resume {config.run.name}`",
                ) from None
            return True
        if _on_its_way(known[0]) or not await _confirm_end(client, known[0]):
            return False
    return False


async def _confirm_end(client: PrefectClient, flow_run: FlowRun) -> bool:
    """Tell Prefect that a flow run's process is gone; whether another flow run may take its place.

    Prefect does not notice the end of a process whose worker died; telling it also gives the deployment's slot back.
    """
    state = flow_run.state
    if state is None or state.is_scheduled() or state.is_cancelled():
        return False
    if state.is_cancelling():
        # Nobody was left to confirm it.
        await client.set_flow_run_state(flow_run.id, Cancelled(message="its process is gone"), force=True)
        return False
    if not state.is_final():
        await client.set_flow_run_state(flow_run.id, Crashed(message="its process is gone"), force=True)
    return True


def _on_its_way(flow_run: FlowRun) -> bool:
    """Whether a flow run that does not hold the lock may still come to it: it is young, or a process here works on it."""
    state = flow_run.state
    if state is None or state.is_final():
        return False
    if (datetime.now(UTC) - state.timestamp).total_seconds() < STARTING_S:
        return True
    # Not its children, which have the variable too and may live a little longer than the run.
    return any(
        processes.variable(pid, "PREFECT__FLOW_RUN_ID") == str(flow_run.id)
        and "prefect.engine" in processes.command_line(pid)
        for pid in processes.pids()
    )
