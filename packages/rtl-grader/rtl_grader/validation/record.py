"""The record of a validated problem."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field

ValidationStatus = Literal[
    "fit", "fit_without_golden", "weak", "flaky", "broken", "unsupported"
]
VALIDATION_STATUSES: tuple[ValidationStatus, ...] = get_args(ValidationStatus)


class ValidationRecord(BaseModel, frozen=True):
    """The result of validating a problem with a set of tools."""

    fingerprint: str
    """`Problem.fingerprint`; with `tools_key` the primary key."""
    tools_key: str
    problem_id: str
    status: ValidationStatus
    evidence: dict[str, Any] = {}
    """Outcomes of the golden, empty and mutated answers, and reasons in words; JSON-serialisable."""
    tools: dict[str, str] = {}
    wall_s: float = 0.0
    checked_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
