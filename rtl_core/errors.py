"""Errors for the user: those of grading, and those of runs. Each says what is wrong, where, and what to do."""

from __future__ import annotations

from rtl_grader.errors import (
    ConfigError,
    InfrastructureError,
    ProblemError,
    ToolMissingError,
    UserError,
)

__all__ = [
    "BackendUnavailableError",
    "ConfigError",
    "HistoryError",
    "InfrastructureError",
    "MalformedAnswerError",
    "PolicyError",
    "ProblemError",
    "RunHealthError",
    "SamplerDriftError",
    "ToolMissingError",
    "TrainerLostError",
    "UserError",
    "WeightsGoneError",
]


class BackendUnavailableError(InfrastructureError):
    """The backend could not serve a request now. The same request may succeed later."""


class MalformedAnswerError(BackendUnavailableError):
    """The backend returned an invalid response. A retry may succeed."""


class TrainerLostError(InfrastructureError):
    """The backend lost the weights in training. The step must be repeated from the last saved state."""


class PolicyError(UserError):
    """The backend refused a request, or lacks a model, tokenizer or checkpoint that the run needs."""


class WeightsGoneError(PolicyError):
    """Saved weights, or a client made from them, no longer exist."""


class HistoryError(UserError):
    """The history file cannot be read or written as requested."""


class RunHealthError(UserError):
    """A run left its safe range and was stopped, with its state saved."""


class SamplerDriftError(RunHealthError):
    """Trainer and sampler disagree on a step's answers. The step was not trained; its answers should be
    sampled again."""
