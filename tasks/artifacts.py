"""Prefect artifacts of a run: its progress, a table of its last steps and evaluations, and the path of its report.

Nothing depends on them. They are published in the background, only the newest state; if the server is
unreachable they are lost, and the run's log says so once.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    acreate_markdown_artifact,
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)

from rtl_core.observe.usage import dollars_spent
from rtl_core.run.folder import report_path
from rtl_core.run.model_card import results_table
from rtl_core.run.session import Session
from rtl_grader.progress import log_line
from rtl_grader.words import counted

LAST_STEPS = 20
_WHERE = """\
# {run}

Report, written again while the run goes on: `{report}`

[View](http://127.0.0.1:8765/run?run={run}), while this runs on the run's machine:

```
rtl-distill view --db {database} --port 8765 --no-browser
```

In a terminal there: `rtl-distill watch {run} --db {database}`

"""


def artifact_key(what: str, run: str) -> str:
    """Return the key of a run's artifact, with only the characters that Prefect allows."""
    return f"{what}-{re.sub('[^a-z0-9]+', '-', run.lower()).strip('-')}"


class Publisher:
    """Publishes the artifacts of one run on the page of the flow run that creates it, not on those of subflows."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._context = copy_context()
        self._progress: UUID | None = None
        self._waiting: dict[str, Callable[[], Awaitable[None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._has_warned = False

    def at_start(self) -> None:
        """Publish where to look while the run is in progress."""
        self._put("where", self._publish_result)

    def after_step(self, step: int) -> None:
        """Publish the progress; a state that is superseded before its turn is dropped."""
        self._put("step", lambda: self._publish_step(step + 1))

    async def at_end(self) -> None:
        """Publish the results, and wait a limited time for pending artifacts."""
        self._put("results", self._publish_result)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.settled(), 15)

    async def settled(self) -> None:
        """Wait for pending artifacts."""
        if self._task is not None:
            await asyncio.shield(self._task)

    def _put(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        self._waiting[what] = work
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), context=self._context)

    async def _work(self) -> None:
        while self._waiting:
            work = self._waiting.pop(next(iter(self._waiting)))
            try:
                await work()
            except Exception as error:  # nothing depends on artifacts
                if not self._has_warned:
                    log_line(
                        f"Prefect's pages are not up to date: {type(error).__name__}: {error}"
                    )
                self._has_warned = True

    async def _publish_step(self, done: int) -> None:
        run, steps = self._session.run, len(self._session.weights.steps)
        percent = 100.0 * done / max(steps, 1)
        words = f"{run}: {done} of {counted(steps, 'step')}"
        if self._progress is None:
            key = artifact_key("progress", run)
            self._progress = await acreate_progress_artifact(
                percent, key=key, description=words
            )
        else:
            await aupdate_progress_artifact(self._progress, progress=percent, description=words)
        rows = await asyncio.to_thread(self._last_steps)
        await acreate_table_artifact(
            key=artifact_key("steps", run), table=rows, description=f"The last steps of {run}"
        )

    async def _publish_result(self) -> None:
        """Publish the report's path, commands to watch the run, money spent and results so far."""
        session = self._session
        run, history = session.run, session.history
        usd = await asyncio.to_thread(
            dollars_spent, history, run, session.config, session.prices
        )
        database = str(history.path.resolve())
        report = report_path(history, [run]).resolve()
        text = _WHERE.format(run=run, report=report, database=shlex.quote(database))
        if usd is not None:
            text += f"Spent so far: ${usd:,.2f}\n\n"
        table = await asyncio.to_thread(results_table, history, run)
        text += "\n".join(table) if len(table) > 2 else "No evaluation yet."
        key, title = artifact_key("result", run), f"{run}: where to look, and results"
        await acreate_markdown_artifact(text, key=key, description=title)

    def _last_steps(self) -> list[dict[str, Any]]:
        names = {
            "env/all/reward/total": "reward",
            "env/all/tests_passed": "pass rate",
            "env/all/tests_passed_equal_difficulty": "pass rate at equal difficulty",
            "teacher_kl": "teacher KL",
            "cost/usd": "USD",
            "time/total": "seconds",
        }
        history, run = self._session.history, self._session.run
        first = history.steps_done(run) - LAST_STEPS
        rows = []
        for step, metrics in history.step_metrics(run, first).items():
            row: dict[str, Any] = {"step": step + 1}
            for name, words in names.items():
                if name in metrics:
                    row[words] = round(metrics[name], 4)
            rows.append(row)
        return rows
