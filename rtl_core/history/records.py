"""Rows of the history as frozen records, the interface between the pipeline and the database.

Times are UTC. Rollouts, problems and verdicts have their own types (`Rollout`, `Problem`, `Verdict`) in
`rtl_core/types`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt

from rtl_core.learning.credit import Credit
from rtl_core.learning.distributions import Choices
from rtl_core.learning.intervals import Interval
from rtl_core.learning.reward import Reward
from rtl_core.learning.spans import SpanArray
from rtl_core.types.numbers import Count, Share
from rtl_core.types.rollout import Kind, PolicyName, Rollout
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Verdict

PlacedProblem = tuple[Problem, str, int | None]
"""A problem, its split, and its position in the curriculum, if it has one there."""
EndedBy = Literal["signal", "request"]
RunStatus = Literal["created", "running", "finished", "failed", "cancelled", "paused"]
StepStatus = Literal["planned", "trained"]
EvaluationStatus = Literal["running", "done", "failed"]
AuditResult = Literal["equal", "same", "different", "unknown"]


SILENT_S = 300.0
"""Seconds without a heartbeat after which a running run counts as silent; `history/named/runs.sql` has the
same limit."""


def utc_now() -> datetime:
    """The current time, aware UTC."""
    return datetime.now(UTC)


class RunSettings(BaseModel):
    """The settings of a run. A later start of the same run may change them, and the next start then uses
    the changed ones."""

    model_config = ConfigDict(frozen=True)
    config: dict[str, Any] = {}
    """The whole effective configuration, JSON-serialisable."""
    config_hash: str = ""
    seed: int = 0
    student: str = ""
    teacher: str = ""
    problems_hash: str = ""

    def setting(self, section: str, key: str, default: Any = None) -> Any:
        """The value of a key of the configuration; `default` where the run has none."""
        return self.config.get(section, {}).get(key, default)


class RunRecord(RunSettings):
    """A run, identified by its name; starting an existing name resumes the run."""

    name: str = Field(min_length=1)
    created_at: datetime = Field(default_factory=utc_now)
    status: RunStatus = "created"
    versions: dict[str, str] = {}
    """Package, tool or image -> version or digest."""
    message: str | None = None
    """Why it stopped, in words."""
    ended_by: EndedBy | None = None
    """How a cancelled run ended: by a signal to its process, or by a request to Prefect."""
    start_state: str | None = None
    """The run's own copy of the saved weights that it starts from, for training; None for a fresh adapter."""
    start_sampler: str | None = None
    """The same, for sampling."""
    console: str | None = None
    """Page of the newest trainer in the console of the service."""
    heartbeat_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def state(self) -> str:
        """The status; `silent` for a running run without a heartbeat for five minutes: it died, or cannot
        reach its history."""
        quiet = (
            self.heartbeat_at is not None
            and (utc_now() - self.heartbeat_at).total_seconds() > SILENT_S
        )
        return "silent" if self.status == "running" and quiet else self.status


class AuditFinding(BaseModel):
    """The result of comparing a passed rollout with the golden answer, or with other passes."""

    model_config = ConfigDict(frozen=True)
    result: AuditResult
    detail: str
    """How many inputs were tried, the first difference, or why the result is unknown."""
    method: Literal["proof", "simulation", "consensus"] = "simulation"
    share: float | None = None
    """With consensus: the share of independent texts that behave the same."""
    depth: int | None = None
    """Number of clock cycles for which equality is proved, if it is bounded."""
    cpu_s: float = 0.0
    trace: list[dict[str, int]] = []
    """The shortest inputs that show a difference: the value of each input, step by step."""
    cells: int | None = None
    flip_flops: int | None = None
    levels: int | None = None
    relative_area: float | None = None
    relative_levels: float | None = None
    """The last five fields as in `types.netlist.Netlist`; None where Yosys cannot synthesise the answer."""


class AuditRecord(AuditFinding):
    """A finding on a rollout, with the golden answer, effort and tools behind it."""

    rollout: str
    run: str
    problem_id: str
    key: str
    """Hash of golden answer, effort and tools: the same key gives the same result."""
    executor: str
    tools: dict[str, str] = {}
    audited_at: datetime = Field(default_factory=utc_now)


class StepPlan(BaseModel):
    """The problems of a train step, in order."""

    model_config = ConfigDict(frozen=True)
    step: NonNegativeInt
    problem_ids: tuple[str, ...]


class StepState(BaseModel):
    """A stored step: planned, or trained, with the paths of its weights."""

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
    """A trained step: paths of its weights, its times and metrics."""

    model_config = ConfigDict(frozen=True)
    run: str
    epoch: int
    step: int
    state_path: str
    sampler_path: str
    examples: NonNegativeInt
    """Number of answers that were sent for training."""
    train_tokens: NonNegativeInt
    """Their tokens, P + T − 1 each, which the train step is charged for."""
    times: dict[str, float] = {}
    """Stage (`sample`, `grade`, `score`, `train`, `store`, `total`) -> wall seconds. Stages overlap, so
    they may add up to more than `total`."""
    metrics: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class TeacherReading:
    """An answer in the U tokens of a teacher with another tokenizer or chat template, its log-probabilities of them,
    and the S spans that they share with the student's tokens (learning/spans.py). No tokens: it could not read it."""

    tokens_U: Sequence[int]
    logprobs_U: np.ndarray | Sequence[float]
    spans_S4: SpanArray


@dataclass(frozen=True, slots=True)
class TeacherRecord:
    """The teacher's log-probabilities of one rollout's T completion tokens, and the per-token means of k1, k2, k3.

    Of a teacher with other tokens they are those of spans, as scores of the student's tokens (`reading`)."""

    rollout: str
    logprobs_T: np.ndarray | Sequence[float]
    k1_mean: float
    k2_mean: float
    k3_mean: float
    n_tokens: int
    teacher: str | None = None
    """The model or saved weights that scored; None: not recorded, since the run had a single teacher."""
    hint: str | None = None
    """The hint of a student that scored itself: `golden`, `passed` or `verdict`; None: the answer's own prompt."""
    n_prompt: int | None = None
    """Tokens of the prompt that the teacher read, if not the answer's own: with a hint, or in its own tokens."""
    reading: TeacherReading | None = None
    """How a teacher with other tokens read the answer."""
    choices: Choices | None = None
    """The tokens that are compared at each position, those that are likeliest to the teacher first, in memory; only the
    first three at `choices_at` are stored."""
    choices_at: Sequence[int] = ()
    """Positions, from 0, whose choices are stored."""


class Conditions(BaseModel):
    """Settings of an evaluation that differ from the run's own evaluations; None where they do not differ."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    template: str | None = None
    """Prompt template."""
    temperature: NonNegativeFloat | None = None
    """Sampling temperature."""
    top_p: Share | None = None
    """Sampling top_p."""
    max_tokens: Count | None = None
    """Maximum tokens of an answer."""
    turns: Count | None = None
    """Maximum turns of an episode with tools; None for single-shot answers."""

    @property
    def conditions(self) -> list[str]:
        """The settings that differ, in words."""
        named = [(name, getattr(self, name)) for name in Conditions.model_fields]
        return [
            f"{name} {f'{value:g}' if isinstance(value, float) else value}"
            for name, value in named
            if value is not None
        ]


OWN = Conditions()
"""The run's own conditions."""


class EvaluationFigures(BaseModel):
    """Results of an evaluation. `lo`, `hi` are the 95 % interval of `pass_at_1` over problems."""

    model_config = ConfigDict(frozen=True)
    pass_at_1: float | None = None
    lo: float | None = None
    hi: float | None = None
    pass_at_k: dict[int, float] = {}
    by_difficulty: dict[str, float] = {}
    by_family: dict[str, float] = {}
    left_out: dict[str, int | list[str]] = {}
    """Reason why problems are excluded from the results -> which, or how many if they have no name."""
    errata: dict[str, str] = {}
    """Problem in the results with a known fault of its published set -> what is wrong."""


class EvaluationRecord(Conditions, EvaluationFigures):
    """An evaluation of a policy on a split: its conditions and results."""

    key: str = Field(min_length=1)
    run: str
    policy: PolicyName
    step: int
    """Number of train steps of the evaluated weights (0: before training)."""
    split: str
    status: EvaluationStatus = "running"
    n_problems: int = 0
    samples: int = 0
    """Samples per problem."""
    kind: Kind = "single attempt"
    started_at: datetime = Field(default_factory=utc_now)
    finished_at: datetime | None = None

    @property
    def rate(self) -> Interval | None:
        """pass@1 with its interval; None without one."""
        if self.pass_at_1 is None or self.lo is None or self.hi is None:
            return None
        return Interval(self.pass_at_1, self.lo, self.hi, self.n_problems)


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message of a conversation; schema.sql describes the fields (table `messages`)."""

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
    """A rollout with everything that later stages recorded so far; None for a stage that it has not reached."""

    rollout: Rollout
    verdict: Verdict | None = None
    reward: Reward | None = None
    teacher: TeacherRecord | None = None
    credit: Credit | None = None
    audit: AuditResult | None = None
    """For a pass: the result of comparing it with the golden answer, or with other passes."""
    choices: Choices | None = None
    """The student's likeliest tokens at each position, in memory (`learning.choices_of`). Once the teacher has scored
    them, in the order of `teacher.choices`."""
    heard_from: int = 0
    """First token whose teacher score is used, set by the train step (`learning.kl_after_error`); not stored."""

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict.passed


@dataclass(frozen=True, slots=True)
class StoredProblem:
    """A problem of a run, with its split and position."""

    problem_id: str
    fingerprint: str
    split: str
    position: int | None
    record: Mapping[str, Any] = field(default_factory=dict)
    """The whole `Problem` as a JSON-serialisable mapping."""
