"""What a run leaves for its readers: its status while it lives, a line per step, the table and the page at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rtl_core.pipeline.progress import progress
from rtl_core.pipeline.session import Session
from rtl_core.reporting.console import before_after_table
from rtl_core.reporting.report import write_report


@asynccontextmanager
async def run_status(session: Session) -> AsyncIterator[None]:
    """Keep the run's row true: running, and then finished, cancelled, or failed with the reason."""
    try:
        yield
    except asyncio.CancelledError:
        await session.recorder.call(
            session.history.set_run_status, session.run, "cancelled", "cancelled; the same command goes on"
        )
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        await session.recorder.call(session.history.set_run_status, session.run, "failed", reason[:2000])
        raise
    await session.recorder.call(session.history.set_run_status, session.run, "finished")


def report_path(session: Session) -> Path:
    """Where a run's report is written."""
    return session.config.run.directory / session.run / "report.html"


def after_step(session: Session, step: int) -> None:
    """Tell how a step went."""
    progress.get().advance("steps", step + 1, len(session.steps))
    if session.last_step is not None:
        progress.get().line(step_in_words(step, len(session.steps), session.last_step))


def step_in_words(step: int, total: int, metrics: dict[str, float]) -> str:
    """One line for a human about a trained step."""
    parts = [
        f"step {step + 1:>3}/{total}",
        f"reward {metrics['env/all/reward/total']:.2f}",
        f"pass {metrics['env/all/tests_passed']:.2f}",
        f"interface {metrics['env/all/interface_valid']:.2f}",
    ]
    if "teacher_kl" in metrics:
        parts.append(f"teacher KL {metrics['teacher_kl']:.3f}")
    parts.append(f"{metrics['time/total']:.1f} s")
    return "  ".join(parts)


def finish(session: Session) -> str:
    """Write the report and show the result. Returns the report's path."""
    path = write_report(session.history, [session.run], report_path(session))
    tell = progress.get()
    tell.show(before_after_table(session.history, session.run))
    tell.line(f"database: {session.config.run.history}")
    tell.line(f"report:   {path}")
    return str(path)
