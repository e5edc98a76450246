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
from typing import NamedTuple

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


class SessionLostError(BackendUnavailableError):
    """The service has ended the session; what is made on a new one works."""


class Kind(NamedTuple):
    """What an error means, in words. Texts name `error`, `words` (its class and itself), `first_line` and `cause` of it; before a run also
    `status` and `detail` of the answer, `url`, `source` (of the credential), `sign_in` (how to get one) and `setting` (of the address)."""

    raised: type[RtlDistillError]
    """During a run: the error of ours, its message and its hint."""
    message: str
    hint: str | None
    about: str
    """Before a run: what the finding is about, its text and its remedy."""
    found: str
    remedy: str


SAME_COMMAND = "the same command goes on where the run stopped"
CONSOLE = "https://tinker.thinkingmachines.ai"
ADDRESS = "{setting} or TINKER_BASE_URL names another service; without both it is Tinker's cloud"
NOT_DONE = (BackendUnavailableError, "the Tinker service did not do what was asked ({words})", None)
REFUSED = (
    PolicyError,
    "the Tinker service refused ({words})",
    f"what the service said tells which setting it means; mend that, then {SAME_COMMAND}",
)
ANSWERS = ("service", "{url} answers {status}{detail}", ADDRESS)
UNUSABLE = ("credentials", "{source} cannot be used: {first_line}", "{sign_in}")
KINDS = {
    "session lost": Kind(SessionLostError, "the Tinker service ended the session ({words})", None, *ANSWERS),
    "key refused": Kind(
        PolicyError,
        "the Tinker service does not accept the key (401): {error}",
        f"check TINKER_API_KEY, or log in again with `tinker auth login`; {SAME_COMMAND}",
        "credentials",
        "{url} refuses {source} (401{detail})",
        "{sign_in}",
    ),
    "unpaid": Kind(
        PolicyError,
        "the account has no credit at Tinker (402): {error}",
        f"add credit in the Tinker console ({CONSOLE}); {SAME_COMMAND}, and nothing is paid twice",
        "account",
        "the account of {source} is not paid for (402{detail})",
        f"set up billing or add credit at {CONSOLE}, then the same command",
    ),
    "not allowed": Kind(
        PolicyError,
        "the Tinker service does not allow this to the key's owner (403): {error}",
        f"use a key whose project has access, or ask its owner for it; {SAME_COMMAND}",
        "account",
        "{source} may not use {url} (403{detail})",
        f"ask an owner of the organisation for access ({CONSOLE}), or use another key",
    ),
    "busy": Kind(*NOT_DONE, "service", "{url} is busy ({status}{detail})", "try again in some minutes"),
    "unreachable": Kind(*NOT_DONE, "service", "{url} cannot be reached: {cause}", f"check the network; {ADDRESS}"),
    "not a service": Kind(*NOT_DONE, "service", "{url} does not answer as a Tinker service does", ADDRESS),
    "failed": Kind(*NOT_DONE, *UNUSABLE),
    "gone": Kind(
        WeightsGoneError,
        "the Tinker service does not have what was asked for ({words})",
        "`rtl-distill checkpoints RUN` lists the weights that are kept (checkpoints.ttl_days); models are retired now and then: "
        "`rtl-distill check` names those that are served",
        *ANSWERS,
    ),
    "refused": Kind(*REFUSED, *ANSWERS),
    "unusable": Kind(*REFUSED, *UNUSABLE),
}
BY_STATUS = {401: "key refused", 402: "unpaid", 403: "not allowed"}
PASSING = ("busy", "unreachable")
"""What time may mend before a run."""
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
    if (name := kind_of(error)) is None:
        return None
    kind = KINDS[name]
    return kind.raised(kind.message.format(error=error, words=f"{type(error).__name__}: {error}"), kind.hint)


def kind_of(error: Exception) -> str | None:
    """Which of `KINDS` an error of the SDK is. None: it is no error of the SDK."""
    status = status_of(error)
    if is_session_lost(error):
        return "session lost"
    if status in BY_STATUS:
        return BY_STATUS[status]
    if isinstance(error, (httpx.TransportError, tinker.APIConnectionError)):
        return "unreachable"
    if isinstance(error, tinker.APIResponseValidationError):  # an answer of something else, such as a gateway's page
        return "not a service"
    if isinstance(error, tinker.APIStatusError) and (error.status_code in (408, 409, 429) or error.status_code >= 500):
        return "busy"
    if _failed(error):
        return "failed"
    if status in (404, 410):
        return "gone"
    if isinstance(error, tinker.APIStatusError):
        return "refused"
    return "unusable" if isinstance(error, tinker.TinkerError) else None


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


def _failed(error: Exception) -> bool:
    """Whether the service, or the SDK's waiting for it, failed at a request that was right: it is to be made again."""
    if isinstance(error, tinker.RequestFailedError):
        return error.category is not RequestErrorCategory.User
    if isinstance(error, ValueError):  # whoever made the request was allowed to; fetching its result failed for good
        return isinstance(error.__cause__, tinker.APIStatusError) or "self.request_id=" in str(error)
    return isinstance(error, RetryableException) or type(error) is tinker.TinkerError
