"""The rows of the history as frozen values: what crosses the border between the pipeline and the database.

Times are UTC. Policies, problems and verdicts keep their own nouns (`Rollout`, `Problem`, `Verdict`); here stand only the
rows that no other room owns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rtl_core.learning.credit import Credit
from rtl_core.learning.distributions import Choices
from rtl_core.learning.reward import Reward
from rtl_core.types.rollout import PolicyName, Rollout
from rtl_core.types.verdict import Verdict

EndedBy = Literal["signal", "request"]
RunStatus = Literal["created", "running", "finished", "failed", "cancelled", "paused"]
StepStatus = Literal["planned", "trained"]
EvaluationStatus = Literal["running", "done", "failed"]
ValidationStatus = Literal["fit", "fit_without_golden", "weak", "flaky", "broken", "unsupported"]
AuditResult = Literal["equal", "same", "different", "unknown"]
VALIDATION_STATUSES: tuple[ValidationStatus, ...] = get_args(ValidationStatus)


SILENT_S = 300.0
"""Seconds without a heartbeat after which a running run is called silent; `history/named/runs.sql` says the same in SQL."""


def utc_now() -> datetime:
    """Now, aware of being UTC."""
    return datetime.now(UTC)


class RunSettings(BaseModel):
    """What a run is asked to do. A later start of the same run may change it; then that holds for whoever starts it next."""

    model_config = ConfigDict(frozen=True)
    config: dict[str, Any] = Field(default_factory=dict)
    """The whole effective configuration, JSON-able."""
    config_hash: str = ""
    seed: int = 0
    student: str = ""
    teacher: str = ""
    problems_hash: str = ""


class RunRecord(RunSettings):
    """One run. Runs are identified by name; starting an existing name resumes it."""

    name: str = Field(min_length=1)
    created_at: datetime = Field(default_factory=utc_now)
    status: RunStatus = "created"
    versions: dict[str, str] = Field(default_factory=dict)
    """Package, tool or image -> version or digest."""
    message: str | None = None
    """Why it stopped, for people."""
    ended_by: EndedBy | None = None
    """Of a cancelled run: a signal ended its process, or somebody asked Prefect to cancel it."""
    start_state: str | None = None
    """Of a run that starts from saved weights: its own copy of them, to train from; None for a fresh adapter."""
    start_sampler: str | None = None
    """The same, to sample from."""
    heartbeat_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def state(self) -> str:
        """The status; `silent` where a running run gave no sign of life for five minutes: it died, or cannot reach its history."""
        quiet = self.heartbeat_at is not None and (utc_now() - self.heartbeat_at).total_seconds() > SILENT_S
        return "silent" if self.status == "running" and quiet else self.status


class AuditFinding(BaseModel):
    """What holding one passed rollout against the golden answer, or against other passes, found."""

    model_config = ConfigDict(frozen=True)
    result: AuditResult
    detail: str
    """How many inputs were tried, the first difference, or why nothing is known."""
    method: Literal["proof", "simulation", "consensus"] = "simulation"
    share: float | None = None
    """By consensus: the share of the independent texts that behave alike."""
    depth: int | None = None
    """Clock cycles for which equality is proved, where it is for so many alone."""
    cpu_s: float = 0.0
    trace: list[dict[str, int]] = Field(default_factory=list)
    """The shortest inputs that show a difference: step by step the value of each input."""
    cells: int | None = None
    flip_flops: int | None = None
    levels: int | None = None
    relative_area: float | None = None
    relative_levels: float | None = None
    """These five as in `types.netlist.Netlist`; None where Yosys cannot synthesise the answer."""


class AuditRecord(AuditFinding):
    """A finding on a rollout, and what it rests on."""

    rollout: str
    run: str
    problem_id: str
    key: str
    """Hash of golden answer, effort and tools: the same key gives the same result."""
    executor: str
    tools: dict[str, str] = Field(default_factory=dict)
    audited_at: datetime = Field(default_factory=utc_now)


class ValidationRecord(BaseModel):
    """What validating one problem with one set of tools found."""

    model_config = ConfigDict(frozen=True)
    fingerprint: str
    """`Problem.fingerprint`; with `tools_key` the primary key."""
    tools_key: str
    problem_id: str
    status: ValidationStatus
    evidence: dict[str, Any] = Field(default_factory=dict)
    """Why: outcomes of golden, empty and mutated answers, reasons in words; JSON-able."""
    tools: dict[str, str] = Field(default_factory=dict)
    wall_s: float = 0.0
    checked_at: datetime = Field(default_factory=utc_now)


class StepPlan(BaseModel):
    """Which problems one train step takes, in order."""

    model_config = ConfigDict(frozen=True)
    step: int = Field(ge=0)
    problem_ids: tuple[str, ...]


class StepState(BaseModel):
    """One step as the history knows it: planned, or trained with where its weights lie."""

    model_config = ConfigDict(frozen=True)
    run: str
    epoch: int
    step: int
    status: StepStatus
    problem_ids: tuple[str, ...]
    state_path: str | None = None
    sampler_path: str | None = None
    examples: int | None = None
    """As `StepRecord.examples`; None for a planned step."""
    train_tokens: int | None = None
    """As `StepRecord.train_tokens`; None likewise."""


class StepRecord(BaseModel):
    """A step that was trained: where its weights lie, what it cost, what it measured."""

    model_config = ConfigDict(frozen=True)
    run: str
    epoch: int
    step: int
    state_path: str
    sampler_path: str
    examples: int = Field(ge=0)
    """How many answers were sent to the service to train on."""
    train_tokens: int = Field(ge=0)
    """Their tokens, P + T − 1 each: what the train step is charged for."""
    times: dict[str, float] = Field(default_factory=dict)
    """Stage (`sample`, `grade`, `score`, `train`, `store`, `total`) -> wall seconds. Stages overlap, so they may add up to
    more than `total`."""
    metrics: dict[str, float] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TeacherRecord:
    """The teacher's log-probabilities of one rollout's T completion tokens, and the per-token means of k1, k2, k3."""

    rollout: str
    logprobs_T: np.ndarray | Sequence[float]
    k1_mean: float
    k2_mean: float
    k3_mean: float
    n_tokens: int
    teacher: str | None = None
    """The model or the saved weights that scored; None: not recorded, since the run had one teacher."""
    hint: str | None = None
    """What a student that scored itself was shown: `golden`, `passed` or `verdict`; None: the prompt was the answer's own."""
    n_prompt: int | None = None
    """Tokens of the prompt with the hint."""
    choices: Choices | None = None
    """The teacher's likeliest tokens at each position. They are kept in memory; the first three of them at `choices_at` are stored."""
    choices_at: Sequence[int] = ()
    """The tokens, from 0, at which they are stored."""


class Conditions(BaseModel):
    """What differs from a run's own evaluations; None for what does not."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    template: str | None = None
    """Another prompt template than the run's own."""
    temperature: float | None = Field(default=None, gt=0)
    """Another sampling temperature than the run's own."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Another top_p than the run's own."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Another limit of an answer's tokens than the run's own."""
    turns: int | None = Field(default=None, ge=1)
    """The most turns of an episode with tools; None for single-shot answers."""

    @property
    def conditions(self) -> list[str]:
        """Them in words."""
        named = [(name, getattr(self, name)) for name in Conditions.model_fields]
        return [
            f"{name} {f'{value:g}' if isinstance(value, float) else value}"
            for name, value in named
            if value is not None
        ]


OWN = Conditions()
"""The run's own conditions."""


class EvaluationFigures(BaseModel):
    """What an evaluation found. `lo`, `hi` are the 95 % interval of `pass_at_1` over problems."""

    model_config = ConfigDict(frozen=True)
    pass_at_1: float | None = None
    lo: float | None = None
    hi: float | None = None
    pass_at_k: dict[int, float] = Field(default_factory=dict)
    by_difficulty: dict[str, float] = Field(default_factory=dict)
    by_family: dict[str, float] = Field(default_factory=dict)
    left_out: dict[str, int] = Field(default_factory=dict)
    """Why problems of the set are not in the figures -> how many."""


class EvaluationRecord(Conditions, EvaluationFigures):
    """One evaluation of one policy on one split: under which conditions, and what it found."""

    key: str = Field(min_length=1)
    run: str
    policy: PolicyName
    step: int
    """Train steps the evaluated weights had seen (0: before training)."""
    split: str
    status: EvaluationStatus = "running"
    n_problems: int = 0
    samples: int = 0
    """Samples per problem."""
    started_at: datetime = Field(default_factory=utc_now)
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One message of a conversation; the columns of `messages` say what each field holds."""

    rollout: str
    position: int
    who: Literal["model", "tool", "user"]
    text: str
    ok: bool
    seconds: float
    thought: str = ""
    call: Mapping[str, str] | None = None
    n_tokens: int = 0
    used_s: float = 0.0
    tokens_T: Sequence[int] = ()
    logprobs_T: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class StoredRollout:
    """A rollout with all that later stages recorded of it so far; None where a stage has not been reached."""

    rollout: Rollout
    verdict: Verdict | None = None
    reward: Reward | None = None
    teacher: TeacherRecord | None = None
    credit: Credit | None = None
    audit: AuditResult | None = None
    """Of a pass: what is known of it beside the golden answer, or beside other passes."""
    heard_from: int = 0
    """The token from which the teacher is heard, as the train step finds it (`learning.kl_after_error`); not stored."""

    @property
    def passed(self) -> bool:
        """Whether it is graded and passed."""
        return self.verdict is not None and self.verdict.passed


@dataclass(frozen=True, slots=True)
class StoredProblem:
    """A problem's place in a run."""

    problem_id: str
    fingerprint: str
    split: str
    position: int | None
    record: Mapping[str, Any] = field(default_factory=dict)
    """The whole `Problem` as JSON-able mapping."""
