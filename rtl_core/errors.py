"""Errors that a user can act on: each says what is wrong, where, and what to do next."""

from __future__ import annotations


class RtlDistillError(Exception):
    """Base of all errors meant for the user.

    The command line prints `message` and, on a line of its own, `hint`, without a traceback, and exits with
    `exit_code`.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  -> {hint}")
        self.message = message
        self.hint = hint


class ConfigError(RtlDistillError):
    """The configuration of a run cannot be used; the message names the key."""


class ProblemError(RtlDistillError):
    """A problem set, or one of its lines, cannot be used; the message names file, line, id and field."""


class ToolMissingError(RtlDistillError):
    """A program that this machine needs (iverilog, bwrap, ...) is not installed."""


class InfrastructureError(RtlDistillError):
    """Something of ours failed (a dead engine, a full disk): never the model's fault, worth trying again."""


class BackendUnavailableError(InfrastructureError):
    """What trains and samples could not do what was asked just now; the same request may succeed later."""


class MalformedAnswerError(BackendUnavailableError):
    """What trains and samples answered with something that is no answer to what was asked. Asked again, it may answer rightly."""


class TrainerLostError(InfrastructureError):
    """What trains lost the weights under training; the step is to be repeated from the last saved state."""


class PolicyError(RtlDistillError):
    """What trains and samples refused or lacks what the run needs (a model, a tokenizer, a checkpoint)."""


class WeightsGoneError(PolicyError):
    """Saved weights, or what was made of them, do not exist any more."""


class HistoryError(RtlDistillError):
    """The history file cannot be read or written as asked."""


class RunHealthError(RtlDistillError):
    """A run left its safe range and was stopped with its state saved."""


class SamplerDriftError(RunHealthError):
    """Trainer and sampler disagree on a step's answers: it was not trained, and its answers should be sampled anew."""
