"""Errors for the user of a service, of its clients and of an examination. Each says what is wrong, and what to do."""

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
    """There is no usable key. The message is empty if none was found, else the reason."""


class DownloadError(LocalTinkerError):
    """A server named a file that must not be written."""
