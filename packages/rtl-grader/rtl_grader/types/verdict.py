"""The noun *verdict*: the result of grading one answer."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, Field

MOST_LISTED, MOST_CHARS = 20, 400
"""Limits of everything in a verdict that an answer can lengthen: entries of a list, and characters of a
text. An answer may declare 50,000 ports."""


def shortened(texts: Sequence[str], most: int = MOST_LISTED) -> tuple[str, ...]:
    """Return at most `most` texts, each cut to a readable length; the last one says how many more there are."""
    cut = [text[:MOST_CHARS] for text in texts[:most]]
    if len(texts) > most:
        cut[-1] = f"and {len(texts) - most + 1:,} more"
    return tuple(cut)


class Outcome(StrEnum):
    """Outcome of grading. Exactly one applies, decided by the first stage that fails."""

    PASSED = "passed"
    TESTS_FAILED = "tests_failed"
    COMPILE_FAILED = "compile_failed"
    INTERFACE_MISMATCH = "interface_mismatch"
    NO_ANSWER = "no_answer"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    NOT_TESTED = "not_tested"
    """Grading was configured to stop before the tests, and no stage failed."""
    INFRASTRUCTURE_ERROR = "infrastructure_error"


class Stage(StrEnum):
    """The stages of grading, in order."""

    FORMAT = "format"
    INTERFACE = "interface"
    SYNTAX = "syntax"
    TESTS = "tests"


StageStatus = Literal["passed", "failed", "skipped"]


class StageResult(BaseModel, frozen=True):
    """Result of one stage. `skipped`: not run, because an earlier stage failed or it was not requested."""

    stage: Stage
    status: StageStatus
    reasons: tuple[str, ...] = ()
    wall_s: float = 0.0


class MismatchKind(StrEnum):
    """How an answer's interface differs from the required one."""

    WRONG_MODULE = "wrong_module"
    MISSING_PORT = "missing_port"
    EXTRA_PORT = "extra_port"
    WRONG_DIRECTION = "wrong_direction"
    WRONG_WIDTH = "wrong_width"
    WRONG_TYPE = "wrong_type"
    MISSING_PARAMETER = "missing_parameter"
    EXTRA_PARAMETER = "extra_parameter"
    WRONG_PARAMETER = "wrong_parameter"


FRAGMENT = "a fragment, not the whole file"
"""`InterfaceMismatch.got` of an answer in which no module begins."""


class InterfaceMismatch(BaseModel, frozen=True):
    """One difference between interfaces. `name` is the port, parameter or module; `expected` and `got` are
    descriptions."""

    kind: MismatchKind
    name: str
    expected: str | None = None
    got: str | None = None

    def __str__(self) -> str:
        if self.got == FRAGMENT:
            return f"{FRAGMENT}: no module begins in it, expected `{self.name}`"
        got = self.got
        if got == self.expected and got is not None:
            # The text search found a module of this name, but the parser did not.
            got = "none of that name that can be parsed"
        kind = self.kind.value.replace("_", " ")
        details = []
        if self.expected is not None:
            details.append(f"expected {self.expected}")
        if got is not None:
            details.append(f"got {got}")
        return f"{kind} `{self.name}`" + (f": {', '.join(details)}" if details else "")


class Verdict(BaseModel, frozen=True):
    """Result of grading one answer. Never a guess: if grading itself failed, the outcome is `infrastructure_error`."""

    outcome: Outcome
    stages: tuple[StageResult, ...]
    tests_passed: int = Field(default=0, ge=0)
    tests_total: int = Field(default=0, ge=0)
    reasons: tuple[str, ...] = ()
    mismatches: tuple[InterfaceMismatch, ...] = ()
    executor: str
    tools: dict[str, str] = {}
    """Mapping of tool name to version, or of `image` to its digest."""
    seed: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of all processes that grading started, plus for each step the longest time in which all
    its processes slept."""
    cpu_limit_s: float | None = None
    """CPU limit in seconds, if it was exceeded."""
    cached: bool = False
    """Whether this verdict is a cache hit."""

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    def noted(self, notes: tuple[str, ...]) -> Verdict:
        """Return the verdict with more reasons in its first stage: where the answer's files come from."""
        first, *others = self.stages
        first = first.model_copy(update={"reasons": first.reasons + notes})
        return self.model_copy(update={"stages": (first, *others)})

    def stage(self, stage: Stage) -> StageResult:
        """Return the result of one stage. A stage that was not reached is skipped."""
        for result in self.stages:
            if result.stage is stage:
                return result
        return StageResult(stage=stage, status="skipped")
