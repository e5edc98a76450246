"""Run a command line: errors for the user are printed as a message and a hint."""

from __future__ import annotations

import errno
import io
import sys
import traceback
from collections.abc import Callable
from typing import Any

from rich.console import Console

from rtl_grader.errors import UserError


def run(app: Callable[[], object], *more: type[Exception]) -> None:
    """Run a command line. User errors print one message and set the exit code; other errors keep their traceback.

    Args:
        more: further classes of user errors, with `message`, `hint` and `exit_code`.
    """
    # Like stderr: a character that the terminal cannot encode must not end a run.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    kinds: tuple[type[Exception], ...] = (UserError, OSError, *more)
    try:
        app()
    except kinds as error:
        # Prefect's states keep the error alive. Its frames would keep a connection open, which causes a
        # warning at exit.
        traceback.clear_frames(error.__traceback__)
        shown: Any = error
        if isinstance(error, OSError):
            if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # The error of a write to an open file has no file name.
            message = f"{error.filename2 or error.filename or 'the output'}: {error.strerror}"
            shown = UserError(
                message, "check the path, its permissions and the free space on its disk"
            )
        report(shown.message, shown.hint)
        sys.exit(shown.exit_code)


def report(message: str, hint: str | None) -> None:
    """Print an error for the user to standard error."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False, soft_wrap=True)
    console.print(f"error: {message}", style="bold red")
    if hint:
        console.print(f"  -> {hint}")
