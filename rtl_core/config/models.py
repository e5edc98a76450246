"""The configuration of a run: one TOML file, validated before the run starts. Every field has a docstring."""

from __future__ import annotations

from contextlib import suppress
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    model_validator,
)

from rtl_core.config.episode import Bounds
from rtl_core.config.learning import CurriculumSection, HealthSection, LearningSection
from rtl_core.config.reward import RewardSection
from rtl_core.config.rules import rules_of
from rtl_core.config.tinker import TinkerSection
from rtl_core.config.url import EndpointUrl
from rtl_core.errors import ConfigError
from rtl_core.prompting.chat import Chat
from rtl_core.starter.source import (
    StarterSource as StarterSource,  # registered, also without metadata of the package
)
from rtl_core.types.numbers import Count, Share
from rtl_core.types.rollout import Kind
from rtl_core.types.tokenizer import Tokenizer
from rtl_grader.problems.problem_set import SplitBy
from rtl_grader.problems.sources import Source
from rtl_grader.prompts import TEMPLATES
from rtl_grader.settings import GradingSection
from rtl_grader.types.section import Section


class RunSection(Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Name of the run. Running the same name again resumes it where it stopped."""
    purpose: Literal["train", "evaluation"] = "train"
    """`evaluation`: the student is evaluated on all problems of the sources and never trained (`rtl-distill
    evaluate --model`)."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Seed for splits, order, sampling (if the service supports it) and LoRA initialisation."""
    epochs: Count = 2
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
    exclude: tuple[Source, ...] = ()
    """Evaluation sets, one `[[problems.exclude]]` table each: problems of the run that are near-duplicates of one of
    theirs are left out."""
    split: SplitBy = "design"
    """Unit of the split into training and held-out problems, for sets read from files. `design`: keep all
    problems of one design together, such as CVDP's of one IP, those sharing an RTL module, and
    near-duplicates by text, golden answer or code. `id`: split single problems, as releases before this key
    did; runs that they began continue so unless the configuration sets the key."""
    validation_mutants: NonNegativeInt = 2
    """Number of mutants of the golden answer that must fail before a problem is trained on. 0: skip this check."""
    validate_first: bool = False
    """Validate all problems before sampling starts, so that the plan counts only fit ones. Off: validate
    each problem before its first use and replace an unfit one by its neighbour in the curriculum."""
    weak_ceiling: NonNegativeFloat = 0.0
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

    def chat_of_teacher(self, tokenizer: Tokenizer, model: str) -> Chat:
        """Return the chat of a teacher: as `chat`, without the settings that only the student's template supports."""
        kept: dict[str, Any] = {}
        for name in ("thinking", "reasoning_effort"):
            setting = {name: getattr(self, name)}
            with suppress(ConfigError):
                Chat(tokenizer, model=model, **setting)
                kept |= setting
        return Chat(tokenizer, model=model, **kept)

    def chat(self, tokenizer: Tokenizer, model: str) -> Chat:
        """Return the chat of a model with these settings. Raises ConfigError if its template does not support them."""
        return Chat(
            tokenizer,
            thinking=self.thinking,
            reasoning_effort=self.reasoning_effort,
            model=model,
        )


class SamplingSection(Section):
    group_size: Count = 4
    """Rollouts per problem and step."""
    max_tokens: Count = 4096
    """Maximum length of a completion, in tokens."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature in training, and in evaluations unless `evaluation.temperature` is set. The KL
    is correct only at 1."""
    seeded: bool = False
    """Sample each rollout with its own seed (one request per rollout), which makes runs reproducible if the
    service honours seeds."""


class EvaluationSection(Section):
    samples: Count = 4
    """Answers sampled per held-out problem."""
    k: tuple[int, ...] = Field(default=(1, 4), min_length=1)
    """Values of k for pass@k."""
    temperature: NonNegativeFloat | None = None
    """Sampling temperature in evaluations; 0: the likeliest answer. Default: `sampling.temperature`. Below 1
    the model makes fewer random errors than in training."""
    top_p: Share = 1.0
    """Nucleus sampling in evaluations: draw from the smallest set of likeliest tokens with this total
    probability. Training uses 1."""
    max_tokens: Count | None = None
    """Maximum length of a completion in evaluations, in tokens. Default: `sampling.max_tokens`."""
    weights: str | None = Field(default=None, pattern=r"^tinker://.+")
    """With `run.purpose = evaluation`: saved weights to sample from instead of the base model `tinker.student`."""
    endpoint: EndpointUrl | None = None
    """With `run.purpose = evaluation`: OpenAI-compatible endpoint that serves `tinker.student`, such as
    `http://localhost:8000/v1`."""
    agentic: bool = False
    """With `run.purpose = evaluation`: after single-shot answers also run episodes, in which the model
    works with tools (`[episode]`)."""
    at_once: Count = 8
    """With an endpoint, `agentic` or `learning.episodes`: number of concurrent conversations, also in
    training. Their programs share the cores."""
    every: NonNegativeInt = 0
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
    keep_last: Count = 3
    """Number of latest steps whose weights are kept on the service."""
    keep_best: NonNegativeInt = 1
    """Number of steps with the best held-out pass@1 whose weights are kept. pass@1 is the mean over the
    held-out problems of all sources."""
    keep_every: NonNegativeInt = 0
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
    budget_usd: PositiveFloat | None = None
    """Save everything and stop before a step that would raise the run's total cost above this, in US
    dollars. A step is assumed to cost as much as those before it."""
    budget_hours: PositiveFloat | None = None
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
    def kind(self) -> Kind:
        """What kind of figure the run's own evaluations give."""
        return self.episode.kind if self.learning.episodes else "single attempt"

    @property
    def trained_limit(self) -> int:
        """Maximum tokens that the student may write in one rollout of a train step."""
        return self._limit(self.sampling.max_tokens)

    def _limit(self, turn: int) -> int:
        """Maximum tokens of a rollout with at most `turn` tokens per turn."""
        if not self.learning.episodes:
            return turn
        return min(self.episode.tokens, self.episode.most_turns * turn)

    @property
    def limit_key(self) -> str:
        """Key that sets `trained_limit`."""
        return "episode.tokens" if self.learning.episodes else "sampling.max_tokens"

    @property
    def evaluated_limit(self) -> int:
        """Maximum tokens that the student may write in one rollout of an evaluation."""
        return self._limit(self.evaluation.max_tokens or self.sampling.max_tokens)

    @property
    def uses_default_service(self) -> bool:
        """Whether a model is at the SDK's default: Tinker's cloud unless TINKER_BASE_URL is set."""
        tinker = self.tinker
        return self.backend.name == "tinker" and (
            tinker.base_url is None or tinker.teacher_base_url == "cloud"
        )

    @property
    def is_free(self) -> bool:
        """Whether no model of the run can cost dollars."""
        return self.tinker.all_local and not self.learning.imitates_endpoint

    @property
    def endpoint_limit(self) -> int:
        """Maximum tokens of an answer of `learning.warm_start_model`."""
        return self.learning.warm_start_max_tokens or self.sampling.max_tokens

    @property
    def warm_start_group(self) -> int:
        """Number of answers per problem of a supervised step, of the teacher or the endpoint."""
        return self.learning.warm_start_answers or self.sampling.group_size

    def but(self, section: str, **changes: Any) -> RunConfig:
        """Return the configuration with other values of some keys of a section, which are not checked."""
        changed = getattr(self, section).model_copy(update=changes)
        return self.model_copy(update={section: changed})

    def evaluates_after(self, step: int) -> bool:
        """Whether an intermediate evaluation is due after `step` train steps."""
        section = self.evaluation
        warm = section.after_warm_start and step == self.learning.warm_start_steps
        regular = section.every > 0 and step % section.every == 0
        return step > 0 and (warm or regular)

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
        for key, broken, why in rules_of(self):
            if broken:
                raise ValueError(f"{key}: {why}")
        return self
