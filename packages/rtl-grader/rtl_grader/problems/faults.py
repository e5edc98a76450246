"""What is wrong with a record of a problem set, or with a description of a problem."""

from __future__ import annotations

from pydantic import ValidationError

from rtl_grader.errors import ProblemError

_FAULTS = {
    "missing": "is missing",
    "string_type": "is {}, not text",
    "dict_type": "is {}, not an object",
    "model_type": "is {}, not an object",
}
"""Type of an error of pydantic -> the reason."""


class NotGradableError(ProblemError):
    """The problem is valid but cannot be graded here; the message is the reason."""


class FieldError(ProblemError):
    """A field of a record is invalid."""

    def __init__(self, field_name: str, reason: str) -> None:
        super().__init__(f"{field_name}: {reason}")
        self.field = field_name
        self.reason = reason


def fault_of(error: ValidationError, *place: str) -> FieldError:
    """The first field of a validation that is wrong, below `place`; `line` for the whole value."""
    first = error.errors()[0]
    names = [*place, *map(str, first["loc"])]
    if names[-1:] == ["[key]"]:
        names = names[:-2]
    reason = first["msg"].removeprefix("Value error, ")
    if usual := _FAULTS.get(first["type"]):
        reason = usual.format(type(first["input"]).__name__)
    return FieldError(".".join(names) or "line", reason)
