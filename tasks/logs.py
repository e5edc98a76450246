"""Sends all log lines of a run to the log of its flow run, whichever thread, task or subflow writes them,
and warns about a busy server.

Prefect attributes a line to the flow run of the thread that writes it. Lines of subflows would then be
missing from the log of the triggered flow run, and lines of plain threads (graders, the keeper of the
embedded service) from every log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

from prefect.logging.handlers import APILogHandler
from prefect.runtime import flow_run

from rtl_core.errors import UserError

LOG_FILE = "RTL_DISTILL_LOG"
"""Environment variable with a file that also gets the lines (a deployment's worker.log), even after the worker died.

A relative path is relative to the working directory of the flow run, which deployments set to `RTL_DISTILL_HOME`."""

_logger = logging.getLogger("rtl_distill")
_here: ContextVar[str | None] = ContextVar("flow_run_of_lines", default=None)
_open: list[str] = []
"""Flow runs whose block is open in this process; lines of threads without a flow run go to the last one."""
_shared = contextlib.ExitStack()
"""While a block is open: what undoes the changes of the logger."""
_lock = threading.Lock()

FIRST_ATTEMPT = 3
"""Attempt from which a warning is logged: a server on SQLite answers 503 occasionally; the third attempt
comes after about six seconds."""
AGAIN_S = 60.0
_CLIENT = logging.getLogger("prefect.client")
_AGAIN = re.compile(
    r"(.*)Another attempt will be made in ([\d.]+)s\. This is attempt (\d+)/\d+"
)
_warned_at: list[float] = []
"""When the last such warning was logged."""


def _for_a_user(record: logging.LogRecord) -> bool:
    """Replace a traceback that ends in an error for the user by the error: what is wrong and what to do."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, UserError):
        record.msg, record.args, record.exc_info = str(error), (), None
    return True


# At once, because a flow may fail before its first line.
for _name in ("prefect.flow_runs", "prefect.engine"):
    logging.getLogger(_name).addFilter(_for_a_user)


@contextlib.contextmanager
def lines_in_flow_run_log() -> Iterator[None]:
    """Send lines of the logger `rtl_distill` at level INFO and above to the current flow run's log within the block.

    Prefect's handler sends lines in batches from a thread of its own; a line costs the run about 0.1 ms.
    """
    warn_of_busy_server()
    own = str(flow_run.id)
    with contextlib.ExitStack() as stack:
        if path := os.environ.get(LOG_FILE):
            file = _file_handler(path, own, flow_run.name or own)
            stack.callback(file.close)
            _logger.addHandler(file)
            stack.callback(_logger.removeHandler, file)
        _enter(own)
        stack.callback(_leave, own)
        stack.callback(_here.reset, _here.set(own))
        yield


def _enter(own: str) -> None:
    """Install the shared handler and filter for the first open block; blocks may end in any order."""
    with _lock:
        if not _open:
            _shared.callback(_logger.setLevel, _logger.level)
            if _logger.level == logging.NOTSET:  # else the root logger's level applies, WARNING
                _logger.setLevel(logging.INFO)
            _logger.addFilter(_attribute)
            _shared.callback(_logger.removeFilter, _attribute)
            # A handler added through PREFECT_LOGGING_EXTRA_LOGGERS already sends these lines.
            if not any(isinstance(handler, APILogHandler) for handler in _logger.handlers):
                handler = APILogHandler()
                _logger.addHandler(handler)
                _shared.callback(_logger.removeHandler, handler)
        _open.append(own)


def _leave(own: str) -> None:
    """Remove handler and filter with the last block. Prefect's handler is not closed: that would wait for
    the server."""
    with _lock:
        _open.remove(own)
        if not _open:
            _shared.close()


def _attribute(record: logging.LogRecord) -> bool:
    """Set the flow run that a line belongs to."""
    if not hasattr(record, "flow_run_id"):
        owner = _here.get() or (_open[-1] if _open else None)
        if owner is not None:
            record.flow_run_id = owner
    return True


def _file_handler(path: str, own: str, name: str) -> logging.Handler:
    """Return a handler that appends the lines of one flow run; several processes may append to one file."""
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    words = "%(asctime)s | %(levelname)-7s | Flow run '{}' - %(message)s".format(
        name.replace("%", "%%")
    )
    handler.setFormatter(logging.Formatter(words))
    handler.addFilter(lambda record: getattr(record, "flow_run_id", None) == own)
    return handler


def warn_of_busy_server() -> None:
    """From now on in this process, warn if a request to Prefect's server fails for the third time, at most
    once a minute.

    Prefect's client retries for minutes and says so only in its debug log.
    """
    _CLIENT.addFilter(_filter_client_line)
    _CLIENT.setLevel(logging.DEBUG)


def _filter_client_line(record: logging.LogRecord) -> bool:
    again = _AGAIN.match(record.getMessage())
    due = not _warned_at or time.monotonic() - _warned_at[-1] >= AGAIN_S
    if again and int(again[3]) >= FIRST_ATTEMPT and due:
        _warned_at[:] = [time.monotonic()]
        logging.getLogger("rtl_distill").warning(
            "waiting for Prefect's server, which is busy or unreachable: next attempt in %.0f s. %s",
            float(again[2]),
            again[1].strip().replace("retryable ", ""),
        )
    return record.levelno >= logging.getLogger("prefect").getEffectiveLevel()
