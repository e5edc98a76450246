"""Errors for the user of a service, of its clients and of an examination, and errors of single requests."""

from __future__ import annotations


class LocalTinkerError(Exception):
    """Base class. A command prints `message` and, on a separate line, `hint`, and exits with `exit_code`."""

    exit_code = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  -> {hint}")
        self.message = message
        self.hint = hint


class SettingsError(LocalTinkerError):
    """A setting or an argument is invalid; the message names it."""


class ModelError(LocalTinkerError):
    """A model cannot be loaded."""


class StartError(LocalTinkerError):
    """The service did not start, or was not ready in time. A retry may succeed."""


class CredentialError(LocalTinkerError):
    """There is no usable key."""


class DownloadError(LocalTinkerError):
    """A server named a file that must not be written."""


class RequestError(Exception):
    """The request cannot be served as sent. Answered at once with `status` and `message`.

    Never a 5xx: the SDK would retry the request for five minutes, which looks like a hang.
    """

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class NotFoundError(RequestError):
    """There is no such model, session, sampler, run or checkpoint on this service."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=404)


class SamplingError(Exception):
    """A valid request could not be sampled. The message needs no further context."""
