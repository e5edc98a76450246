"""Translation of SDK errors, which the SDK raises after its own retries, into errors of the backend
(localtinker/client/failures.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx
from tinker.lib.retryable_exception import RetryableException

from localtinker.client.failures import is_session_lost, kind_of, status_of
from rtl_core.backend.base import SERVER_HINT
from rtl_core.errors import (
    BackendUnavailableError,
    MalformedAnswerError,
    PolicyError,
    TrainerLostError,
    UserError,
    WeightsGoneError,
)


class SessionLostError(BackendUnavailableError):
    """The service has ended the session. Clients of a new session work."""


class SamplerLostError(BackendUnavailableError):
    """The service has dropped a sampling client, or the model that it samples. A new client works."""


class Kind(NamedTuple):
    """Texts for a kind of error. Placeholders: `error` and `words` (its class and message); in `remedy`
    `sign_in` (how to get a credential) and `setting` (of the address)."""

    raised: type[UserError]
    """During a run: class, message and hint of our error."""
    message: str
    hint: str | None
    about: str
    """Before a run: subject and remedy of the finding."""
    remedy: str


SAME_COMMAND = "the same command resumes the run"
CONSOLE = "https://tinker.thinkingmachines.ai"
ADDRESS = (
    "{setting} or TINKER_BASE_URL selects another service; without both it is Tinker's cloud"
)
NOT_DONE = (
    BackendUnavailableError,
    "the Tinker service did not complete a request ({words})",
    None,
)
REFUSED = (
    PolicyError,
    "the Tinker service refused ({words})",
    f"correct the setting that the service's message refers to; then {SAME_COMMAND}",
)
ANSWERS = ("service", ADDRESS)
UNUSABLE = ("credentials", "{sign_in}")
KINDS = {
    "session lost": Kind(
        SessionLostError, "the Tinker service ended the session ({words})", None, *ANSWERS
    ),
    "key refused": Kind(
        PolicyError,
        "the Tinker service does not accept the key (401): {error}",
        f"check TINKER_API_KEY, or log in again with `tinker auth login`; then {SAME_COMMAND}",
        "credentials",
        "{sign_in}",
    ),
    "unpaid": Kind(
        PolicyError,
        "the account has no credit at Tinker (402): {error}",
        f"add credit in the Tinker console ({CONSOLE}); then {SAME_COMMAND}, and nothing is paid twice",
        "account",
        f"set up billing or add credit at {CONSOLE}, then run the same command",
    ),
    "not allowed": Kind(
        PolicyError,
        "the Tinker service does not allow this to the key's owner (403): {error}",
        f"use a key whose project has access, or ask its owner for access; then {SAME_COMMAND}",
        "account",
        f"ask an owner of the organisation for access ({CONSOLE}), or use another key",
    ),
    "busy": Kind(*NOT_DONE, "service", "try again in a few minutes"),
    "unreachable": Kind(*NOT_DONE, "service", f"check the network; {ADDRESS}"),
    "not a service": Kind(*NOT_DONE, "service", ADDRESS),
    "failed": Kind(*NOT_DONE, *UNUSABLE),
    "gone": Kind(
        WeightsGoneError,
        "the Tinker service does not have the requested weights or model ({words})",
        "`rtl-distill admin checkpoints RUN` lists the weights that are kept (checkpoints.ttl_days); models may be "
        "retired: `rtl-distill check CONFIG` lists those that are served",
        *ANSWERS,
    ),
    "refused": Kind(*REFUSED, *ANSWERS),
    "unusable": Kind(*REFUSED, *UNUSABLE),
}
TEMPORARY = ("busy", "unreachable")
"""Kinds that may be temporary."""
INVALID_ANSWER = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    AssertionError,
    OverflowError,
    httpx.RequestError,
)
"""Errors raised while parsing an invalid answer: truncated JSON, a list instead of an object, too few
items, endless redirects. `sdk_errors` must therefore contain only SDK calls and the parsing of their
answers."""


@contextmanager
def sdk_errors(call: str = "a request") -> Iterator[None]:
    """Translate errors of the SDK, or of parsing its answer to `call`, into ours (see `to_own_error`)."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (ours := to_own_error(error)) is None:
            if not isinstance(error, INVALID_ANSWER):
                raise
            words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            ours = MalformedAnswerError(
                f"the Tinker service gave an invalid answer to {call} ({words})", SERVER_HINT
            )
        raise ours from error


@contextmanager
def trainer_errors() -> Iterator[None]:
    """As `sdk_errors`, for a training client. If the service lost it, for example by a restart, raise
    `TrainerLostError`."""
    with sdk_errors("a train step or a save"):
        try:
            yield
        except Exception as error:
            if is_session_lost(error) or (
                status_of(error) not in (404, 410) and not isinstance(error, RetryableException)
            ):
                raise
            raise TrainerLostError(
                f"the service lost the training client ({type(error).__name__}); the step is "
                "repeated from the last saved state"
            ) from error


@contextmanager
def sampler_errors() -> Iterator[None]:
    """As `sdk_errors`, for a sampling client. If the service dropped it, its weights may still exist, so a
    new client can be tried."""
    with sdk_errors("a request for samples or scores"):
        try:
            yield
        except Exception as error:
            if is_session_lost(error) or status_of(error) not in (404, 410):
                raise
            raise SamplerLostError(
                f"the service dropped a sampling client ({error})"
            ) from error


def to_own_error(error: Exception) -> Exception | None:
    """Translate an SDK error: `BackendUnavailableError` if a retry may succeed, `WeightsGoneError` if
    something does not exist, `PolicyError` for a refusal. None: not an SDK error."""
    if (name := kind_of(error)) is None:
        return None
    kind = KINDS[name]
    return kind.raised(
        kind.message.format(error=error, words=f"{type(error).__name__}: {error}"), kind.hint
    )
