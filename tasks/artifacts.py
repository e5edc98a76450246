"""What Prefect's pages show of a run: how far it is, a table of its last steps and evaluations, and where its report lies.

Nothing hangs on it. Artifacts are published behind the run's back, the newest state only; a server that is away loses them, and the
run's log tells so once.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    acreate_markdown_artifact,
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)

from rtl_core.cost.tokens import total_dollars
from rtl_core.observe.progress import progress
from rtl_core.observe.usage import spent
from rtl_core.run.export import results_table
from rtl_core.run.session import Session

STEPS_SHOWN = 20


def artifact_key(what: str, run: str) -> str:
    """Key of an artifact of a run, of the characters that Prefect allows."""
    return f"{what}-{re.sub('[^a-z0-9]+', '-', run.lower()).strip('-')}"


class Publisher:
    """Publishes the artifacts of one run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._progress: UUID | None = None
        self._waiting: Callable[[], Awaitable[None]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._told = False

    def after_step(self, step: int) -> None:
        """Publish how far the run is; a state that is overtaken before its turn is dropped."""
        self._put(lambda: self._publish(step + 1))

    async def at_end(self, report: str) -> None:
        """Publish where the report lies, and wait for all that is under way, but not for long."""
        self._put(lambda: self._finish(report))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.settled(), 15)

    async def settled(self) -> None:
        """Wait for all that is under way."""
        if self._task is not None:
            await asyncio.shield(self._task)

    def _put(self, work: Callable[[], Awaitable[None]]) -> None:
        self._waiting = work
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while self._waiting is not None:
            work, self._waiting = self._waiting, None
            try:
                await work()
            except Exception as error:  # see the module's first lines
                if not self._told:
                    progress.get().line(f"Prefect's pages lag behind: {type(error).__name__}: {error}")
                self._told = True

    async def _publish(self, done: int) -> None:
        run = self._session.run
        percent = 100.0 * done / max(len(self._session.steps), 1)
        words = f"{run}: {done} of {len(self._session.steps)} steps"
        if self._progress is None:
            key = artifact_key("progress", run)
            self._progress = await acreate_progress_artifact(percent, key=key, description=words)
        else:
            await aupdate_progress_artifact(self._progress, progress=percent, description=words)
        rows = await asyncio.to_thread(self._last_steps)
        await acreate_table_artifact(key=artifact_key("steps", run), table=rows, description=f"The last steps of {run}")

    async def _finish(self, report: str) -> None:
        run, history = self._session.run, self._session.history
        usd = total_dollars(await asyncio.to_thread(spent, history, run, self._session.config), self._session.prices)
        lines = [f"# {run}", "", f"Report: `{report}`", ""]
        lines += [] if usd is None else [f"Spent so far: ${usd:,.2f}", ""]
        lines += results_table(history, run)
        await acreate_markdown_artifact(
            "\n".join(lines), key=artifact_key("result", run), description="Held-out results"
        )

    def _last_steps(self) -> list[dict[str, Any]]:
        names = {
            "env/all/reward/total": "reward",
            "env/all/tests_passed": "pass rate",
            "teacher_kl": "teacher KL",
            "cost/usd": "USD",
            "time/total": "seconds",
        }
        table = self._session.history.query(
            f"SELECT step, name, value FROM step_metrics WHERE run = ? AND name IN ({', '.join('?' * len(names))})"
            f" AND step > (SELECT max(step) FROM step_metrics WHERE run = ?) - {STEPS_SHOWN} ORDER BY step",
            [self._session.run, *names, self._session.run],
        ).to_pylist()
        rows: dict[int, dict[str, Any]] = {}
        for row in table:
            rows.setdefault(row["step"], {"step": row["step"] + 1})[names[row["name"]]] = round(row["value"], 4)
        return list(rows.values())
