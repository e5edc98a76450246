"""The background loops of the Tinker SDK in this process."""

import asyncio
import sys
import time


def sdk_loops() -> list[str]:
    """Names of the running background loops of Tinker SDK sessions in this process, such as `_session_heartbeat`."""
    holders = sys.modules.get("tinker.lib.internal_client_holder")
    if holders is None:
        return []
    loop = holders._internal_client_holder_thread_singleton.loop_if_started()
    if loop is None:
        return []

    async def names() -> list[str]:
        coroutines = [
            task.get_coro().__qualname__.split(".")[-1] for task in asyncio.all_tasks()
        ]
        return sorted(name for name in coroutines if name in SDK_LOOPS)

    return asyncio.run_coroutine_threadsafe(names(), loop).result()


SDK_LOOPS = ("_session_heartbeat", "_client_dynamic_config_refresh_loop", "_cancel_drain_loop")


def wait_until_no_sdk_loop_runs(patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while found := sdk_loops():
        assert time.monotonic() < deadline, f"sessions of the SDK are still open: {found}"
        time.sleep(0.02)
