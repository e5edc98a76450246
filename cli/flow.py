"""Runs a flow from the command line: progress on the terminal, Prefect's own log only on demand."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from rtl_distill.cli.console import ConsoleProgress


def run_flow(
    flow: str, *arguments: Any, title: str, verbose: bool = False, ahead: Sequence[str] = (), **options: Any
) -> Any:
    """Run a flow in this process, with progress on this terminal. Returns what the flow returns.

    Args:
        flow: `module:function`; imported once `title` is told and, where none is configured, a Prefect server is coming up.
        arguments, options: what it is called with.
        ahead: modules that it imports later, to be imported while the server comes up.

    Ctrl-C and SIGTERM end it with its state recorded and exit as a shell expects of a signal (130, 143).
    """
    if not verbose:
        quiet_logging()
    import httpx

    from rtl_core.errors import InfrastructureError
    from rtl_core.observe.progress import progress
    from rtl_distill.cli.console import ConsoleProgress
    from rtl_distill.operations.processes import end_orphans, mark_this_process
    from rtl_distill.operations.temporary_server import start_temporary_server

    end_orphans()
    mark_this_process()
    # Prefect passes a SIGTERM that ended a flow on to the previous handler; Python's default would end the process at once.
    signal.signal(signal.SIGTERM, _raise_terminated)

    with ConsoleProgress() as console:
        console.stage(title)
        progress.set(console)
        start_temporary_server()
        try:
            module, name = flow.split(":")
            function = getattr(importlib.import_module(module), name)
            for needed in ahead:  # the flow's first call waits seconds for the server
                threading.Thread(target=importlib.import_module, args=(needed,), daemon=True).start()
            return asyncio.run(function(*arguments, **options))
        except (KeyboardInterrupt, asyncio.CancelledError):
            code = 130
        except (httpx.HTTPError, RuntimeError) as error:  # Prefect's client, after it had asked again for minutes
            if not isinstance(error, httpx.HTTPError) and not isinstance(error.__cause__, httpx.HTTPError):
                raise
            raise InfrastructureError(
                f"Prefect's server at {os.environ.get('PREFECT_API_URL', 'its configured address')} fails: {error.__cause__ or error}",
                "see to the server; the same command then goes on from here",
            ) from error
        except BaseException as error:
            # Prefect's own is imported late, like the flow.
            if not isinstance(error, _Terminated) and type(error).__name__ != "TerminationSignal":
                raise
            code = 143
        console.line("cancelled; the same command goes on from here")
        raise SystemExit(code)


class _Terminated(BaseException):
    """SIGTERM came."""


def _raise_terminated(number: int, frame: object) -> None:
    raise _Terminated


@contextmanager
def stoppable(console: Console) -> Iterator[ConsoleProgress]:
    """Work on this thread, told on `console`. The first SIGINT or SIGTERM raises KeyboardInterrupt in the block, and ends the command as
    a shell expects of a signal (130, 143); a second one ends the process as it is. A signal that the caller's shell ignores stays ignored.
    """
    from rtl_core.observe.progress import progress
    from rtl_distill.cli.console import ConsoleProgress

    caught: list[int] = []

    def handle(number: int, frame: object) -> None:
        caught.append(number)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handle)
    with ConsoleProgress(console) as tell:
        progress.set(tell)
        try:
            yield tell
        except KeyboardInterrupt as interrupt:
            done = f": {interrupt}" if str(interrupt) else ""
            tell.line(f"interrupted{done}; the same command goes on from here")
            raise SystemExit(128 + caught[0]) from None


def quiet_logging() -> None:
    """Limit Prefect's log to critical messages, unless a variable sets its level. Called before Prefect is imported.

    The command line itself tells what ended a flow. Events that a server did not take matter to Prefect's pages alone. The temporary
    server reports work that was cut off when the run ended.
    """
    for logger in ("", "SERVER_", "INTERNAL_"):
        os.environ.setdefault(f"PREFECT_LOGGING_{logger}LEVEL", "CRITICAL")
