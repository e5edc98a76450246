"""The configuration of a run: one TOML file, checked before anything starts. Every field says what it is for."""

from __future__ import annotations

from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from rtl_core.config.episode import Bounds
from rtl_core.config.grading import GradingSection, RewardSection
from rtl_core.config.learning import CurriculumSection, HealthSection, LearningSection
from rtl_core.config.tinker import TinkerSection
from rtl_core.problems.problem_set import SplitBy
from rtl_core.problems.sources import Source
from rtl_core.prompting.chat import Chat
from rtl_core.prompting.templates import TEMPLATES
from rtl_core.types.section import Section
from rtl_core.types.tokenizer import Tokenizer


class RunSection(Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Name of the run. Running the same name again resumes it where it stopped."""
    purpose: Literal["train", "evaluation"] = "train"
    """`evaluation`: the student is evaluated on all problems of the sources and never trained (`rtl-distill evaluate --model`)."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Seed of everything that is random and ours: splits, order, sampling (where the service allows it), LoRA start."""
    epochs: int = Field(default=2, ge=1)
    """How often the training problems are gone through."""
    directory: Path = Path("runs")
    """Where the run keeps its report and, with the embedded service, its weights (`<directory>/<name>/`)."""
    history: Path = Path("runs/history.duckdb")
    """The DuckDB file of the history; several runs share one."""

    @property
    def folder(self) -> Path:
        """Where the run keeps its report, its lock and, with the embedded service, its weights."""
        return self.directory / self.name


class ProblemsSection(Section):
    sources: tuple[Source, ...] = Field(min_length=1)
    """The problem sets of the run, one `[[problems.sources]]` table each."""
    split: SplitBy = "design"
    """What stands on one side of the split as a whole, in sets that are read from files. `design`: all problems of one design, such as
    CVDP's of one IP or those that share an RTL module; near-duplicates are judged by text, golden answer and code. `id`: each problem
    alone, as releases before this key did it; what they began goes on so where the configuration does not name the key."""
    validation_mutants: int = Field(default=2, ge=0)
    """How many mutants of each golden answer must fail before a problem trains (0: skip that check)."""
    validate_first: bool = False
    """Validate all problems before anything is sampled, so that the plan knows which are fit. Off: each problem before it is first used; one
    that turns out unfit gives its place in a step to its neighbour in the curriculum."""
    weak_ceiling: float = Field(default=0.0, ge=0)
    """The most that an answer to a weak training problem may earn, whose harness also pays wrong designs. 0: such problems do not train.
    Below the reward of a pass it keeps what a weak harness pays from outweighing the others. Held-out problems are never weak."""
    require_golden: bool = True
    """Train only on problems whose golden answer passes. Off: problems without one may train too (most of public CVDP)."""


Template = Annotated[str, AfterValidator(TEMPLATES.known)]
"""Name of a prompt template."""


class PromptingSection(Section):
    template: Template = Field(
        default="exact",
        description=" ".join(f"`{name}`: {getdoc(template)}" for name, template in TEMPLATES.entries.items())
        + " `module:function`: one of your own.",
    )
    max_prompt_tokens: int = Field(default=8192, ge=32)
    """Token budget of a prompt. Context files are cut, then dropped, to meet it (see prompting/budget.py), never silently."""
    thinking: bool | None = None
    """Whether the model thinks before it answers. Left out: what its chat template does by itself (Qwen3.5 and Qwen3.6 think, DeepSeek-V3.1
    does not; docs/models.md has a table). Thoughts count among `sampling.max_tokens`; an answer cut off within them is none."""
    reasoning_effort: str | None = Field(default=None, pattern=r"^[a-z]+$")
    """How long the model thinks, for templates that take it (gpt-oss: `low`, `medium`, `high`). Left out: the template's own."""

    def chat(self, tokenizer: Tokenizer, model: str) -> Chat:
        """The chat of a model as it is set here. Raises ConfigError when its template cannot do that."""
        return Chat(tokenizer, thinking=self.thinking, reasoning_effort=self.reasoning_effort, model=model)


class SamplingSection(Section):
    group_size: int = Field(default=4, ge=1)
    """Rollouts per problem and step."""
    max_tokens: int = Field(default=4096, ge=1)
    """Longest completion, in tokens."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of training, and of evaluation unless `evaluation.temperature` says otherwise. The KL is only right at 1."""
    seeded: bool = False
    """Give each rollout a seed of its own (one request per rollout), so that a run can be repeated on a service that honours seeds."""


class EvaluationSection(Section):
    samples: int = Field(default=4, ge=1)
    """Answers sampled per held-out problem."""
    k: tuple[int, ...] = Field(default=(1, 4), min_length=1)
    """The k of pass@k."""
    temperature: float | None = Field(default=None, gt=0)
    """Sampling temperature of evaluations; left out: that of training. Below 1 a model slips less often than in training."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Evaluations draw each token from the fewest likeliest ones whose probabilities sum to this; training always from all (1)."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest completion of an evaluation, in tokens; left out: `sampling.max_tokens`."""
    weights: str | None = Field(default=None, pattern=r"^tinker://.+")
    """Of a run whose purpose is evaluation: saved weights to sample from in place of `tinker.student`'s own."""
    endpoint: str | None = Field(default=None, pattern=r"^https?://.+")
    """Of a run whose purpose is evaluation: an OpenAI-compatible endpoint (`http://localhost:8000/v1`) at which `tinker.student` answers."""
    agentic: bool = False
    """Of a run whose purpose is evaluation: after single-shot answers also episodes, in which the model works with tools (`[episode]`)."""
    at_once: int = Field(default=8, ge=1)
    """With `endpoint`, `agentic` or `learning.episodes`: how many conversations at once, in training, too. Their programs share the cores."""
    every: int = Field(default=0, ge=0)
    """Evaluate every so many steps as well as before and after; 0 for only those."""
    after_warm_start: bool = False
    """Evaluate after the warm start as well, so that the table tells what came after it apart."""
    teacher: bool = True
    """Evaluate the teacher too, once, for comparison."""


class BackendSection(Section):
    name: str = "tinker"
    """What trains and samples: `tinker` (its cloud, or the embedded service), or `module:name` of one of your own
    (rtl_core/backend/base.py). The models are those of `[tinker]` in any case."""
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Settings that a backend of your own reads."""


class CheckpointsSection(Section):
    keep_last: int = Field(default=3, ge=1)
    """How many of the newest steps keep their weights on the service."""
    keep_best: int = Field(default=1, ge=0)
    """How many of the steps with the best held-out pass@1 keep theirs. What decides is the mean over all held-out problems, of all
    sources together."""
    keep_every: int = Field(default=0, ge=0)
    """Keep the weights of every n-th step as well; 0 for none."""
    ttl_days: float | None = Field(default=90.0, ge=1, le=3650)
    """When weights expire on the service, in days after they were saved. Those of a finished run's end never do."""

    @property
    def ttl_s(self) -> int | None:
        """The same in seconds, as the service takes it."""
        return None if self.ttl_days is None else int(self.ttl_days * 86400)


class CostSection(Section):
    prices: Path | None = None
    """A price list of your own; left out, the dated one that comes with the package."""
    budget_usd: float | None = Field(default=None, gt=0)
    """Stop, with everything saved, before the step that would make the whole run dearer than this, in US dollars. A step is taken to
    cost what those before it did."""
    budget_hours: float | None = Field(default=None, gt=0)
    """Stop, with everything saved, after so many hours; the same command goes on with as many again."""


class TrackingSection(Section):
    wandb_project: str | None = Field(default=None, min_length=1)
    """Also send every step's metrics to this project of Weights & Biases (extra `wandb`); its own variables say to whom and
    how: WANDB_API_KEY, WANDB_ENTITY, WANDB_MODE=offline."""


class RunConfig(Section):
    """One run, whole."""

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
        """Tokens of the longest answer that is sampled, in training or in an evaluation."""
        return max(self.sampling.max_tokens, self.evaluation.max_tokens or 0)

    @property
    def trained_limit(self) -> int:
        """Tokens that the student may write in one rollout of a train step."""
        return self._limit(self.sampling.max_tokens)

    def _limit(self, turn: int) -> int:
        """Tokens of an answer whose turns have at most `turn`."""
        return min(self.episode.tokens, self.episode.most_turns * turn) if self.learning.episodes else turn

    @property
    def limit_key(self) -> str:
        """The key that sets it."""
        return "episode.tokens" if self.learning.episodes else "sampling.max_tokens"

    @property
    def evaluated_limit(self) -> int:
        """The same in an evaluation."""
        return self._limit(self.evaluation.max_tokens or self.sampling.max_tokens)

    @property
    def warm_start_group(self) -> int:
        """Answers of the teacher to each problem of a supervised step."""
        return self.learning.warm_start_answers or self.sampling.group_size

    def problems_of_step(self, step: int) -> int:
        """How many problems step `step` (from 0) asks for."""
        learning = self.learning
        supervised = learning.warm_start_problems if step < learning.warm_start_steps else None
        return supervised or self.curriculum.problems_per_step

    def step_sizes(self, problems: int, first: int) -> list[int]:
        """How many problems each step of an epoch over `problems` has, if the epoch begins with step `first`; the last may have fewer."""
        sizes: list[int] = []
        while (left := problems - sum(sizes)) > 0:
            sizes.append(min(self.problems_of_step(first + len(sizes)), left))
        return sizes

    @model_validator(mode="before")
    @classmethod
    def _of_an_earlier_version(cls, data: Any) -> Any:
        """The section `refinement` of earlier versions is left out where it asks for no further turn; the bound on the grader's words stays."""
        if not isinstance(data, dict) or not isinstance(before := data.get("refinement"), dict):
            return data
        if before.get("turns", 1) != 1:
            raise ValueError(
                "refinement.turns: further turns are episodes without tools: in place of this section set learning.episodes = true,"
                f" episode.tools = [] and episode.attempts = {before['turns']}"
            )
        kept = {key: before[key] for key in ("feedback_chars",) if key in before}
        return {**{k: v for k, v in data.items() if k != "refinement"}, "episode": {**kept, **data.get("episode", {})}}

    @model_validator(mode="after")
    def _learning_fits(self) -> RunConfig:
        """Combinations with `learning` that each field alone cannot see; each message starts with the key to change."""
        learning, sampling = self.learning, self.sampling
        if (learning.self_taught or learning.asked_choices) and not learning.uses_kl:
            raise ValueError(
                f"learning.kl_weight: {learning.algorithm} without a KL is grpo; raise it, or change learning.algorithm"
            )
        if learning.asked_choices:
            self._check_distributions()
        if learning.uses_kl and not learning.self_taught and self.tinker.teacher is None:
            raise ValueError(
                'tinker.teacher: a KL weight above 0 needs a teacher; name one, set learning.algorithm = "self_distillation", or set learning.kl_weight = 0 and, with a schedule,'
                " learning.final_kl_weight = 0"
            )
        if self.tinker.teachers and self.tinker.teacher is None:
            raise ValueError("tinker.teacher: name the teacher of the problems whose source is not in tinker.teachers")
        rank = self.tinker.lora_rank
        if self.backend.name == "tinker" and self.tinker.base_url is None and rank & (rank - 1):
            below = 1 << (rank.bit_length() - 1)
            raise ValueError(
                f"tinker.lora_rank: Tinker's service trains ranks that are powers of two, not {rank}; take {below} or {2 * below}"
            )
        if not learning.uses_kl and learning.reward_weight == 0:
            raise ValueError("learning.kl_weight: both weights are 0, so nothing would be learnt; raise one of them")
        if not learning.uses_kl and sampling.group_size == 1:
            raise ValueError("sampling.group_size: one rollout a group has no advantage without a KL; use at least 2")
        if learning.uses_kl and sampling.temperature != 1.0:
            raise ValueError("sampling.temperature: the KL to the teacher is only right at temperature 1")
        if learning.kl_schedule == "target" and (learning.kl_target is None or learning.kl_weight == 0):
            raise ValueError("learning.kl_target: to hold a target KL give it, and a kl_weight above 0 to start from")
        if learning.kl_weight_bounds[0] <= 0 or learning.kl_weight_bounds[0] > learning.kl_weight_bounds[1]:
            raise ValueError("learning.kl_weight_bounds: needs 0 < lowest <= highest")
        if unknown := sorted(set(learning.loss_parameters) - set(learning.loss_settings)):
            known = ", ".join(learning.loss_settings) or "none"
            raise ValueError(
                f"learning.loss_parameters: {learning.loss} has no parameter {', '.join(unknown)} (has: {known})"
            )
        if learning.imitates_teacher and self.tinker.teacher is None:
            raise ValueError(
                "tinker.teacher: a warm start on the teacher's answers needs a teacher; name one or use golden"
            )
        if learning.overlong_buffer > self.trained_limit:
            raise ValueError(f"learning.overlong_buffer: is longer than {self.limit_key}")
        if learning.episodes:
            self._check_episodes()
        elif learning.permute_results:
            raise ValueError("learning.permute_results: is for episodes; set learning.episodes = true")
        return self

    def _check_episodes(self) -> None:
        """What has a meaning for answers of one turn alone."""
        learning = self.learning
        for key, wrong, why in (
            ("learning.episodes", self.run.purpose == "evaluation", "nothing is trained; set evaluation.agentic"),
            ("episode.tools", self.episode.whole_answers and self.episode.attempts == 1, "with neither tools nor a second attempt an answer is single-shot: set learning.episodes = false"),
            ("learning.permute_results", self.episode.whole_answers and learning.permute_results, "there are none without tools"),
            ("learning.warm_start_steps", learning.warm_start_steps > 0, "known-good answers are no conversations; set 0"),
            ("learning.algorithm", learning.self_taught, "its hints stand in the prompt of a single turn; take grpo"),
            ("learning.kl_after_error", learning.kl_after_error, "it compares answers of one turn; set false"),
            ("learning.permute_teacher", learning.permute_teacher, "take permute_advantages or permute_results"),
        ):  # fmt: skip
            if wrong:
                raise ValueError(f"{key}: not with episodes: {why}")

    def _check_distributions(self) -> None:
        """What has a meaning for the sampled token alone."""
        learning = self.learning
        for key, wrong, why in (
            ("loss", learning.loss != "importance_sampling", "it is sent as a cross entropy; set importance_sampling"),
            ("kl_discount", learning.kl_discount > 0, "each position has its own divergence alone; set 0"),
            ("kl_clamp", learning.kl_clamp is not None and learning.divergence != "reverse", "only the reverse KL has it"),
            ("permute_advantages", learning.permute_advantages, "take permute_teacher"),
        ):  # fmt: skip
            if wrong:
                raise ValueError(f"learning.{key}: not with {learning.algorithm}: {why}")

    @model_validator(mode="after")
    def _beside_learning(self) -> RunConfig:
        """The same of what surrounds the learning: purpose, budget, evaluation, checkpoints, curriculum."""
        if self.run.purpose == "evaluation" and (self.cost.budget_usd or self.cost.budget_hours):
            raise ValueError(
                "cost.budget_usd: a budget stops a run between its train steps, and an evaluation has none; leave it out, or evaluate"
                " fewer problems or samples"
            )
        if self.evaluation.endpoint is not None and self.run.purpose == "train":
            raise ValueError("evaluation.endpoint: a run that trains asks its own service; leave it out")
        if self.evaluation.agentic and self.run.purpose == "train":
            raise ValueError(
                "evaluation.agentic: a run that trains evaluates what it trains; set learning.episodes for episodes"
            )
        if self.evaluation.weights is not None and self.run.purpose == "train":
            raise ValueError("evaluation.weights: a run that trains evaluates the weights that it trains")
        if self.evaluation.teacher and self.tinker.teacher is None:
            raise ValueError(
                "evaluation.teacher: there is no teacher to evaluate; name tinker.teacher or set this to false"
            )
        if self.checkpoints.keep_last <= self.learning.staleness:
            raise ValueError(
                "checkpoints.keep_last: must be above learning.staleness, whose weights are still sampled from"
            )
        if self.grading.until != "tests":
            self._check_proxy()
        if self.curriculum.hard_below > self.curriculum.easy_from:
            raise ValueError("curriculum.hard_below: must not be above easy_from")
        if max(self.evaluation.k, default=1) > self.evaluation.samples or min(self.evaluation.k, default=1) < 1:
            raise ValueError("evaluation.k: pass@k needs 1 <= k <= evaluation.samples")
        return self

    def _check_proxy(self) -> None:
        """Training that does not run the tests knows of no answer whether it passes."""
        stages = ("format", "interface", "syntax", "tests")
        graded = stages[: stages.index(self.grading.until) + 1]
        if self.learning.reward_weight > 0 and not any(self.reward.weights.get(stage, 0.0) for stage in graded):
            raise ValueError(f"grading.until: no reward weight is on a stage that is graded: {', '.join(graded)}")
        if self.curriculum.order == "pools":
            raise ValueError(
                'grading.until: pools move by pass rates, which need "tests"; choose another curriculum.order'
            )
        if self.episode.attempts > 1:
            raise ValueError('grading.until: further attempts are for answers that fail their tests; needs "tests"')
