"""Run a flow from the command line, with progress on the terminal and Prefect's own log only on demand."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

SERVER_HINT = "repair the server, unless it is this command's own; the same command then continues from here"


def run_flow(
    flow: str,
    *arguments: Any,
    title: str,
    verbose: bool = False,
    ahead: Sequence[str] = (),
    **options: Any,
) -> Any:
    """Run a flow in this process with progress on this terminal, and return its result.

    Args:
        flow: `module:function`; imported after `title` is shown and a temporary Prefect server, if one is
            needed, is starting.
        arguments, options: arguments of the flow.
        ahead: modules that the flow imports later, to be imported while the server starts.

    Ctrl-C and SIGTERM cancel the flow; its state is recorded, and the exit code is that of the signal (130, 143).
    """
    if not verbose:
        quiet_logging()
    import httpx

    from rtl_core.errors import InfrastructureError
    from rtl_distill.operations.temporary_server import start_temporary_server
    from rtl_grader.cli.console import ConsoleProgress
    from rtl_grader.progress import progress

    # Prefect forwards a SIGTERM that ended a flow to the previous handler; Python's default would kill the
    # process at once.
    signal.signal(signal.SIGTERM, _raise_terminated)

    with ConsoleProgress() as console:
        console.stage(title)
        progress.set(console)
        start_temporary_server()
        console.line("starting Prefect: seconds, on a busy machine half a minute")
        try:
            module, name = flow.split(":")
            function = getattr(importlib.import_module(module), name)
            for later in ahead:  # the flow's first call waits several seconds for the server
                _import_in_background(later)
            return asyncio.run(function(*arguments, **options))
        except (KeyboardInterrupt, asyncio.CancelledError):
            code = 130
        # Prefect's client raises them after minutes of retries.
        except (httpx.HTTPError, RuntimeError) as error:
            cause = error.__cause__ or error
            if not isinstance(error, httpx.HTTPError) and not isinstance(
                cause, httpx.HTTPError
            ):
                raise
            address = os.environ.get("PREFECT_API_URL", "its configured address")
            raise InfrastructureError(
                f"Prefect's server at {address} fails: {cause}", SERVER_HINT
            ) from error
        except BaseException as error:
            # Prefect's TerminationSignal is compared by name, because Prefect is imported late.
            if (
                not isinstance(error, _Terminated)
                and type(error).__name__ != "TerminationSignal"
            ):
                raise
            code = 143
        console.line("cancelled; the same command continues from here")
        raise SystemExit(code)


def _import_in_background(module: str) -> None:
    threading.Thread(target=importlib.import_module, args=(module,)).start()


class _Terminated(BaseException):
    """Raised on SIGTERM."""


def _raise_terminated(number: int, frame: object) -> None:
    raise _Terminated


def quiet_logging() -> None:
    """Limit Prefect's log to critical messages, unless an environment variable sets its level. Call it
    before Prefect is imported.

    The command itself reports what ended a flow. Events that the server did not accept concern only
    Prefect's UI, and the temporary server logs work that was cut off when the run ended.
    """
    for logger in ("", "SERVER_", "INTERNAL_"):
        os.environ.setdefault(f"PREFECT_LOGGING_{logger}LEVEL", "CRITICAL")
