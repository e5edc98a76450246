"""What a run shows its users: its status, a log line per step, and tables and the report at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path

from rtl_core.errors import UserError
from rtl_core.observe.live_report import LiveReport
from rtl_core.observe.tracking import Tracker
from rtl_core.reporting.console import before_after_table, rich_table, step_line
from rtl_core.reporting.figures.benchmark import tables_of
from rtl_core.reporting.report import write_report
from rtl_core.run.session import Session
from rtl_core.run.stopping import is_transient
from rtl_grader.progress import progress


@asynccontextmanager
async def run_status(session: Session) -> AsyncIterator[None]:
    """Keep the status in the run's row: running, then finished, paused, cancelled, or failed with the reason.

    A run that stopped because of a transient error (no network for an hour) stays `running`, with the
    reason, so that it is restarted.
    """

    record, set_status = session.recorder.call, partial(session.history.set_run_status, session.run)

    def set_cancelled() -> str:
        why = (
            "stopped by a signal"
            if session.progress.ended_by == "signal"
            else "cancelled in Prefect"
        )
        set_status(
            "cancelled", f"{why}; the same command resumes the run", session.progress.ended_by
        )
        return why

    def set_cancelled_early() -> None:
        with suppress(UserError):  # set again at the end of the block, where an error is raised
            set_cancelled()

    # With a busy server, ending the flow may take Prefect longer than the 30 s after which its worker kills
    # the process.
    session.progress.at_signal.append(set_cancelled_early)
    try:
        with (
            Tracker(session.history, session.config, progress.get().line) as tracker,
            closing(
                LiveReport(
                    session.history.path, session.run, report_path(session), progress.get().line
                )
            ) as live_report,
        ):
            session.progress.on_step += [
                lambda _: tracker.recorded(),
                lambda _: live_report.after_step(),
            ]
            yield
    except Exception as error:
        await asyncio.sleep(0.05)  # gives the thread that reads signals time to run
        if session.progress.ending.is_set():
            # A signal's exception is raised anywhere in the main thread, where libraries may convert it,
            # and what the signal ended immediately (graders, the embedded service) raises errors in its
            # callers.
            raise asyncio.CancelledError(await record(set_cancelled)) from error
        reason = f"{type(error).__name__}: {error}"[:2000]
        if is_transient(error):
            await record(set_status, "running", f"interrupted: {reason}")
        else:
            await record(set_status, "failed", reason)
        raise
    except BaseException:
        # A signal such as Ctrl-C, or a cancellation.
        await record(set_cancelled)
        raise
    finally:
        session.progress.at_signal.remove(set_cancelled_early)
    stopped = session.progress.stopped
    await record(set_status, "finished" if stopped is None else "paused", stopped)


def report_path(session: Session) -> Path:
    """Path of a run's report."""
    return session.config.run.folder / "report.html"


def after_step(session: Session, step: int) -> None:
    """Report a trained step: callbacks, progress, and a log line."""
    for tell in session.progress.on_step:
        tell(step)
    progress.get().advance("steps", step + 1, len(session.weights.steps))
    if session.progress.last_step is not None:
        progress.get().line(step_line(step, len(session.weights.steps), session.progress.last_step))


def finish(session: Session) -> str:
    """Write the report and show the result. Returns the report's path, or why the run stopped before its end."""
    tell = progress.get()
    if session.progress.stopped is not None:
        tell.line(f"stopped: {session.progress.stopped}")
        return f"stopped: {session.progress.stopped}"
    path = write_report(session.history, [session.run], report_path(session))
    if session.trains:
        tell.show(before_after_table(session.history, session.run))
    for table in tables_of(session.history, session.run):
        tell.show(rich_table(table))
    tell.line(f"database: {session.config.run.history}")
    tell.line(f"report:   {path}")
    return str(path)
