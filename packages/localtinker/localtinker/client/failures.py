"""What an error of the SDK means, by kind.

Behaviour of SDK 0.38 (`_exceptions.py`, `lib/api_future_impl.py`, `lib/internal_client_holder.py`,
`lib/session_futures_poller.py`):

- sending is retried for five minutes, then `APIConnectionError` or the last `APIStatusError` is raised;
- waiting for a result is retried without limit while there is no connection. A result that the service no
  longer has is a `RetryableException` (410), or a `ValueError` whose cause is the `APIStatusError`: in both
  cases the request must be made again;
- work that failed on the service is a `RequestFailedError` with a category: `user` is our mistake, the others are not;
- a sampling client whose poller gave up raises a bare `TinkerError` permanently and must be replaced;
- "Invalid session_id" is raised permanently by all clients of a session that the service has ended; a new
  one is needed.
"""

from __future__ import annotations

import re

import httpx
import tinker
from tinker.lib.retryable_exception import RetryableException
from tinker.types import RequestErrorCategory

BY_STATUS = {401: "key refused", 402: "unpaid", 403: "not allowed"}
PERMANENT = ("key refused", "unpaid", "not allowed", "gone", "refused", "unusable")
"""Kinds for which waiting does not help."""
ANSWERS = "{url} answers {status}{detail}"
UNUSABLE = "{source} cannot be used: {first_line}"
TEXTS = {
    "session lost": ANSWERS,
    "key refused": "{url} refuses {source} (401{detail})",
    "unpaid": "the account of {source} is not paid for (402{detail})",
    "not allowed": "{source} may not use {url} (403{detail})",
    "busy": "{url} is busy ({status}{detail})",
    "unreachable": "{url} cannot be reached: {cause}",
    "not a service": "{url} does not answer as a Tinker service does",
    "failed": UNUSABLE,
    "gone": ANSWERS,
    "refused": ANSWERS,
    "unusable": UNUSABLE,
}
"""Kind -> text about a first request to a service."""


def first_refusal(error: Exception, url: str, source: str) -> tuple[str, str] | None:
    """Return kind and text of an error of a first request to `url` with the credential `source`; None: not
    of the service or the SDK."""
    kind = kind_of(error)
    if kind is None and isinstance(error, TimeoutError):
        kind = "unreachable"
    elif kind is None and isinstance(error, (OSError, ValueError)):
        kind = "unusable"  # the credential expired, or its command failed
    if kind is None:
        return None
    late = isinstance(error, (TimeoutError, tinker.APITimeoutError))
    body = error.body if isinstance(error, tinker.APIStatusError) else None
    reason = isinstance(body, dict) and (body.get("detail") or body.get("message"))
    detail = " ".join(str(reason).split())[:200]
    text = TEXTS[kind].format(
        url=url,
        source=source,
        status=status_of(error),
        detail=f": {detail}" if reason else "",
        cause="no answer in time" if late else error.__cause__ or error,
        first_line=str(error).partition("\n")[0],
    )
    return kind, text


def kind_of(error: Exception) -> str | None:
    """Return the key in `TEXTS` of an SDK error. None: not an SDK error."""
    status = status_of(error)
    if is_session_lost(error):
        return "session lost"
    if status in BY_STATUS:
        return BY_STATUS[status]
    if isinstance(error, (httpx.TransportError, tinker.APIConnectionError)):
        return "unreachable"
    if isinstance(error, tinker.APIResponseValidationError):  # such as a gateway's page
        return "not a service"
    of_service = isinstance(error, tinker.APIStatusError)
    if of_service and status is not None and (status in (408, 409, 429) or status >= 500):
        return "busy"
    if _is_failure(error):
        return "failed"
    if status in (404, 410):
        return "gone"
    if of_service:
        return "refused"
    return "unusable" if isinstance(error, tinker.TinkerError) else None


def status_of(error: Exception) -> int | None:
    """Return the HTTP status of an SDK error, also if it is wrapped while a result is fetched."""
    cause = error.__cause__ if isinstance(error, ValueError) else error
    if isinstance(cause, tinker.APIStatusError):
        return cause.status_code
    # SDK 0.38 fails like this after a 402 to the first request of a session, because it accesses an object
    # that does not exist yet.
    if isinstance(cause, AttributeError) and "billing_exception" in str(cause):
        return 402
    return None


def is_session_lost(error: Exception) -> bool:
    """Whether the service does not know the session or has ended it. Not for sampling sessions."""
    by_status = status_of(error) in (400, 404, 410)
    refusal = by_status or isinstance(error, tinker.RequestFailedError)
    text = re.sub(r"tinker://\S+", "", str(error))  # a path contains the run's name
    return refusal and re.search(r"(?<!sampling[ _])session", text, re.IGNORECASE) is not None


def _is_failure(error: Exception) -> bool:
    """Whether the service or the SDK failed on a valid request, which must be made again."""
    if isinstance(error, tinker.RequestFailedError):
        return error.category is not RequestErrorCategory.User
    if isinstance(
        error, ValueError
    ):  # the request was accepted, but fetching its result failed
        by_service = isinstance(error.__cause__, tinker.APIStatusError)
        return by_service or "self.request_id=" in str(error)
    return isinstance(error, RetryableException) or type(error) is tinker.TinkerError
