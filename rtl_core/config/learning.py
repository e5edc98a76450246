"""The configuration sections `[learning]`, `[curriculum]` and `[health]`: what is learnt, from which
problems, and when to stop."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, field_validator

from localtinker.losses import CLIP, LOSSES, UNAVAILABLE, policy_losses
from rtl_core.config.known import refuse_unknown
from rtl_core.config.url import EndpointUrl
from rtl_core.learning.advantage import Baseline
from rtl_core.learning.credit import Doubtful, Truncated
from rtl_core.learning.curriculum import Order
from rtl_core.learning.distributions import Divergence, Tail
from rtl_core.learning.health import METRICS, SafeRange
from rtl_core.learning.pools import PoolRules
from rtl_core.learning.schedule import KlSchedule, scheduled
from rtl_core.types.numbers import Count, Share
from rtl_grader.types.section import Section

SELF_DISTILLATION = "self_distillation"
"""Algorithm whose teacher is the student with a hint in its prompt."""
DISTRIBUTIONS = "distribution_distillation"
"""Algorithm that learns from the teacher's likeliest tokens at each position."""
SELF_DISTRIBUTIONS = "self_distribution_distillation"
"""Algorithm that combines both."""
GDPO, MAX_RL = "gdpo", "max_rl"
"""Algorithms with a scale of their own for advantages; `normalise_std` does not apply to them."""


class LearningSection(Section):
    episodes: bool = False
    """The student answers in episodes with tools (`[episode]`), in training and in the run's evaluations.
    It learns from its own tokens in all turns (docs/episodes.md). Off: an answer is one turn."""
    algorithm: str = "grpo"
    """Algorithm that turns graded answers into loss inputs (`rtl_core/algorithms`), or `module:Class` for your own."""
    by_source: dict[str, str] = Field(default_factory=dict)
    """Algorithms for the problems of single sources: mapping of a problem's `source` (`starter`, `cvdp`, ...) to an
    algorithm, such as `{cvdp = "max_rl"}`. All other problems use `algorithm`; every other key holds for all."""
    loss: str = "importance_sampling"
    """Loss of the train step, by its name in Tinker: `importance_sampling`, `ppo`, `gspo`, `cispo`
    (localtinker/losses.py)."""
    loss_parameters: dict[str, float] = Field(default_factory=dict)
    """Parameters of the loss by their names in Tinker, such as `{clip_low_threshold = 0.0}`. They override
    `clip_low` and `clip_high`."""
    clip_low: float | None = Field(default=None, ge=0, le=1)
    """With `ppo`, `gspo` and `cispo`: lower clip bound of the ratio of trainer to sampler probability. Default: 0.8
    for `ppo` and `gspo`, 0 for `cispo`."""
    clip_high: float | None = Field(default=None, ge=1)
    """With `ppo`, `gspo` and `cispo`: upper clip bound of this ratio. Default: 1.2 for `ppo` and `gspo`, 4 for
    `cispo`."""
    staleness: int = Field(default=0, ge=0, le=8)
    """Maximum number of train steps by which the sampling weights lag behind. 0: on-policy, one step after
    the other. n: the next n steps are sampled, graded and scored while one step trains."""
    reward_weight: NonNegativeFloat = 1.0
    """Weight of the reward's advantage. 0: distillation only."""
    kl_weight: NonNegativeFloat = 0.5
    """λ: weight of the per-token reverse KL to the teacher. 0 in every step: RL only, no teacher needed."""
    kl_schedule: KlSchedule = "constant"
    """`constant`; `linear` or `cosine` from `kl_weight` at the first step to `final_kl_weight` at the last;
    `target`: start at `kl_weight` and adjust after each step to keep the KL at `kl_target`."""
    final_kl_weight: NonNegativeFloat = 0.0
    """With `linear` and `cosine`: λ at the end of the schedule."""
    kl_schedule_part: Share = 1.0
    """With `linear` and `cosine`: fraction of the run's steps, supervised steps included, after which λ
    stays at `final_kl_weight`."""
    kl_target: PositiveFloat | None = None
    """With `target`: target KL to the teacher per token, in nats."""
    kl_gain: float = Field(default=0.1, gt=0, le=2)
    """With `target`: gain of the controller. λ changes by at most a fifth of this fraction per step."""
    kl_weight_bounds: tuple[float, float] = (1e-3, 10.0)
    """With `target`: lower and upper bound of λ."""
    kl_on: Literal["all", "failed"] = "all"
    """Answers to which the KL applies: `all`, or only `failed` ones. Other answers learn from their reward only."""
    kl_unsure_below: float | None = Field(default=None, gt=0, lt=1)
    """Apply the KL only at tokens to which the student gave less than this probability. Default: at all tokens."""
    kl_after_error: bool = False
    """In a failed answer, apply the KL only from the first wrong line on, found by comparison with the most
    similar passing answer of the group. If no answer passed, it applies to the whole answer."""
    divergence: Divergence = "reverse"
    """With `distribution_distillation`: `reverse` KL(student ‖ teacher), `forward` KL(teacher ‖ student),
    or `jensen_shannon`, a mixture of both (formulas: learning/distributions.py)."""
    teacher_choices: int = Field(default=20, ge=1, le=100)
    """With `distribution_distillation`: number of likeliest tokens requested at each position."""
    choices_of: Literal["teacher", "student"] = "teacher"
    """With `distribution_distillation`: whose likeliest tokens are compared. `teacher`: the teacher's, and the trainer
    reads the answers once more for its own probabilities of them. `student`: those that come with the student's
    sample, which the teacher scores; on-policy the trainer reads the answers once."""
    tail: Tail = "bucket"
    """With `distribution_distillation`: treat all other tokens as one outcome (`bucket`), or leave them out
    (`renormalise`). On-policy `forward` with `renormalise` is a weighted cross entropy and needs no second
    forward pass, either."""
    jensen_shannon_beta: float = Field(default=0.5, gt=0, lt=1)
    """With `jensen_shannon`: β, the teacher's weight in the mixture."""
    choices_stored_above: NonNegativeFloat = 1.0
    """With `distribution_distillation`: store the teacher's three likeliest tokens where the KL is at least
    this many nats."""
    teacher_reads: Literal["answer", "thoughts"] = "answer"
    """What a teacher with another tokenizer or chat template reads of a student that thinks: its `answer` alone, or
    also its `thoughts`, where the teacher's template puts them. A teacher with the student's tokens reads all."""
    kl_discount: float = Field(default=0.0, ge=0, le=1)
    """γ: discount factor with which the KL of later tokens counts towards a token."""
    kl_clamp: PositiveFloat | None = None
    """Clip each token's KL to plus or minus this many nats. Default: no clipping."""
    baseline: Baseline = "group_mean"
    """Baseline of a rollout's reward: the mean of its group, or the mean of the group's other rollouts."""
    normalise_std: bool = False
    """Divide a group's advantages by their standard deviation. `gdpo` and `max_rl` have their own scale."""
    replacements: NonNegativeInt = 1
    """With λ = 0: how often a group without advantages (equal rewards; with `gdpo` equal in each term), which
    teaches nothing, may be replaced by another problem in its step."""
    replace_with_kl: bool = False
    """Also with λ > 0, add another problem to the step for each group with equal rewards, which itself
    trains on the KL only. Has no effect if `reward_weight` is 0."""
    truncated: Truncated = "keep"
    """Answers cut at the token limit and episodes ended by a limit of `[episode]`: `keep` their reward,
    `mask` them out of loss and baseline, or `penalise` them."""
    overlong_penalty: NonNegativeFloat = 0.5
    """With `penalise`: penalty of a truncated answer, in units of reward."""
    overlong_buffer: NonNegativeInt = 0
    """With `penalise`: number of tokens before the limit over which the penalty rises from 0."""
    self_hint: Literal["golden", "verdict"] = "golden"
    """With `self_distillation`: hint shown to the student when it scores its own answers. `golden`: the
    problem's known-good answer. `verdict`: a passing answer of the group or, if none passed, the grader's
    feedback on the answer."""
    self_weights: Literal["start", "current"] = "start"
    """With `self_distillation`: weights used for scoring. `start`: those after the warm start, frozen.
    `current`: those that sampled the answer."""
    warm_start_steps: NonNegativeInt = 0
    """Number of initial supervised steps (cross entropy) on answers that are not the student's: off-policy
    distillation."""
    warm_start_problems: Count | None = None
    """Problems in each supervised step. Default: `curriculum.problems_per_step`. A problem has few distinct
    answers to imitate, so a step of 48 problems reads about as much as one of 8 groups of 6."""
    warm_start_source: Literal["teacher", "golden", "endpoint"] = "teacher"
    """Source of the answers to imitate: `teacher` samples them; `golden` takes the known-good answers,
    cycling through the problems that have one; `endpoint` asks a model that only writes text."""
    warm_start_endpoint: EndpointUrl | None = None
    """With `endpoint`: OpenAI-compatible endpoint, such as `https://api.example.com/v1`. Its key is
    OPENAI_API_KEY."""
    warm_start_model: str | None = Field(default=None, min_length=1)
    """With `endpoint`: name of the model there, and of its price in the price list."""
    warm_start_max_tokens: Count | None = None
    """With `endpoint`: maximum tokens that the model writes for one answer, thoughts included. Default:
    `sampling.max_tokens`, which also bounds what the student imitates."""
    warm_start_answers: Count | None = None
    """Answers sampled from the teacher or the endpoint per problem of a supervised step. Default:
    `sampling.group_size`. Equal answers count once, and those of a confident teacher are all alike."""
    warm_start_passing_only: bool = True
    """Imitate only those answers of the teacher or the endpoint that pass."""
    warm_start_learning_rate: PositiveFloat | None = None
    """Adam's learning rate in the warm start. Default: `learning_rate` without decay."""
    doubtful: Doubtful = "keep"
    """Treatment of passes contradicted by a proof, by a simulation beside the golden answer or by the other
    passes of the group. `mask`: exclude them from loss and baseline. `zero`: reward 0, and the KL applies
    if `kl_on` is `failed`. `keep`: no check (`rtl-distill grade audit` does it later)."""
    doubtful_share: float = Field(default=0.25, gt=0, le=10)
    """With `mask` and `zero`: CPU time allowed for checking passes, as a fraction of the CPU time of grading."""
    permute_advantages: bool = False
    """Control experiment: give each rollout the advantage of another one. If the run still improves, it
    measures something else."""
    permute_results: bool = False
    """Control experiment: in train steps, tools return the files of another problem. Remaining improvement
    does not come from reading files."""
    permute_teacher: bool = False
    """Control experiment: give each rollout the teacher's scores of another one, token by token. Remaining
    improvement is not due to the teacher."""
    learning_rate: PositiveFloat = 4e-5
    """Adam's learning rate at the first step."""
    final_learning_rate_share: Share = 1.0
    """Final learning rate as a fraction of `learning_rate`, reached linearly at the last planned step. 1: constant."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Adam's decay rate of the first moment."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """Adam's decay rate of the second moment."""
    eps: PositiveFloat = 1e-8
    """Adam's epsilon."""
    grad_clip_norm: NonNegativeFloat = 0.0
    """Maximum gradient norm. 0: no clipping."""
    max_sampler_trainer_kl: PositiveFloat = 0.5
    """Stop the run when the KL between sampler and trainer exceeds this value (healthy: below 0.01)."""
    max_sampler_trainer_difference: PositiveFloat = 0.25
    """Stop the run when the log-probabilities of answers that the current weights sampled differ from the
    trainer's, on average and in either direction, by more than this share of the trainer's mean plus 0.02
    nats. The first step is checked before it is applied."""

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, name: str) -> str:
        if name in UNAVAILABLE:
            raise ValueError(f"no training with the loss {name!r}: {UNAVAILABLE[name]}")
        refuse_unknown("loss", [name], policy_losses())
        return name

    @property
    def loss_settings(self) -> dict[str, float]:
        """All parameters of the loss, by their names in Tinker."""
        own = LOSSES[self.loss].parameters
        values = dict(own)
        for name, bound in zip(CLIP, (self.clip_low, self.clip_high), strict=True):
            if bound is not None:
                values[name] = bound
        values |= self.loss_parameters
        return {name: values[name] for name in own}

    @property
    def named_algorithms(self) -> dict[str, str]:
        """Mapping of configuration key to algorithm, `learning.algorithm` first."""
        rest = {f"learning.by_source.{source}": name for source, name in self.by_source.items()}
        return {"learning.algorithm": self.algorithm, **rest}

    def algorithm_of(self, source: str | None) -> str:
        """Return the algorithm for the problems of a source (`Problem.source`)."""
        return self.algorithm if source is None else self.by_source.get(source, self.algorithm)

    @property
    def self_taught(self) -> bool:
        """Whether the student is its own teacher."""
        return self.algorithm in (SELF_DISTILLATION, SELF_DISTRIBUTIONS)

    @property
    def asked_choices(self) -> int:
        """Number of likeliest tokens to request at each position. 0: only the teacher's scores."""
        return (
            self.teacher_choices if self.algorithm in (DISTRIBUTIONS, SELF_DISTRIBUTIONS) else 0
        )

    @property
    def sampled_choices(self) -> int:
        """Number of likeliest tokens to request with each token of a sample. 0: none."""
        return self.asked_choices if self.choices_of == "student" else 0

    @property
    def reads_trainer(self) -> bool:
        """Whether a step with a KL needs the trainer's log-probabilities before it trains."""
        fixed = self.divergence == "forward" and self.tail == "renormalise"
        known = self.staleness == 0 and (fixed or self.choices_of == "student")
        return self.asked_choices > 0 and not known

    @property
    def imitates_teacher(self) -> bool:
        """Whether the run begins with supervised steps on the teacher's answers."""
        return self.warm_start_steps > 0 and self.warm_start_source == "teacher"

    @property
    def imitates_endpoint(self) -> bool:
        """Whether the run begins with supervised steps on the answers of a model behind an endpoint."""
        return self.warm_start_steps > 0 and self.warm_start_source == "endpoint"

    @property
    def imitates_golden(self) -> bool:
        """Whether the run begins with supervised steps on known-good answers."""
        return self.warm_start_steps > 0 and self.warm_start_source == "golden"

    @property
    def kl_follows_schedule(self) -> bool:
        """Whether λ follows a schedule from `kl_weight` to `final_kl_weight`."""
        return self.kl_schedule in ("linear", "cosine")

    @property
    def uses_kl(self) -> bool:
        """Whether λ can be above 0 in some step. The run then needs a teacher and samples at temperature 1."""
        return self.kl_weight > 0 or (self.kl_follows_schedule and self.final_kl_weight > 0)

    def uses_kl_at(self, step: int, steps: int) -> bool:
        """Whether λ is above 0 in step `step` (from 0) of a run of `steps`. Known before sampling."""
        return (
            self.uses_kl if self.kl_schedule == "target" else self.kl_weight_at(step, steps) > 0
        )

    def replaces_equal_at(self, step: int, steps: int) -> bool:
        """Whether another problem joins step `step` (from 0) of a run of `steps` for each group with equal rewards."""
        return self.reward_weight > 0 and (
            self.replace_with_kl or not self.uses_kl_at(step, steps)
        )

    def kl_weight_at(self, step: int, steps: int) -> float:
        """λ of step `step` (from 0) of a run of `steps`. Raises ValueError with a target KL, which needs
        measurements of earlier steps."""
        return scheduled(
            step,
            steps,
            self.kl_weight,
            self.final_kl_weight,
            self.kl_schedule,
            self.kl_schedule_part,
        )


class CurriculumSection(PoolRules):
    order: Order = "easy_to_hard"
    """`easy_to_hard`: by measured pass rate, label, golden size and interface size. `shuffled`: random.
    `pools`: draw each RL step from an easy, a normal and a hard pool that are updated with the run's own
    pass rates."""
    problems_per_step: Count = 8
    """Problems in each train step."""
    measure_samples: NonNegativeInt = 0
    """Answers sampled from student and teacher for each training problem before the first step. Problems
    are then ordered by pass rate. 0: no measurement."""
    quarantine: bool = False
    """Skip a problem whose answers cannot be graded (after `grading.retries`) instead of stopping the run.
    With `pools` it pauses. If more than half of a step cannot be graded, the run still stops."""


class HealthSection(Section):
    ranges: dict[str, SafeRange] = Field(default_factory=dict)
    """Safe ranges of step metrics, such as `{"optim/entropy" = {min = 0.02}}`. A run that leaves its range
    saves everything and stops."""
    patience: Count = 3
    """Number of consecutive steps that a metric must be out of range."""
    accept_up_to_step: NonNegativeInt = 0
    """Do not check steps up to this number (counted from 1). To resume a stopped run, set it to the step at
    which the run stopped."""

    @field_validator("ranges")
    @classmethod
    def _known_metrics(cls, ranges: dict[str, SafeRange]) -> dict[str, SafeRange]:
        refuse_unknown("metric", ranges, METRICS)
        return ranges
