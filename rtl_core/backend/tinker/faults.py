"""Translation of SDK errors, which the SDK raises after its own retries, into errors of the backend.

Behaviour of SDK 0.38 (`_exceptions.py`, `lib/api_future_impl.py`, `lib/internal_client_holder.py`, `lib/session_futures_poller.py`):

- sending is retried for five minutes, then `APIConnectionError` or the last `APIStatusError` is raised;
- waiting for a result is retried without limit while there is no connection. A result that the service no longer has is a
  `RetryableException` (410), or a `ValueError` whose cause is the `APIStatusError`: in both cases the request must be made again;
- work that failed on the service is a `RequestFailedError` with a category: `user` is our mistake, the others are not;
- a sampling client whose poller gave up raises a bare `TinkerError` permanently and must be replaced;
- without credit (402) the SDK waits, then fails permanently (see pauses.py);
- "Invalid session_id" is raised permanently by all clients of a session that the service has ended; a new one is needed (see sessions.py).
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

from rtl_core.backend.base import SERVER_HINT
from rtl_core.errors import (
    BackendUnavailableError,
    MalformedAnswerError,
    PolicyError,
    RtlDistillError,
    TrainerLostError,
    WeightsGoneError,
)


class SessionLostError(BackendUnavailableError):
    """The service has ended the session. Clients of a new session work."""


class Kind(NamedTuple):
    """Texts for a kind of error. Placeholders: `error`, `words` (its class and message), `first_line`, `cause`; before a run also `status` and
    `detail` of the response, `url`, `source` (of the credential), `sign_in` (how to get one) and `setting` (of the address)."""

    raised: type[RtlDistillError]
    """During a run: class, message and hint of our error."""
    message: str
    hint: str | None
    about: str
    """Before a run: subject, text and remedy of the finding."""
    found: str
    remedy: str


SAME_COMMAND = "the same command resumes the run"
CONSOLE = "https://tinker.thinkingmachines.ai"
ADDRESS = "{setting} or TINKER_BASE_URL selects another service; without both it is Tinker's cloud"
NOT_DONE = (BackendUnavailableError, "the Tinker service did not complete a request ({words})", None)
REFUSED = (
    PolicyError,
    "the Tinker service refused ({words})",
    f"correct the setting that the service's message refers to; then {SAME_COMMAND}",
)
ANSWERS = ("service", "{url} answers {status}{detail}", ADDRESS)
UNUSABLE = ("credentials", "{source} cannot be used: {first_line}", "{sign_in}")
KINDS = {
    "session lost": Kind(SessionLostError, "the Tinker service ended the session ({words})", None, *ANSWERS),
    "key refused": Kind(
        PolicyError,
        "the Tinker service does not accept the key (401): {error}",
        f"check TINKER_API_KEY, or log in again with `tinker auth login`; then {SAME_COMMAND}",
        "credentials",
        "{url} refuses {source} (401{detail})",
        "{sign_in}",
    ),
    "unpaid": Kind(
        PolicyError,
        "the account has no credit at Tinker (402): {error}",
        f"add credit in the Tinker console ({CONSOLE}); then {SAME_COMMAND}, and nothing is paid twice",
        "account",
        "the account of {source} is not paid for (402{detail})",
        f"set up billing or add credit at {CONSOLE}, then run the same command",
    ),
    "not allowed": Kind(
        PolicyError,
        "the Tinker service does not allow this to the key's owner (403): {error}",
        f"use a key whose project has access, or ask its owner for access; then {SAME_COMMAND}",
        "account",
        "{source} may not use {url} (403{detail})",
        f"ask an owner of the organisation for access ({CONSOLE}), or use another key",
    ),
    "busy": Kind(*NOT_DONE, "service", "{url} is busy ({status}{detail})", "try again in a few minutes"),
    "unreachable": Kind(*NOT_DONE, "service", "{url} cannot be reached: {cause}", f"check the network; {ADDRESS}"),
    "not a service": Kind(*NOT_DONE, "service", "{url} does not answer as a Tinker service does", ADDRESS),
    "failed": Kind(*NOT_DONE, *UNUSABLE),
    "gone": Kind(
        WeightsGoneError,
        "the Tinker service does not have the requested weights or model ({words})",
        "`rtl-distill checkpoints RUN` lists the weights that are kept (checkpoints.ttl_days); models may be retired: "
        "`rtl-distill check` lists those that are served",
        *ANSWERS,
    ),
    "refused": Kind(*REFUSED, *ANSWERS),
    "unusable": Kind(*REFUSED, *UNUSABLE),
}
BY_STATUS = {401: "key refused", 402: "unpaid", 403: "not allowed"}
TEMPORARY = ("busy", "unreachable")
"""Kinds that may be temporary."""
INVALID_ANSWER = (ValueError, TypeError, AttributeError, LookupError, AssertionError, OverflowError, httpx.RequestError)
"""Errors raised while parsing an invalid answer: truncated JSON, a list instead of an object, too few items, endless redirects. `sdk_errors`
must therefore contain only SDK calls and the parsing of their answers."""


@contextmanager
def sdk_errors(call: str = "a request") -> Iterator[None]:
    """Translate errors of the SDK, or of parsing its answer to `call`, into ours (see `to_own_error`)."""
    try:
        yield
    except RtlDistillError:
        raise
    except Exception as error:
        if (ours := to_own_error(error)) is None:
            if not isinstance(error, INVALID_ANSWER):
                raise
            words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            ours = MalformedAnswerError(f"the Tinker service gave an invalid answer to {call} ({words})", SERVER_HINT)
        raise ours from error


@contextmanager
def trainer_errors() -> Iterator[None]:
    """As `sdk_errors`, for a training client. If the service lost it, for example by a restart, raise `TrainerLostError`."""
    with sdk_errors("a train step or a save"):
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
def sampler_errors() -> Iterator[None]:
    """As `sdk_errors`, for a sampling client. If the service dropped it, its weights may still exist, so a new client can be tried."""
    with sdk_errors("a request for samples or scores"):
        try:
            yield
        except Exception as error:
            if is_session_lost(error) or status_of(error) not in (404, 410):
                raise
            raise BackendUnavailableError(f"the service dropped a sampling client ({error})") from error


def to_own_error(error: Exception) -> Exception | None:
    """Translate an SDK error: `BackendUnavailableError` if a retry may succeed, `WeightsGoneError` if something does not exist, `PolicyError` for
    a refusal. None: not an SDK error."""
    if (name := kind_of(error)) is None:
        return None
    kind = KINDS[name]
    return kind.raised(kind.message.format(error=error, words=f"{type(error).__name__}: {error}"), kind.hint)


def kind_of(error: Exception) -> str | None:
    """Return the key in `KINDS` of an SDK error. None: not an SDK error."""
    status = status_of(error)
    if is_session_lost(error):
        return "session lost"
    if status in BY_STATUS:
        return BY_STATUS[status]
    if isinstance(error, (httpx.TransportError, tinker.APIConnectionError)):
        return "unreachable"
    if isinstance(error, tinker.APIResponseValidationError):  # such as a gateway's page
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
    """Return the HTTP status of an SDK error, also if it is wrapped while a result is fetched."""
    cause = error.__cause__ if isinstance(error, ValueError) else error
    if isinstance(cause, tinker.APIStatusError):
        return cause.status_code
    # SDK 0.38 fails like this after a 402 to the first request of a session, because it accesses an object that does not exist yet.
    if isinstance(cause, AttributeError) and "billing_exception" in str(cause):
        return 402
    return None


def is_session_lost(error: Exception) -> bool:
    """Whether the service does not know the session or has ended it. Not for sampling sessions."""
    refused = status_of(error) in (400, 404, 410) or isinstance(error, tinker.RequestFailedError)
    said = re.sub(r"tinker://\S+", "", str(error))  # a path contains the run's name
    return refused and re.search(r"(?<!sampling[ _])session", said, re.IGNORECASE) is not None


def _failed(error: Exception) -> bool:
    """Whether the service or the SDK failed on a valid request, which must be made again."""
    if isinstance(error, tinker.RequestFailedError):
        return error.category is not RequestErrorCategory.User
    if isinstance(error, ValueError):  # the request was accepted, but fetching its result failed
        return isinstance(error.__cause__, tinker.APIStatusError) or "self.request_id=" in str(error)
    return isinstance(error, RetryableException) or type(error) is tinker.TinkerError
