"""The sections of a configuration about what is learnt, from which problems, and when to stop."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from rtl_core.learning.advantage import Baseline
from rtl_core.learning.credit import Doubtful, Truncated
from rtl_core.learning.curriculum import Order
from rtl_core.learning.distributions import Divergence, Tail
from rtl_core.learning.health import METRICS
from rtl_core.learning.losses import CLIP, LOSSES, policy_losses
from rtl_core.learning.pools import DEFAULT_WEIGHTS, POOLS, Pool
from rtl_core.learning.schedule import KlSchedule, scheduled
from rtl_core.types.section import Section

SELF_DISTILLATION = "self_distillation"
"""Name of the algorithm whose teacher is the student with a hint in its prompt."""
DISTRIBUTIONS = "distribution_distillation"
"""Name of the algorithm that learns from the teacher's likeliest tokens at each position."""
SELF_DISTRIBUTIONS = "self_distribution_distillation"
"""Name of that which does both."""


class LearningSection(Section):
    episodes: bool = False
    """The student answers in episodes with tools (`[episode]`), in training and in the run's own evaluations, and learns from its own tokens of
    all turns (docs/episodes.md). Off: an answer is one turn."""
    algorithm: str = "grpo"
    """What graded answers are worth and what the loss reads of them (`rtl_core/algorithms`); `module:Class` takes one of your own."""
    loss: str = "importance_sampling"
    """Loss of the train step, as the Tinker service names it: `importance_sampling`, `ppo`, `cispo` (learning/losses.py)."""
    loss_parameters: dict[str, float] = Field(default_factory=dict)
    """Parameters of the loss by the service's names, such as `{clip_low_threshold = 0.0}`; they win over `clip_low` and `clip_high`."""
    clip_low: float | None = Field(default=None, ge=0, le=1)
    """With `ppo` and `cispo`: the smallest ratio of the trainer's to the sampler's probability that still counts. Left out, the loss's
    own: 0.8 with `ppo`, 0 with `cispo`."""
    clip_high: float | None = Field(default=None, ge=1)
    """With `ppo` and `cispo`: the largest such ratio. Left out, the loss's own: 1.2 with `ppo`, 4 with `cispo`."""
    staleness: int = Field(default=0, ge=0, le=8)
    """How many train steps the weights that sample a step may be behind it. 0: on-policy, one step after the other. n: the next n
    steps are sampled, graded and scored while one trains."""
    reward_weight: float = Field(default=1.0, ge=0)
    """Factor of the reward's advantage; 0 is distillation alone."""
    kl_weight: float = Field(default=0.5, ge=0)
    """λ: weight of the per-token reverse KL to the teacher. 0 in every step is RL alone and needs no teacher for it."""
    kl_schedule: KlSchedule = "constant"
    """`constant`; `linear` or `cosine` from `kl_weight` at the first step to `final_kl_weight` at the last; `target`: starts at
    `kl_weight` and is raised or lowered after each step to hold the KL at `kl_target`."""
    final_kl_weight: float = Field(default=0.0, ge=0)
    """With `linear` and `cosine`: λ at the end of the schedule."""
    kl_schedule_part: float = Field(default=1.0, gt=0, le=1)
    """With `linear` and `cosine`: the share of the run's steps, supervised ones included, over which λ gets to `final_kl_weight`, where it stays."""
    kl_target: float | None = Field(default=None, gt=0)
    """With `target`: the KL to the teacher per token that is aimed at, in nats."""
    kl_gain: float = Field(default=0.1, gt=0, le=2)
    """With `target`: λ changes by at most a fifth of this share a step."""
    kl_weight_bounds: tuple[float, float] = (1e-3, 10.0)
    """With `target`: λ stays between these."""
    kl_on: Literal["all", "failed"] = "all"
    """Which answers the teacher corrects: `all`, or those that did not pass, the others learning from their reward alone."""
    kl_unsure_below: float | None = Field(default=None, gt=0, lt=1)
    """The teacher is heard only at tokens to which the student gave less than this probability; left out: at all."""
    kl_after_error: bool = False
    """The teacher is heard only from the first wrong line of a failed answer on, as the nearest passing answer of its group tells; where none
    passed, in the whole answer."""
    divergence: Divergence = "reverse"
    """With `distribution_distillation`: `reverse` KL(student ‖ teacher), `forward` KL(teacher ‖ student), or `jensen_shannon`, a mixture
    (learning/distributions.py has the formulas)."""
    teacher_choices: int = Field(default=20, ge=1, le=100)
    """With `distribution_distillation`: k, how many of the teacher's likeliest tokens at each position."""
    tail: Tail = "bucket"
    """With `distribution_distillation`: all other tokens are one outcome (`bucket`), or left out (`renormalise`). `forward` and `renormalise` on-policy
    is a weighted cross entropy and costs no second forward pass."""
    jensen_shannon_beta: float = Field(default=0.5, gt=0, lt=1)
    """With `jensen_shannon`: β, the teacher's part of the mixture."""
    choices_stored_above: float = Field(default=1.0, ge=0)
    """With `distribution_distillation`: at tokens whose KL is at least this many nats the teacher's first three choices are stored."""
    kl_discount: float = Field(default=0.0, ge=0, le=1)
    """γ: how much of later tokens' KL a token is charged."""
    kl_clamp: float | None = Field(default=None, gt=0)
    """Cut each token's KL to plus or minus this many nats; leave out for none."""
    baseline: Baseline = "group_mean"
    """What a rollout's reward is compared with: the group's mean, or the mean of the others."""
    normalise_std: bool = False
    """Divide a group's advantages by their standard deviation."""
    replacements: int = Field(default=1, ge=0)
    """With λ = 0 a group of equal rewards teaches nothing. How often its place in the step may be given to another problem."""
    replace_with_kl: bool = False
    """With λ > 0, too, another problem joins the step for each group of equal rewards, which otherwise trains on the KL alone. Without
    a reward (`reward_weight` 0) nothing is replaced."""
    truncated: Truncated = "keep"
    """Answers cut at the token limit, and episodes that a bound of `[episode]` ended: `keep` their reward, `mask` them out of the loss and the baseline, or `penalise` them."""
    overlong_penalty: float = Field(default=0.5, ge=0)
    """With `penalise`: what a cut answer loses, in units of reward."""
    overlong_buffer: int = Field(default=0, ge=0)
    """With `penalise`: over how many tokens before the limit the penalty rises from 0."""
    self_hint: Literal["golden", "verdict"] = "golden"
    """With `self_distillation`: what the student is shown when it scores its own answers. `golden`: the problem's known-good answer.
    `verdict`: an answer of the group that passed or, where none did, what the grader said of the answer."""
    self_weights: Literal["start", "current"] = "start"
    """With `self_distillation`: whose weights score. `start`: those after the warm start, which stay as they are; `current`: those that
    sampled the answer."""
    warm_start_steps: int = Field(default=0, ge=0)
    """The first so many steps are supervised (cross entropy) on answers that are not the student's: off-policy distillation."""
    warm_start_problems: int | None = Field(default=None, ge=1)
    """Problems in each supervised step; left out: `curriculum.problems_per_step`. A problem gives one or few different answers to imitate, so
    that a step of 48 problems reads about as much as one of 8 groups of 6."""
    warm_start_source: Literal["teacher", "golden"] = "teacher"
    """Whose answers: sampled from the teacher, or the problems' known-good ones; then supervised steps take the problems that have one, as
    often as it takes."""
    warm_start_answers: int | None = Field(default=None, ge=1)
    """How many answers the teacher gives to each problem of a supervised step; left out: `sampling.group_size`. Equal answers count once, and
    a sure teacher's are all alike."""
    warm_start_passing_only: bool = True
    """Of the teacher's answers take only those that pass."""
    warm_start_learning_rate: float | None = Field(default=None, gt=0)
    """Adam's learning rate of the warm start; left out, `learning_rate` without its decay."""
    doubtful: Doubtful = "keep"
    """What becomes of a pass that a proof, a simulation beside the golden answer or the other passes of its group make doubtful: it keeps
    its reward, is masked like a cut answer, or earns zero and, with `kl_on` = `failed`, is corrected by the teacher. `keep` looks at none (`rtl-distill audit` does afterwards)."""
    doubtful_share: float = Field(default=0.25, gt=0, le=10)
    """With `mask` and `zero`: how much CPU time may go into looking at passes, as a share of that of grading."""
    permute_advantages: bool = False
    """Control experiment: hand each rollout another one's advantage. A pipeline that still improves measures something else."""
    permute_results: bool = False
    """Control experiment: what an episode of a train step reads are the files of another problem. What still improves does not come from reading."""
    permute_teacher: bool = False
    """Control experiment: hand each rollout the teacher's scores of another one, token by token. What still improves is not the teacher's."""
    learning_rate: float = Field(default=4e-5, gt=0)
    """Adam's learning rate at the first step."""
    final_learning_rate_share: float = Field(default=1.0, gt=0, le=1)
    """Share of the learning rate that is left at the last planned step; it falls in a straight line. 1 keeps it constant."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Adam's first moment decay."""
    beta2: float = Field(default=0.95, ge=0, lt=1)
    """Adam's second moment decay."""
    eps: float = Field(default=1e-8, gt=0)
    """Adam's epsilon."""
    grad_clip_norm: float = Field(default=0.0, ge=0)
    """Largest gradient norm; 0 means no clipping."""
    max_sampler_trainer_kl: float = Field(default=0.5, gt=0)
    """Stop the run when the trainer's probabilities have left the sampler's by more than this KL (healthy: under 0.01)."""

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, name: str) -> str:
        if name not in policy_losses():
            raise ValueError(f"unknown loss {name!r}; known: {', '.join(policy_losses())}")
        return name

    @property
    def loss_settings(self) -> dict[str, float]:
        """Every parameter of the loss, by the service's names."""
        own = LOSSES[self.loss].parameters
        clip = {
            name: bound for name, bound in zip(CLIP, (self.clip_low, self.clip_high), strict=True) if bound is not None
        }
        given = {**own, **clip, **self.loss_parameters}
        return {name: given[name] for name in own}

    @property
    def self_taught(self) -> bool:
        """Whether the student is its own teacher."""
        return self.algorithm in (SELF_DISTILLATION, SELF_DISTRIBUTIONS)

    @property
    def asked_choices(self) -> int:
        """How many of the teacher's likeliest tokens are asked for at each position; 0: its scores alone."""
        return self.teacher_choices if self.algorithm in (DISTRIBUTIONS, SELF_DISTRIBUTIONS) else 0

    @property
    def reads_trainer(self) -> bool:
        """Whether a step with a KL asks the trainer for log-probabilities before it trains."""
        fixed = self.divergence == "forward" and self.tail == "renormalise" and self.staleness == 0
        return self.asked_choices > 0 and not fixed

    @property
    def imitates_teacher(self) -> bool:
        """Whether the run begins with supervised steps on the teacher's answers."""
        return self.warm_start_steps > 0 and self.warm_start_source == "teacher"

    @property
    def imitates_golden(self) -> bool:
        """Whether the run begins with supervised steps on known-good answers."""
        return self.warm_start_steps > 0 and self.warm_start_source == "golden"

    @property
    def kl_follows_schedule(self) -> bool:
        """Whether λ moves from `kl_weight` to `final_kl_weight`."""
        return self.kl_schedule in ("linear", "cosine")

    @property
    def uses_kl(self) -> bool:
        """Whether λ can be above 0 in some step of a run: what asks for a teacher, and for samples at temperature 1."""
        return self.kl_weight > 0 or (self.kl_follows_schedule and self.final_kl_weight > 0)

    def uses_kl_at(self, step: int, steps: int) -> bool:
        """Whether λ is above 0 in step `step` (from 0) of a run of `steps`; known before anything is sampled."""
        return self.uses_kl if self.kl_schedule == "target" else self.kl_weight_at(step, steps) > 0

    def replaces_equal_at(self, step: int, steps: int) -> bool:
        """Whether another problem joins step `step` (from 0) of a run of `steps` for a group whose rewards are all equal."""
        return self.reward_weight > 0 and (self.replace_with_kl or not self.uses_kl_at(step, steps))

    def kl_weight_at(self, step: int, steps: int) -> float:
        """λ of step `step` (from 0) of a run of `steps`.

        Raises:
            ValueError: λ is held to a target KL, so that it follows from what the steps before measured.
        """
        return scheduled(step, steps, self.kl_weight, self.final_kl_weight, self.kl_schedule, self.kl_schedule_part)


class CurriculumSection(Section):
    order: Order = "easy_to_hard"
    """`easy_to_hard` by measured pass rates, label, golden size and interface size; `shuffled` for none; `pools` draws each RL
    step from pools easy, normal and hard that move with the pass rates of the run itself."""
    problems_per_step: int = Field(default=8, ge=1)
    """Problems in each train step."""
    measure_samples: int = Field(default=0, ge=0)
    """Before the first step, sample so many answers to each training problem from student and teacher, and order by their pass rates;
    0 measures nothing."""
    pool_weights: dict[Pool, float] = Field(default_factory=lambda: dict(DEFAULT_WEIGHTS))
    """With `pools`: the chance of each pool, up to a common factor."""
    easy_from: float = Field(default=0.75, gt=0, le=1)
    """With `pools`: pass rate from which a problem is easy."""
    hard_below: float = Field(default=0.25, gt=0, le=1)
    """With `pools`: pass rate below which a problem is hard."""
    window: int = Field(default=2, ge=1)
    """With `pools`: over how many of a problem's last groups its pass rate is taken."""
    rest_after: int = Field(default=2, ge=0)
    """With `pools`: a problem rests after so many groups in a row that were all solved or all not; 0 lets none rest."""
    rest_steps: int = Field(default=20, ge=1)
    """With `pools`: for how many steps a problem rests before it is tried again."""
    quarantine: bool = False
    """A problem whose answers cannot be graded (`grading.retries`) is left out of its step, and with `pools` rests, instead of stopping
    the run. More than half of a step still stops it."""

    @field_validator("pool_weights")
    @classmethod
    def _some_weight(cls, weights: dict[Pool, float]) -> dict[Pool, float]:
        if any(weight < 0 for weight in weights.values()) or not any(weights.values()):
            raise ValueError("weights of pools must not be negative, and one must be above 0")
        return {pool: weights.get(pool, 0.0) for pool in POOLS}


class SafeRange(Section):
    min: float | None = None
    """Smallest safe value; left out: none."""
    max: float | None = None
    """Largest safe value; left out: none."""


class HealthSection(Section):
    ranges: dict[str, SafeRange] = Field(default_factory=dict)
    """Safe ranges of a step's metrics, such as `{"optim/entropy" = {min = 0.02}}`. A run that leaves one stops, with everything saved."""
    patience: int = Field(default=3, ge=1)
    """How many steps in a row a metric must be outside."""
    accept_up_to_step: int = Field(default=0, ge=0)
    """Steps up to this number (counted from 1) are not judged: set it to the step that a run was stopped at, and it goes on."""

    @field_validator("ranges")
    @classmethod
    def _known_metrics(cls, ranges: dict[str, SafeRange]) -> dict[str, SafeRange]:
        if unknown := sorted(set(ranges) - set(METRICS)):
            raise ValueError(f"unknown metric {', '.join(unknown)}; known: {', '.join(METRICS)}")
        return ranges
