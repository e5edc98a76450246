"""Errors for the user. Each says what is wrong, where, and what to do."""

from __future__ import annotations


class RtlDistillError(Exception):
    """Base class of all errors for the user.

    The command line prints `message` and, on a separate line, `hint`, without a traceback, and exits with `exit_code`.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  -> {hint}")
        self.message = message
        self.hint = hint


class ConfigError(RtlDistillError):
    """The configuration of a run is invalid; the message names the key."""


class ProblemError(RtlDistillError):
    """A problem set or one of its lines is invalid; the message names file, line, id and field."""


class ToolMissingError(RtlDistillError):
    """A required program (iverilog, bwrap, ...) is not installed."""


class InfrastructureError(RtlDistillError):
    """Our own infrastructure failed (a dead engine, a full disk), not the model. A retry may succeed."""


class BackendUnavailableError(InfrastructureError):
    """The backend could not serve a request now. The same request may succeed later."""


class MalformedAnswerError(BackendUnavailableError):
    """The backend returned an invalid response. A retry may succeed."""


class TrainerLostError(InfrastructureError):
    """The backend lost the weights in training. The step must be repeated from the last saved state."""


class PolicyError(RtlDistillError):
    """The backend refused a request, or lacks a model, tokenizer or checkpoint that the run needs."""


class WeightsGoneError(PolicyError):
    """Saved weights, or a client made from them, no longer exist."""


class HistoryError(RtlDistillError):
    """The history file cannot be read or written as requested."""


class RunHealthError(RtlDistillError):
    """A run left its safe range and was stopped, with its state saved."""


class SamplerDriftError(RunHealthError):
    """Trainer and sampler disagree on a step's answers. The step was not trained; its answers should be sampled again."""
