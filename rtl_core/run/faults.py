"""Which errors time can mend: a task that met one is tried again, and a run that one stopped is started again."""

from __future__ import annotations

import httpx

from rtl_core.errors import InfrastructureError
from rtl_core.history.connection import HistoryBusyError

_TRANSIENT = (InfrastructureError, HistoryBusyError, ConnectionError, TimeoutError, httpx.TransportError)


def is_transient(error: BaseException) -> bool:
    """Whether the same work may succeed when it is done again. A group of errors is, when each of them is."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_transient(one) for one in error.exceptions)
    # Of Prefect's client, whose server was busy for longer than it asks again.
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500
    return isinstance(error, _TRANSIENT)
