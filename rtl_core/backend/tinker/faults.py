"""The SDK's errors as the backend's. The SDK repeats by itself what it can; what it raises in the end is judged here.

Read in SDK 0.38 (`_exceptions.py`, `lib/api_future_impl.py`, `lib/internal_client_holder.py`, `lib/session_futures_poller.py`):

- sending is repeated for five minutes, then `APIConnectionError` or the last `APIStatusError` is raised;
- waiting for a result is repeated without end while there is no connection. A result that the service no longer has is a
  `RetryableException` (410), or a `ValueError` whose cause is the `APIStatusError`: both mean that the request is to be made again;
- work that the service itself failed at is a `RequestFailedError` with a category: `user` is a mistake of ours, the others are not;
- a sampling client whose poller gave up raises a bare `TinkerError` for ever: it is to be replaced;
- no credit (402) is waited for inside the SDK and then final.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import tinker
from tinker.lib.retryable_exception import RetryableException
from tinker.types import RequestErrorCategory

from rtl_core.errors import BackendUnavailableError, PolicyError, TrainerLostError, WeightsGoneError


@contextmanager
def translated() -> Iterator[None]:
    """Raise what the SDK raises in the block as an error of ours (see `as_ours`)."""
    try:
        yield
    except Exception as error:
        if (ours := as_ours(error)) is None:
            raise
        raise ours from error


@contextmanager
def client_may_be_lost() -> Iterator[None]:
    """The same for a training client. One that is no longer live on the service, as after its restart, is a `TrainerLostError`."""
    with translated():
        try:
            yield
        except Exception as error:
            cause = error.__cause__ if isinstance(error, ValueError) else error
            if not isinstance(cause, tinker.NotFoundError) and not isinstance(error, RetryableException):
                raise
            raise TrainerLostError(
                f"the service lost the training client ({type(error).__name__}); the step is repeated from the last saved state"
            ) from error


def as_ours(error: Exception) -> Exception | None:
    """What the backend raises for an error of the SDK: `BackendUnavailableError` where the same work may succeed when it is done
    again, `WeightsGoneError` for what is not there, `PolicyError` for a refusal. None: no error of the SDK."""
    words = f"{type(error).__name__}: {error}"
    if _is_transient(error):
        return BackendUnavailableError(f"the Tinker service did not do what was asked ({words})")
    if isinstance(error, tinker.NotFoundError):
        return WeightsGoneError(f"the Tinker service does not have what was asked for ({words})")
    if isinstance(error, tinker.TinkerError):
        return PolicyError(f"the Tinker service refused ({words})")
    return None


def _is_transient(error: Exception) -> bool:
    if isinstance(error, (httpx.TransportError, tinker.APIConnectionError, RetryableException)):
        return True
    if isinstance(error, tinker.APIStatusError):
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    if isinstance(error, tinker.RequestFailedError):
        return error.category is not RequestErrorCategory.User
    if type(error) is tinker.TinkerError:
        return True
    # Fetching a result failed for good; whoever made the request was allowed to, so making it again is right.
    return isinstance(error, ValueError) and isinstance(error.__cause__, tinker.APIStatusError)
