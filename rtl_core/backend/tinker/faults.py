"""The SDK's errors as the backend's. The SDK repeats by itself what it can; what it raises in the end is judged here.

Read in SDK 0.38 (`_exceptions.py`, `lib/api_future_impl.py`, `lib/internal_client_holder.py`, `lib/session_futures_poller.py`):

- sending is repeated for five minutes, then `APIConnectionError` or the last `APIStatusError` is raised;
- waiting for a result is repeated without end while there is no connection. A result that the service no longer has is a
  `RetryableException` (410), or a `ValueError` whose cause is the `APIStatusError`: both mean that the request is to be made again;
- work that the service itself failed at is a `RequestFailedError` with a category: `user` is a mistake of ours, the others are not;
- a sampling client whose poller gave up raises a bare `TinkerError` for ever: it is to be replaced;
- no credit (402) is waited for inside the SDK and then final (see pauses.py);
- "Invalid session_id" comes for ever from all clients of a session that the service has ended: a new session is needed (see sessions.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import tinker
from tinker.lib.retryable_exception import RetryableException
from tinker.types import RequestErrorCategory

from rtl_core.backend.base import SERVER
from rtl_core.errors import (
    BackendUnavailableError,
    MalformedAnswerError,
    PolicyError,
    RtlDistillError,
    TrainerLostError,
    WeightsGoneError,
)

SAME_COMMAND = "the same command goes on where the run stopped"
REMEDIES = {
    400: f"what the service said tells which setting it means; mend that, then {SAME_COMMAND}",
    401: f"check TINKER_API_KEY, or log in again with `tinker auth login`; {SAME_COMMAND}",
    402: f"add credit in the Tinker console (https://tinker.thinkingmachines.ai); {SAME_COMMAND}, and nothing is paid twice",
    403: f"use a key whose project has access, or ask its owner for it; {SAME_COMMAND}",
    404: "`rtl-distill checkpoints RUN` lists the weights that are kept (checkpoints.ttl_days); models are retired now and then: "
    "`rtl-distill check` names those that are served",
}
"""HTTP status -> what its reader can do."""
REFUSALS = {
    401: "the Tinker service does not accept the key (401)",
    402: "the account has no credit at Tinker (402)",
    403: "the Tinker service does not allow this to the key's owner (403)",
}


class SessionLostError(BackendUnavailableError):
    """The service has ended the session; what is made on a new one works."""


NO_ANSWER = (ValueError, TypeError, AttributeError, LookupError, AssertionError, OverflowError, httpx.RequestError)
"""What reading an answer raises that is none: JSON cut short, a list where an object belongs, too few of what was asked for, redirects
without end. Within a border stand only calls of the SDK and the reading of their answers."""


@contextmanager
def translated(call: str = "a request") -> Iterator[None]:
    """Raise what the SDK, or the reading of its answer to `call`, raises in the block as an error of ours (see `as_ours`)."""
    try:
        yield
    except RtlDistillError:
        raise
    except Exception as error:
        if (ours := as_ours(error)) is None:
            if not isinstance(error, NO_ANSWER):
                raise
            words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            ours = MalformedAnswerError(
                f"the Tinker service gave no answer to {call} that can be read ({words})", SERVER
            )
        raise ours from error


@contextmanager
def client_may_be_lost() -> Iterator[None]:
    """The same for a training client. One that is no longer live on the service, as after its restart, is a `TrainerLostError`."""
    with translated("a train step or a save"):
        try:
            yield
        except Exception as error:
            if is_session_lost(error) or (
                status_of(error) not in (404, 410) and not isinstance(error, RetryableException)
            ):
                raise
            raise TrainerLostError(
                f"the service lost the training client ({type(error).__name__}); the step is repeated from the last saved state"
            ) from error


@contextmanager
def sampler_may_be_lost() -> Iterator[None]:
    """The same for a sampling client: that the service let it go says nothing of its weights, so a new one is to be tried."""
    with translated("a request for samples or scores"):
        try:
            yield
        except Exception as error:
            if is_session_lost(error) or status_of(error) not in (404, 410):
                raise
            raise BackendUnavailableError(f"the service let a sampling client go ({error})") from error


def as_ours(error: Exception) -> Exception | None:
    """What the backend raises for an error of the SDK: `BackendUnavailableError` where the same work may succeed when it is done
    again, `WeightsGoneError` for what is not there, `PolicyError` for a refusal. None: no error of the SDK."""
    words = f"{type(error).__name__}: {error}"
    status = status_of(error)
    if is_session_lost(error):
        return SessionLostError(f"the Tinker service ended the session ({words})")
    if status in REFUSALS:
        return PolicyError(f"{REFUSALS[status]}: {error}", REMEDIES[status])
    if _is_transient(error):
        return BackendUnavailableError(f"the Tinker service did not do what was asked ({words})")
    if status in (404, 410):
        return WeightsGoneError(f"the Tinker service does not have what was asked for ({words})", REMEDIES[404])
    if isinstance(error, tinker.TinkerError):
        return PolicyError(f"the Tinker service refused ({words})", REMEDIES[400])
    return None


def status_of(error: Exception) -> int | None:
    """The HTTP status behind an error of the SDK, also of one that it wraps while it fetches a result."""
    cause = error.__cause__ if isinstance(error, ValueError) else error
    if isinstance(cause, tinker.APIStatusError):
        return cause.status_code
    # SDK 0.38 fails so at a 402 to the first request of a session: it notes the pause in what it has not made yet.
    if isinstance(cause, AttributeError) and "billing_exception" in str(cause):
        return 402
    return None


def is_session_lost(error: Exception) -> bool:
    """Whether the service says that it does not know, or has ended, the session; not: a sampling session."""
    refused = status_of(error) in (400, 404, 410) or isinstance(error, tinker.RequestFailedError)
    said = re.sub(r"tinker://\S+", "", str(error))  # a path holds the run's name
    return refused and re.search(r"(?<!sampling[ _])session", said, re.IGNORECASE) is not None


def _is_transient(error: Exception) -> bool:
    # The third is an answer that is not the service's, such as a gateway's page.
    if isinstance(
        error, (httpx.TransportError, tinker.APIConnectionError, tinker.APIResponseValidationError, RetryableException)
    ):
        return True
    if isinstance(error, tinker.APIStatusError):
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    if isinstance(error, tinker.RequestFailedError):
        return error.category is not RequestErrorCategory.User
    if type(error) is tinker.TinkerError:
        return True
    # Fetching a result failed for good; whoever made the request was allowed to, so making it again is right.
    fetching = isinstance(error.__cause__, tinker.APIStatusError) or "self.request_id=" in str(error)
    return isinstance(error, ValueError) and fetching
