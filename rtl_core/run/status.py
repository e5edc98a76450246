"""What a run shows its users: its status, a log line per step, and tables and the report at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial

from rtl_core.errors import UserError
from rtl_core.observe.live_report import LiveReport
from rtl_core.observe.tracking import Tracker
from rtl_core.reporting.console import before_after_table, rich_table, step_line
from rtl_core.reporting.figures.benchmark import tables_of
from rtl_core.reporting.report import write_report
from rtl_core.reporting.text import EQUAL_DIFFICULTY
from rtl_core.run.folder import flow_run_page, report_path
from rtl_core.run.session import Session
from rtl_core.run.stopping import is_transient
from rtl_grader.progress import log_line, progress


@asynccontextmanager
async def run_status(session: Session) -> AsyncIterator[None]:
    """Keep the status in the run's row: running, then finished, paused, cancelled, or failed with the reason.

    A run that stopped because of a transient error (no network for an hour) stays `running`, with the
    reason, so that it is restarted.
    """
    state, record, say = session.progress, session.recorder.call, progress.get().line
    report = report_path(session.history, [session.run])
    set_status = partial(session.history.set_run_status, session.run)

    def set_cancelled() -> str:
        why = "stopped by a signal" if state.ended_by == "signal" else "cancelled in Prefect"
        set_status("cancelled", f"{why}; the same command resumes the run", state.ended_by)
        return why

    def set_cancelled_early() -> None:
        with suppress(UserError):  # set again at the end of the block, where an error is raised
            set_cancelled()

    # With a busy server, ending the flow may take Prefect longer than the 30 s after which its worker kills
    # the process.
    state.at_signal.append(set_cancelled_early)
    try:
        with (
            Tracker(session.history, session.config, say) as tracker,
            closing(LiveReport(session.history.path, session.run, report, say)) as live_report,
        ):
            state.on_step.append(lambda _: tracker.recorded())
            state.on_step.append(lambda _: live_report.after_step())
            yield
    except Exception as error:
        await asyncio.sleep(0.05)  # gives the thread that reads signals time to run
        if state.ending.is_set():
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
        state.at_signal.remove(set_cancelled_early)
    await record(set_status, "finished" if state.stopped is None else "paused", state.stopped)


def after_step(session: Session, step: int) -> None:
    """Report a trained step: callbacks, progress, and a log line."""
    steps, metrics = len(session.weights.steps), session.progress.last_step
    for callback in session.progress.on_step:
        callback(step)
    progress.get().advance("steps", step + 1, steps)
    if metrics is not None:
        log_line(step_line(step, steps, metrics))


def finish(session: Session) -> str:
    """Write the report and show the result. Returns the report's path, or why the run stopped before its end."""
    tell, history, run = progress.get(), session.history, session.run
    if session.progress.stopped is not None:
        words = f"stopped: {session.progress.stopped}"
        tell.line(words)
        return words
    page = flow_run_page(history, run)
    path = write_report(history, [run], report_path(history, [run]), flow_run=page)
    if session.trains:
        tell.show(before_after_table(history, run))
        if session.config.curriculum.order != "shuffled":
            tell.line(f"reward and pass of a step: {EQUAL_DIFFICULTY}")
    for table in tables_of(history, run):
        tell.show(rich_table(table))
    tell.line(f"database: {session.config.run.history}")
    tell.line(f"report:   {path}")
    return str(path)
