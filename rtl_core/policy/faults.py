"""Which errors time can mend. The SDK repeats by itself what it can; what it raises in the end is judged here.

Read in SDK 0.38 (`_exceptions.py`, `lib/api_future_impl.py`, `lib/internal_client_holder.py`, `lib/session_futures_poller.py`):

- sending is repeated for five minutes, then `APIConnectionError` or the last `APIStatusError` is raised;
- waiting for a result is repeated without end while there is no connection. A result that the service no longer has is a
  `RetryableException` (410), or a `ValueError` whose cause is the `APIStatusError`: both mean that the request is to be made again;
- work that the service itself failed at is a `RequestFailedError` with a category: `user` is a mistake of ours, the others are not;
- a sampling client whose poller gave up raises a bare `TinkerError` for ever: it is to be replaced;
- no credit (402) is waited for inside the SDK and then final.
"""

from __future__ import annotations

import httpx
import tinker
from tinker.lib.retryable_exception import RetryableException
from tinker.types import RequestErrorCategory

from rtl_core.errors import InfrastructureError
from rtl_core.history.connection import HistoryBusyError

_TRANSIENT = (
    InfrastructureError,
    HistoryBusyError,
    ConnectionError,
    TimeoutError,
    httpx.TransportError,
    tinker.APIConnectionError,
    RetryableException,
)


def is_transient(error: BaseException) -> bool:
    """Whether the same work may succeed when it is done again. A group of errors is, when each of them is."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_transient(one) for one in error.exceptions)
    if isinstance(error, _TRANSIENT):
        return True
    if isinstance(error, tinker.APIStatusError):
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    if isinstance(error, tinker.RequestFailedError):
        return error.category is not RequestErrorCategory.User
    if type(error) is tinker.TinkerError:
        return True
    # Fetching a result failed for good; whoever made the request was allowed to, so making it again is right.
    return isinstance(error, ValueError) and isinstance(error.__cause__, tinker.APIStatusError)


def lost_client(error: BaseException) -> bool:
    """Whether a training client is no longer live on the service, as after its restart: its weights must be loaded again."""
    return isinstance(error, (tinker.NotFoundError, RetryableException)) or (
        isinstance(error, ValueError) and isinstance(error.__cause__, tinker.NotFoundError)
    )
