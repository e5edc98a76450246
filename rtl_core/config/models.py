"""The configuration of a run: one TOML file, validated before the run starts. Every field has a docstring."""

from __future__ import annotations

from inspect import getdoc
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rtl_core.config.episode import Bounds
from rtl_core.config.learning import CurriculumSection, HealthSection, LearningSection
from rtl_core.config.reward import RewardSection
from rtl_core.config.tinker import TinkerSection
from rtl_core.prompting.chat import Chat
from rtl_core.types.tokenizer import Tokenizer
from rtl_grader.problems.problem_set import SplitBy
from rtl_grader.problems.sources import Source
from rtl_grader.prompts import TEMPLATES
from rtl_grader.settings import GradingSection
from rtl_grader.types.section import Section

Rule = tuple[str, bool, str]
"""Key to change, whether it is wrong, and why."""


class RunSection(Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Name of the run. Running the same name again resumes it where it stopped."""
    purpose: Literal["train", "evaluation"] = "train"
    """`evaluation`: the student is evaluated on all problems of the sources and never trained (`rtl-distill
    evaluate --model`)."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Seed for splits, order, sampling (if the service supports it) and LoRA initialisation."""
    epochs: int = Field(default=2, ge=1)
    """Number of passes over the training problems."""
    directory: Path = Path("runs")
    """Parent folder of the run's files: its report and, with the embedded service, its weights are in
    `<directory>/<name>/`."""
    history: Path = Path("runs/history.duckdb")
    """DuckDB file of the history. Several runs may share one."""

    @property
    def folder(self) -> Path:
        """Folder of the run's report, lock and, with the embedded service, weights."""
        return self.directory / self.name


class ProblemsSection(Section):
    sources: tuple[Source, ...] = Field(min_length=1)
    """Problem sets of the run, one `[[problems.sources]]` table each."""
    split: SplitBy = "design"
    """Unit of the split into training and held-out problems, for sets read from files. `design`: keep all
    problems of one design together, such as CVDP's of one IP, those sharing an RTL module, and
    near-duplicates by text, golden answer or code. `id`: split single problems, as releases before this key
    did; runs that they began continue so unless the configuration sets the key."""
    validation_mutants: int = Field(default=2, ge=0)
    """Number of mutants of the golden answer that must fail before a problem is trained on. 0: skip this check."""
    validate_first: bool = False
    """Validate all problems before sampling starts, so that the plan counts only fit ones. Off: validate
    each problem before its first use and replace an unfit one by its neighbour in the curriculum."""
    weak_ceiling: float = Field(default=0.0, ge=0)
    """Maximum reward for problems whose harness is weak, that is, also passes wrong designs. 0: do not
    train on them. A value below the reward of a pass limits the influence of weak harnesses. Held-out
    problems are never weak."""
    require_golden: bool = True
    """Train only on problems whose golden answer passes. Off: also train on problems without one (most of
    public CVDP)."""


Template = Annotated[str, AfterValidator(TEMPLATES.require)]
"""Name of a prompt template."""


class PromptingSection(Section):
    template: Template = Field(
        default="exact",
        description=" ".join(
            f"`{name}`: {getdoc(template)}" for name, template in TEMPLATES.entries.items()
        )
        + " `module:function`: your own template.",
    )
    max_prompt_tokens: int = Field(default=8192, ge=32)
    """Token budget of a prompt. Context files are truncated, then dropped, to meet it
    (prompting/budget.py), never silently."""
    thinking: bool | None = None
    """Whether the model thinks before it answers. Default: that of its chat template (Qwen3.5 and Qwen3.6
    think, DeepSeek-V3.1 does not; see docs/models.md). Thoughts count towards `sampling.max_tokens`. A
    response truncated while thinking has no answer."""
    reasoning_effort: str | None = Field(default=None, pattern=r"^[a-z]+$")
    """Reasoning effort, for chat templates that support it (gpt-oss: `low`, `medium`, `high`). Default: the
    template's."""

    def chat(self, tokenizer: Tokenizer, model: str) -> Chat:
        """Return the chat of a model with these settings. Raises ConfigError if its template does not support them."""
        return Chat(
            tokenizer, thinking=self.thinking, reasoning_effort=self.reasoning_effort, model=model
        )


class SamplingSection(Section):
    group_size: int = Field(default=4, ge=1)
    """Rollouts per problem and step."""
    max_tokens: int = Field(default=4096, ge=1)
    """Maximum length of a completion, in tokens."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature in training, and in evaluations unless `evaluation.temperature` is set. The KL
    is correct only at 1."""
    seeded: bool = False
    """Sample each rollout with its own seed (one request per rollout), which makes runs reproducible if the
    service honours seeds."""


class EvaluationSection(Section):
    samples: int = Field(default=4, ge=1)
    """Answers sampled per held-out problem."""
    k: tuple[int, ...] = Field(default=(1, 4), min_length=1)
    """Values of k for pass@k."""
    temperature: float | None = Field(default=None, gt=0)
    """Sampling temperature in evaluations. Default: `sampling.temperature`. Below 1 the model makes fewer
    random errors than in training."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling in evaluations: draw from the smallest set of likeliest tokens with this total
    probability. Training uses 1."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum length of a completion in evaluations, in tokens. Default: `sampling.max_tokens`."""
    weights: str | None = Field(default=None, pattern=r"^tinker://.+")
    """With `run.purpose = evaluation`: saved weights to sample from instead of the base model `tinker.student`."""
    endpoint: str | None = Field(default=None, pattern=r"^https?://.+")
    """With `run.purpose = evaluation`: OpenAI-compatible endpoint that serves `tinker.student`, such as
    `http://localhost:8000/v1`."""
    agentic: bool = False
    """With `run.purpose = evaluation`: after single-shot answers also run episodes, in which the model
    works with tools (`[episode]`)."""
    at_once: int = Field(default=8, ge=1)
    """With `endpoint`, `agentic` or `learning.episodes`: number of concurrent conversations, also in
    training. Their programs share the cores."""
    every: int = Field(default=0, ge=0)
    """Evaluate every n steps, in addition to before and after training. 0: only before and after."""
    after_warm_start: bool = False
    """Also evaluate after the warm start, to separate its effect from that of the later steps."""
    teacher: bool = True
    """Also evaluate the teacher once, for comparison."""


class BackendSection(Section):
    name: str = "tinker"
    """Backend that trains and samples: `tinker` (Tinker's cloud or the embedded service), or `module:name` for your own
    (rtl_core/backend/base.py). The models are always those of `[tinker]`."""
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Settings for your own backend."""


class CheckpointsSection(Section):
    keep_last: int = Field(default=3, ge=1)
    """Number of latest steps whose weights are kept on the service."""
    keep_best: int = Field(default=1, ge=0)
    """Number of steps with the best held-out pass@1 whose weights are kept. pass@1 is the mean over the
    held-out problems of all sources."""
    keep_every: int = Field(default=0, ge=0)
    """Also keep the weights of every n-th step. 0: none."""
    ttl_days: float | None = Field(default=90.0, ge=1, le=3650)
    """Days until saved weights expire on the service. The final weights of a finished run never expire."""

    @property
    def ttl_s(self) -> int | None:
        """`ttl_days` in seconds, as the service expects it."""
        return None if self.ttl_days is None else int(self.ttl_days * 86400)


class CostSection(Section):
    prices: Path | None = None
    """Your own price list. Default: the dated list in the package."""
    budget_usd: float | None = Field(default=None, gt=0)
    """Save everything and stop before a step that would raise the run's total cost above this, in US
    dollars. A step is assumed to cost as much as those before it."""
    budget_hours: float | None = Field(default=None, gt=0)
    """Save everything and stop after this many hours. The same command resumes the run with a new budget of
    as many hours."""


class TrackingSection(Section):
    wandb_project: str | None = Field(default=None, min_length=1)
    """Also send every step's metrics to this project of Weights & Biases (extra `wandb`), which reads the
    environment variables WANDB_API_KEY, WANDB_ENTITY and WANDB_MODE."""


class RunConfig(Section):
    """Complete configuration of one run."""

    run: RunSection
    problems: ProblemsSection
    tinker: TinkerSection
    backend: BackendSection = BackendSection()
    prompting: PromptingSection = PromptingSection()
    sampling: SamplingSection = SamplingSection()
    grading: GradingSection = GradingSection()
    reward: RewardSection = RewardSection()
    learning: LearningSection = LearningSection()
    curriculum: CurriculumSection = CurriculumSection()
    episode: Bounds = Bounds()
    health: HealthSection = HealthSection()
    evaluation: EvaluationSection = EvaluationSection()
    checkpoints: CheckpointsSection = CheckpointsSection()
    cost: CostSection = CostSection()
    tracking: TrackingSection = TrackingSection()

    @property
    def longest_answer(self) -> int:
        """Maximum tokens of an answer, in training and evaluations."""
        return max(self.sampling.max_tokens, self.evaluation.max_tokens or 0)

    @property
    def trained_limit(self) -> int:
        """Maximum tokens that the student may write in one rollout of a train step."""
        return self._limit(self.sampling.max_tokens)

    def _limit(self, turn: int) -> int:
        """Maximum tokens of a rollout with at most `turn` tokens per turn."""
        return (
            min(self.episode.tokens, self.episode.most_turns * turn)
            if self.learning.episodes
            else turn
        )

    @property
    def limit_key(self) -> str:
        """Key that sets `trained_limit`."""
        return "episode.tokens" if self.learning.episodes else "sampling.max_tokens"

    @property
    def evaluated_limit(self) -> int:
        """Maximum tokens that the student may write in one rollout of an evaluation."""
        return self._limit(self.evaluation.max_tokens or self.sampling.max_tokens)

    @property
    def warm_start_group(self) -> int:
        """Number of teacher answers per problem of a supervised step."""
        return self.learning.warm_start_answers or self.sampling.group_size

    def problems_of_step(self, step: int) -> int:
        """Number of problems of step `step` (from 0)."""
        learning = self.learning
        supervised = learning.warm_start_problems if step < learning.warm_start_steps else None
        return supervised or self.curriculum.problems_per_step

    def step_sizes(self, problems: int, first: int) -> list[int]:
        """Number of problems of each step of an epoch over `problems` that begins with step `first`. The
        last step may have fewer."""
        sizes: list[int] = []
        while (left := problems - sum(sizes)) > 0:
            sizes.append(min(self.problems_of_step(first + len(sizes)), left))
        return sizes

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        """Check combinations of keys. Each message starts with the key to change."""
        rules = [*self._learning_rules(), *self._loss_rules()]
        if self.learning.asked_choices:
            rules += self._distribution_rules()
        if self.learning.episodes:
            rules += self._episode_rules()
        rules += self._evaluation_rules()
        if self.grading.until != "tests":
            rules += self._early_stage_rules()
        for key, wrong, why in rules:
            if wrong:
                raise ValueError(f"{key}: {why}")
        return self

    def _learning_rules(self) -> list[Rule]:
        learning, tinker = self.learning, self.tinker
        rank, below = tinker.lora_rank, 1 << (tinker.lora_rank.bit_length() - 1)
        in_cloud = self.backend.name == "tinker" and tinker.base_url is None
        return [
            (
                "learning.kl_weight",
                (learning.self_taught or learning.asked_choices > 0) and not learning.uses_kl,
                f"{learning.algorithm} without a KL is grpo; raise the weight or change learning.algorithm",
            ),
            (
                "tinker.teacher",
                learning.uses_kl and not learning.self_taught and tinker.teacher is None,
                "a KL weight above 0 needs a teacher; name one, set learning.algorithm = "
                '"self_distillation", or set learning.kl_weight = 0 and, with a schedule, '
                "learning.final_kl_weight = 0",
            ),
            (
                "tinker.teacher",
                bool(tinker.teachers) and tinker.teacher is None,
                "name a teacher for the problems whose source is not in tinker.teachers",
            ),
            (
                "tinker.lora_rank",
                in_cloud and rank != below,
                f"Tinker's service trains only ranks that are powers of two, not {rank}; take {below} or {2 * below}",
            ),
            (
                "learning.kl_weight",
                not learning.uses_kl and learning.reward_weight == 0,
                "both weights are 0, so nothing would be learnt; raise one of them",
            ),
            (
                "sampling.group_size",
                not learning.uses_kl and self.sampling.group_size == 1,
                "without a KL a group of one rollout has no advantage; use at least 2",
            ),
            (
                "sampling.temperature",
                learning.uses_kl and self.sampling.temperature != 1.0,
                "the KL to the teacher is correct only at temperature 1",
            ),
            (
                "tinker.teacher",
                learning.imitates_teacher and tinker.teacher is None,
                "a warm start on the teacher's answers needs a teacher; name one or use golden",
            ),
            (
                "learning.permute_results",
                learning.permute_results and not learning.episodes,
                "needs episodes; set learning.episodes = true",
            ),
        ]

    def _loss_rules(self) -> list[Rule]:
        learning, (lowest, highest) = self.learning, self.learning.kl_weight_bounds
        unknown = ", ".join(sorted(set(learning.loss_parameters) - set(learning.loss_settings)))
        known = ", ".join(learning.loss_settings) or "none"
        return [
            (
                "learning.kl_target",
                learning.kl_schedule == "target"
                and (learning.kl_target is None or learning.kl_weight == 0),
                "the target schedule needs a kl_target and an initial kl_weight above 0",
            ),
            ("learning.kl_weight_bounds", not 0 < lowest <= highest, "needs 0 < lowest <= highest"),
            (
                "learning.loss_parameters",
                bool(unknown),
                f"{learning.loss} has no parameter {unknown} (has: {known})",
            ),
            (
                "learning.overlong_buffer",
                learning.overlong_buffer > self.trained_limit,
                f"must not exceed {self.limit_key}",
            ),
        ]

    def _distribution_rules(self) -> list[Rule]:
        """Settings that are meaningful only for the sampled token."""
        learning, no = self.learning, f"not with {self.learning.algorithm}:"
        return [
            (
                "learning.loss",
                learning.loss != "importance_sampling",
                f"{no} it trains with cross entropy; set importance_sampling",
            ),
            (
                "learning.kl_discount",
                learning.kl_discount > 0,
                f"{no} each position uses only its own divergence; set 0",
            ),
            (
                "learning.kl_clamp",
                learning.kl_clamp is not None and learning.divergence != "reverse",
                f"{no} only the reverse KL supports it",
            ),
            (
                "learning.permute_advantages",
                learning.permute_advantages,
                f"{no} use permute_teacher",
            ),
        ]

    def _episode_rules(self) -> list[Rule]:
        """Settings that are meaningful only for single-turn answers."""
        learning, no, without_tools = (
            self.learning,
            "not with episodes:",
            self.episode.whole_answers,
        )
        return [
            (
                "learning.episodes",
                self.run.purpose == "evaluation",
                f"{no} nothing is trained; set evaluation.agentic",
            ),
            (
                "episode.tools",
                without_tools and self.episode.attempts == 1,
                f"{no} without tools and further attempts an answer is single-shot; set learning.episodes = false",
            ),
            (
                "learning.permute_results",
                without_tools and learning.permute_results,
                f"{no} without tools there are no results",
            ),
            (
                "learning.warm_start_steps",
                learning.warm_start_steps > 0,
                f"{no} known-good answers are not conversations; set 0",
            ),
            (
                "learning.algorithm",
                learning.self_taught,
                f"{no} its hints are in the prompt of a single turn; use grpo",
            ),
            (
                "learning.kl_after_error",
                learning.kl_after_error,
                f"{no} it compares single-turn answers; set false",
            ),
            (
                "learning.permute_teacher",
                learning.permute_teacher,
                f"{no} use permute_advantages or permute_results",
            ),
        ]

    def _evaluation_rules(self) -> list[Rule]:
        evaluation, trains = self.evaluation, self.run.purpose == "train"
        budget = self.cost.budget_usd is not None or self.cost.budget_hours is not None
        return [
            (
                "cost.budget_usd",
                budget and not trains,
                "a budget stops a run between its train steps, and an evaluation has none; remove "
                "it, or evaluate fewer problems or samples",
            ),
            (
                "evaluation.endpoint",
                trains and evaluation.endpoint is not None,
                "a training run evaluates on its own service; remove it",
            ),
            (
                "evaluation.agentic",
                trains and evaluation.agentic,
                "a training run evaluates what it trains; for episodes set learning.episodes",
            ),
            (
                "evaluation.weights",
                trains and evaluation.weights is not None,
                "a training run evaluates the weights that it trains; remove it",
            ),
            (
                "evaluation.teacher",
                evaluation.teacher and self.tinker.teacher is None,
                "there is no teacher to evaluate; set tinker.teacher, or set this to false",
            ),
            (
                "evaluation.k",
                min(evaluation.k) < 1 or max(evaluation.k) > evaluation.samples,
                "pass@k needs 1 <= k <= evaluation.samples",
            ),
            (
                "checkpoints.keep_last",
                self.checkpoints.keep_last <= self.learning.staleness,
                "must exceed learning.staleness, because these weights are still sampled from",
            ),
            (
                "curriculum.hard_below",
                self.curriculum.hard_below > self.curriculum.easy_from,
                "must not exceed easy_from",
            ),
        ]

    def _early_stage_rules(self) -> list[Rule]:
        """Settings that need the tests, for training that does not run them."""
        stages = ("format", "interface", "syntax", "tests")
        graded = stages[: stages.index(self.grading.until) + 1]
        unrewarded = self.learning.reward_weight > 0 and not any(
            self.reward.weights.get(stage) for stage in graded
        )
        return [
            (
                "grading.until",
                unrewarded,
                f"none of the graded stages has a reward weight: {', '.join(graded)}",
            ),
            (
                "grading.until",
                self.curriculum.order == "pools",
                'pools use pass rates, which need "tests"; choose another curriculum.order',
            ),
            (
                "grading.until",
                self.episode.attempts > 1,
                'further attempts (episode.attempts) need "tests"',
            ),
        ]
