"""Errors that a client of the service sees: an HTTP status below 500 and a message that names the field."""

from __future__ import annotations


class RequestError(Exception):
    """The request cannot be served as sent. Answered at once with `status` and `message`.

    A 5xx is never used for this: the SDK would repeat the request for five minutes, which looks like a hang.
    """

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class NotFoundError(RequestError):
    """A model, session, sampler, run or checkpoint that this service does not hold."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=404)


class SamplingError(Exception):
    """A request was in order but could not be sampled; the message says it all."""
