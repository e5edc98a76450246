"""Running a flow from the command line: its progress on the terminal, Prefect's own words only on demand."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_flow(make: Callable[[], Coroutine[Any, Any, Result]], *, verbose: bool = False) -> Result:
    """Run the coroutine that `make` returns (the call of a flow, imported inside it) with progress on this terminal."""
    if not verbose:
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")
        # The temporary server is stopped with the run and complains about what it was doing just then.
        os.environ.setdefault("PREFECT_LOGGING_SERVER_LEVEL", "CRITICAL")
    from rtl_core.cli.console import ConsoleProgress
    from rtl_core.pipeline.progress import progress

    with ConsoleProgress() as console:
        progress.set(console)
        return asyncio.run(make())
