"""Errors for the user. Each says what is wrong, where, and what to do."""

from __future__ import annotations


class UserError(Exception):
    """Base class of all errors for the user.

    A command prints `message` and, on a separate line, `hint`, without a traceback, and exits with `exit_code`.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  -> {hint}")
        self.message = message
        self.hint = hint


class ConfigError(UserError):
    """A setting or an argument is invalid; the message names it."""


class ProblemError(UserError):
    """A problem set or one of its lines is invalid; the message names file, line, id and field."""


class ToolMissingError(UserError):
    """A required program (iverilog, bwrap, ...) is not installed."""


class InfrastructureError(UserError):
    """Our own infrastructure failed (a dead engine, a full disk), not the answer. A retry may succeed."""
