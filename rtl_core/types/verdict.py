"""The noun *verdict*: what the grader says of one answer."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Outcome(StrEnum):
    """The one word for an answer. Exactly one applies; the first stage that fails decides."""

    PASSED = "passed"
    TESTS_FAILED = "tests_failed"
    COMPILE_FAILED = "compile_failed"
    INTERFACE_MISMATCH = "interface_mismatch"
    NO_ANSWER = "no_answer"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    NOT_TESTED = "not_tested"
    """Grading was asked to stop before the tests, and no stage before them failed."""
    INFRASTRUCTURE_ERROR = "infrastructure_error"


class Stage(StrEnum):
    """The stages of grading, in order."""

    FORMAT = "format"
    INTERFACE = "interface"
    SYNTAX = "syntax"
    TESTS = "tests"


StageStatus = Literal["passed", "failed", "skipped"]


class StageResult(BaseModel):
    """What one stage found. `skipped`: not run, since an earlier one made it pointless or it was not asked for."""

    model_config = ConfigDict(frozen=True)
    stage: Stage
    status: StageStatus
    reasons: tuple[str, ...] = ()
    wall_s: float = 0.0


class MismatchKind(StrEnum):
    """How an answer's interface differs from the demanded one."""

    WRONG_MODULE = "wrong_module"
    MISSING_PORT = "missing_port"
    EXTRA_PORT = "extra_port"
    WRONG_DIRECTION = "wrong_direction"
    WRONG_WIDTH = "wrong_width"
    MISSING_PARAMETER = "missing_parameter"
    EXTRA_PARAMETER = "extra_parameter"
    WRONG_PARAMETER = "wrong_parameter"


class InterfaceMismatch(BaseModel):
    """One difference of interface: `name` is the port, parameter or module; the others say it in words."""

    model_config = ConfigDict(frozen=True)
    kind: MismatchKind
    name: str
    expected: str | None = None
    got: str | None = None

    def __str__(self) -> str:
        # A module whose name a quick look finds and the parser does not.
        got = self.got if self.got is None or self.got != self.expected else "none of that name that can be parsed"
        detail = ", ".join(f"{k} {v}" for k, v in (("expected", self.expected), ("got", got)) if v is not None)
        return f"{self.kind.value.replace('_', ' ')} `{self.name}`" + (f": {detail}" if detail else "")


class Verdict(BaseModel):
    """What the grader says of one answer. Never a guess: what could not be found out is `infrastructure_error`."""

    model_config = ConfigDict(frozen=True)
    outcome: Outcome
    stages: tuple[StageResult, ...]
    tests_passed: int = Field(default=0, ge=0)
    tests_total: int = Field(default=0, ge=0)
    reasons: tuple[str, ...] = ()
    mismatches: tuple[InterfaceMismatch, ...] = ()
    executor: str
    tools: dict[str, str] = Field(default_factory=dict)
    """Name -> version of each tool, or `image` -> digest."""
    seed: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of the simulators and all else that the grade started; of what slept, the longest stretch, too."""
    cpu_limit_s: float | None = None
    """The CPU seconds that it was allowed, where it ran out of them."""
    cached: bool = False
    """Whether this verdict was taken from the cache instead of a simulator."""

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASSED

    def stage(self, stage: Stage) -> StageResult:
        """The result of one stage; a stage that was never reached counts as skipped."""
        for result in self.stages:
            if result.stage is stage:
                return result
        return StageResult(stage=stage, status="skipped")
