"""What Prefect's pages show of a run: how far it is, a table of its last steps and evaluations, and where its report lies.

Nothing hangs on it. Artifacts are published behind the run's back, the newest state only, and a server that is away loses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from prefect.artifacts import (
    acreate_markdown_artifact,
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)

from rtl_core.pipeline.session import Session
from rtl_core.pipeline.spending import spent
from rtl_core.policy.cost import total_dollars

STEPS_SHOWN = 20


class Publisher:
    """Publishes the artifacts of one run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._key = re.sub("[^a-z0-9]+", "-", session.run.lower()).strip("-")
        self._progress: UUID | None = None
        self._waiting: Callable[[], Awaitable[None]] | None = None
        self._task: asyncio.Task[None] | None = None

    def after_step(self, step: int) -> None:
        """Publish how far the run is; a state that is overtaken before its turn is dropped."""
        self._put(lambda: self._publish(step + 1))

    async def at_end(self, report: str) -> None:
        """Publish where the report lies, and wait for all that is under way, but not for long."""
        self._put(lambda: self._finish(report))
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._task), 15)

    def _put(self, work: Callable[[], Awaitable[None]]) -> None:
        self._waiting = work
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while self._waiting is not None:
            work, self._waiting = self._waiting, None
            with contextlib.suppress(Exception):  # see the module's first lines
                await work()

    async def _publish(self, done: int) -> None:
        percent = 100.0 * done / max(len(self._session.steps), 1)
        words = f"{self._session.run}: {done} of {len(self._session.steps)} steps"
        if self._progress is None:
            self._progress = await acreate_progress_artifact(percent, key=f"progress-{self._key}", description=words)
        else:
            await aupdate_progress_artifact(self._progress, progress=percent, description=words)
        rows = await asyncio.to_thread(self._last_steps)
        await acreate_table_artifact(
            key=f"steps-{self._key}", table=rows, description=f"The last steps of {self._session.run}"
        )

    async def _finish(self, report: str) -> None:
        usd = total_dollars(spent(self._session.history, self._session.run, self._session.config), self._session.prices)
        lines = [f"# {self._session.run}", "", f"Report: `{report}`", ""]
        lines += [] if usd is None else [f"Spent so far: ${usd:,.2f}", ""]
        lines += ["| policy | train steps | pass@1 | 95 % interval |", "|---|---|---|---|"]
        for e in self._session.history.evaluations(self._session.run):
            if e.status == "done" and e.pass_at_1 is not None:
                interval = "" if e.lo is None or e.hi is None else f"{e.lo:.3f} to {e.hi:.3f}"
                lines.append(f"| {e.policy} | {e.step} | {e.pass_at_1:.3f} | {interval} |")
        await acreate_markdown_artifact("\n".join(lines), key=f"result-{self._key}", description="Held-out results")

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


_publishers: WeakKeyDictionary[Session, Publisher] = WeakKeyDictionary()


def publisher_of(session: Session) -> Publisher:
    """The publisher of an open session."""
    if session not in _publishers:
        _publishers[session] = Publisher(session)
    return _publishers[session]
