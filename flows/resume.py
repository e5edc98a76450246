"""Resume: start every run again that a crash ended. Scheduled every few minutes, it is what goes on when everything else died.

A run is dead when no process holds its lock. It is started again when its row says `running` (it was killed, or stopped for
something that time mends) or that a signal stopped it (its machine was shut down, its worker restarted), and when a deployment had
started it. One that was cancelled, paused, finished, or failed for a reason that no time mends is left alone.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import flow, get_client
from prefect.client.orchestration import PrefectClient
from prefect.deployments import arun_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

from rtl_core.config import RunConfig
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.pipeline import stored
from rtl_core.pipeline.lock import is_held, lock_path, read_holder
from rtl_core.pipeline.progress import progress

AGAIN_AFTER_S = 900


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
    reader = History(Path(history), read_only=True)
    started = []
    async with get_client() as client:
        for record in reader.runs():
            config = stored.config_of(reader, record.name)
            holder = read_holder(lock_path(config))
            if wants_to_run(record, config, holder) and await start_again(client, config, holder):
                started.append(record.name)
                progress.get().line(f"{record.name} had crashed; it is started again")
    return started


def wants_to_run(record: RunRecord, config: RunConfig, holder: dict[str, Any]) -> bool:
    """Whether a run is dead and should not be."""
    by_signal = record.status == "cancelled" and (record.message or "").startswith("stopped by a signal")
    return (
        (record.status == "running" or by_signal)
        and bool(holder.get("deployment"))
        and holder.get("host") == socket.gethostname()
        and not stored.pause_path(config).exists()
        and not is_held(lock_path(config))
    )


async def start_again(client: PrefectClient, config: RunConfig, holder: dict[str, Any]) -> bool:
    """Trigger the run's deployment, unless its flow run was cancelled or is about to run again by itself."""
    flow_run_id = UUID(holder["flow_run"])
    try:
        state = (await client.read_flow_run(flow_run_id)).state
    except ObjectNotFound:
        state = None
    if state is not None:
        if state.is_scheduled() or state.is_cancelled():
            return False
        if state.is_cancelling():
            # Nobody was left to confirm it.
            await client.set_flow_run_state(flow_run_id, Cancelled(message="its process is gone"), force=True)
            return False
        if not state.is_final():
            # Prefect does not notice the end of a process whose worker died; this also gives its slot back.
            await client.set_flow_run_state(flow_run_id, Crashed(message="its process is gone"), force=True)
    await arun_deployment(
        holder["deployment"],
        parameters={"config": str(stored.write_config(config))},
        # Once for each death, however often we look; again after a while, should the new one have died before it took the lock.
        idempotency_key=f"resume/{config.run.name}/{flow_run_id}/{int(time.time() // AGAIN_AFTER_S)}",
        timeout=0,
        as_subflow=False,
    )
    return True
