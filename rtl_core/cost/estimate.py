"""What a run will use: tokens by kind, from its configuration and stated assumptions.

Two figures by the same rules. `at_most` is the bill that no run of the configuration exceeds: every answer as long as it may be, every
rollout trained on, every group replaced as often as it may be, every episode as long as its bounds allow, and no prompt found in the service's cache. `likely` takes the workload's means and shares in place of these.

In neither: what a crash takes before it is recorded, train steps that are repeated after it, storage of checkpoints.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rtl_core.config import RunConfig
from rtl_core.cost.tokens import Prices, Tokens, Usage, sampled, scored, together, total_dollars, trained


@dataclass(frozen=True)
class Prompts:
    """The prompts of one split: how many, their tokens, and whose they are."""

    count: int
    mean: float
    most: float | None = None
    """A mean that they cannot exceed, since they were counted; None: `prompting.max_prompt_tokens`."""
    longest: float | None = None
    """Tokens of the longest, likewise."""
    sources: Mapping[str, float] = field(default_factory=dict)
    """Source -> share of the problems; of the rest nothing is known. Counts where a run has several teachers."""

    @classmethod
    def of(cls, prompts: Sequence[tuple[float, float, str]]) -> Prompts:
        """From the tokens of each prompt, likely and at most, and the source of its problem."""
        n, most = len(prompts), [most for _, most, _ in prompts]
        shares = {source: count / n for source, count in Counter(source for _, _, source in prompts).items()}
        mean = sum(tokens for tokens, _, _ in prompts) / max(n, 1)
        return cls(n, mean, sum(most) / max(n, 1), max(most, default=0.0), shares)


@dataclass(frozen=True)
class Workload:
    """How much text a run meets."""

    train: Prompts
    heldout: Prompts
    completion: float
    """Mean tokens of an answer; of an episode those that the model writes."""
    trained_share: float = 1.0
    """Of what is sampled in a step without a KL, the share of tokens that is trained on: groups of equal rewards are not."""
    turns: float = 1.0
    """Mean turns of an episode; 1 where answers are single-shot."""
    tool_tokens: float = 0.0
    """Mean tokens that tools give in an episode."""


@dataclass(frozen=True)
class Estimate:
    """What a run uses: its training and its evaluations, apart."""

    steps: int
    evaluations: int
    """Of the student."""
    teacher_evaluations: int
    rollouts: int
    training: Usage
    """Of the train steps, and of measuring the problems before them."""
    evaluating: Usage

    @property
    def usage(self) -> dict[str, Tokens]:
        return together([self.training, self.evaluating])

    def hours(self, tokens_per_s: float) -> float:
        """At so many tokens of answers a second, with all that is done about them. The token that scoring asks for counts as one."""
        return sum(tokens.sample for tokens in self.usage.values()) / tokens_per_s / 3600


def duration(hours: float) -> str:
    """`1 minute`, `12 minutes` or `3.5 hours`."""
    minutes = max(1, round(60 * hours))
    return f"{hours:,.1f} hours" if hours >= 1.5 else f"{minutes} minute{'s' if minutes > 1 else ''}"


@dataclass(frozen=True)
class _Answers:
    """Some answers: how many, and the tokens of sampling, of scoring and of training on them."""

    count: float
    sampling: Tokens
    scoring: Tokens
    training: Tokens

    def __add__(self, other: _Answers) -> _Answers:
        return _Answers(
            self.count + other.count,
            self.sampling + other.sampling,
            self.scoring + other.scoring,
            self.training + other.training,
        )

    def __mul__(self, factor: float) -> _Answers:
        return _Answers(self.count * factor, self.sampling * factor, self.scoring * factor, self.training * factor)


@dataclass(frozen=True)
class _Rules:
    """What `likely` and `at_most` see differently."""

    config: RunConfig
    work: Workload
    other_prompt: float
    """Tokens of the prompt of a problem that replaces another."""
    evaluated: float
    """Tokens of an answer in an evaluation."""
    most: bool
    """No prompt is read from the cache, and each place of a step is given to other problems as often as it may be."""

    def ask(self, groups: float, prompt: float, samples: int) -> _Answers:
        """`groups` groups of `samples` answers to prompts of `prompt` tokens."""
        whole = self.work.completion + self.work.tool_tokens
        # What a self-teacher reads besides: an answer, and a sentence.
        hint = self.work.completion + 20 if self.config.learning.self_taught else 0.0
        sampling = sampled(prompt, [self.work.completion] * samples) + self._later_turns(prompt, whole) * samples
        scoring = scored(prompt + hint, [whole] * samples)
        return _Answers(samples, self._read(sampling), self._read(scoring), trained(prompt, [whole] * samples)) * groups

    def _later_turns(self, prompt: float, whole: float) -> Tokens:
        """What an episode's turns behind the first read: turns of equal length or, without a cache, all of it at each."""
        turns = self.work.turns
        if self.most:
            return Tokens(prefill=(turns - 1) * (prompt + whole))
        cached = (turns - 1) * (prompt + whole * (turns - 2) / (2 * turns))
        return Tokens(prefill=whole * (turns - 1) / turns, cached=max(cached, 0.0))

    def _read(self, tokens: Tokens) -> Tokens:
        """As they are paid: without a cache every prompt is read at the full price."""
        return replace(tokens, prefill=tokens.prefill + tokens.cached, cached=0) if self.most else tokens

    def by_teachers(self, tokens: Tokens, sources: Mapping[str, float]) -> Usage:
        """A teacher's tokens, shared out among the teachers by the sources of the problems."""
        teacher, teachers = self.config.tinker.teacher, self.config.tinker.teachers
        shares = {source: sources.get(source, 0.0) for source in teachers}
        rest = {teacher: tokens * (1 - sum(shares.values()))} if teacher else {}
        return together([rest, *({teachers[source]: tokens * share} for source, share in shares.items())])


def likely(config: RunConfig, work: Workload) -> Estimate:
    """What the run as configured will use if the workload's means and shares hold and no group is replaced."""
    return _estimate(_Rules(config, work, other_prompt=work.train.mean, evaluated=work.completion, most=False))


def at_most(config: RunConfig, work: Workload, prices: Prices | None = None) -> Estimate:
    """The most that the run as configured can use (see the module's first lines). Of `work` count the problems and what bounds their prompts.

    With several teachers the dearest by `prices` is charged for all that any of them does: which problems come up how often, and how
    long their prompts are, no bound by source can tell.
    """
    if config.tinker.teachers:
        alone = [
            config.model_copy(update={"tinker": config.tinker.model_copy(update={"teacher": name, "teachers": {}})})
            for name in config.tinker.named_teachers.values()
        ]
        found = [at_most(one, work) for one in alone]
        costs = [total_dollars(most.usage, prices) if prices else None for most in found]
        # What has no price comes first: whoever reads the estimate is told of it.
        return max(zip(found, costs, strict=True), key=lambda one: math.inf if one[1] is None else one[1])[0]
    limit = float(config.prompting.max_prompt_tokens)
    train, heldout = work.train, work.heldout
    longest = limit if train.longest is None else train.longest
    # Pools may draw the longest again and again, and a warm start may have read the short ones.
    repeated = config.curriculum.order == "pools" or config.learning.warm_start_steps
    planned = longest if repeated else limit if train.most is None else train.most
    most = Workload(
        replace(train, mean=planned),
        replace(heldout, mean=limit if heldout.most is None else heldout.most),
        completion=float(config.trained_limit),
        turns=float(config.episode.most_turns) if config.learning.episodes else 1.0,
        tool_tokens=float(config.episode.most_tool_tokens) if config.learning.episodes else 0.0,
    )
    return _estimate(_Rules(config, most, other_prompt=longest, evaluated=float(config.evaluated_limit), most=True))


def _estimate(rules: _Rules) -> Estimate:
    config, work = rules.config, rules.work
    student, teacher, learning = config.tinker.student, config.tinker.teacher, config.learning
    groups_of_steps = planned_groups(config, work.train.count)
    steps = len(groups_of_steps)
    warm = learning.warm_start_steps
    parts = [
        _warm_start(rules, groups) if step < warm else _reinforced(rules, groups, step, steps)
        for step, groups in enumerate(groups_of_steps)
    ]
    if samples := config.curriculum.measure_samples:
        measured = rules.ask(work.train.count, work.train.mean, samples)
        by_teachers = rules.by_teachers(measured.sampling, work.train.sources)
        parts.append((measured.count * (2 if teacher else 1), [{student: measured.sampling}, by_teachers]))

    every = config.evaluation.every
    extra = config.evaluation.after_warm_start and 0 < warm < steps and not (every and warm % every == 0)
    evaluations = 2 + ((steps - 1) // every if every else 0) + extra
    by_teacher = int(config.evaluation.teacher and teacher is not None)
    held = replace(rules, work=replace(work, completion=rules.evaluated))
    one = held.ask(work.heldout.count, work.heldout.mean, config.evaluation.samples)
    evaluating: list[Usage] = [{student: one.sampling * evaluations}]
    if by_teacher:
        evaluating.append(rules.by_teachers(one.sampling, work.heldout.sources))
    answers = sum(count for count, _ in parts) + one.count * (evaluations + by_teacher)
    usages = [usage for _, of_part in parts for usage in of_part]
    return Estimate(steps, evaluations, by_teacher, round(answers), together(usages), together(evaluating))


def _warm_start(rules: _Rules, groups: int) -> tuple[float, list[Usage]]:
    """A supervised step: answers that are sampled, and its usages."""
    config, work = rules.config, rules.work
    imitates = config.learning.imitates_teacher
    asked = rules.ask(groups, work.train.mean, config.warm_start_group if imitates else 1)
    usages: list[Usage] = [{config.tinker.student: asked.training}]
    if not (imitates and config.tinker.teacher):
        return 0.0, usages
    return asked.count, [*usages, rules.by_teachers(asked.sampling, work.train.sources)]


def _reinforced(rules: _Rules, groups: int, step: int, steps: int) -> tuple[float, list[Usage]]:
    """A step of rewards: answers that are sampled, and its usages."""
    config, work = rules.config, rules.work
    student, learning, samples = config.tinker.student, config.learning, config.sampling.group_size
    asked = rules.ask(groups, work.train.mean, samples)
    if rules.most and learning.replaces_equal_at(step, steps):
        others = min(groups * learning.replacements, max(work.train.count - groups, 0))
        asked += rules.ask(others, rules.other_prompt, samples)
    if not learning.uses_kl_at(step, steps):
        return asked.count, [{student: asked.sampling + asked.training * work.trained_share}]
    scoring = {student: asked.scoring} if learning.self_taught else rules.by_teachers(asked.scoring, work.train.sources)
    passes = 2 if learning.reads_trainer else 1
    return asked.count, [{student: asked.sampling + asked.training * passes}, scoring]


def planned_groups(config: RunConfig, problems: int) -> list[int]:
    """Groups of each step of a run on so many training problems, in order, as it is planned (`learning.curriculum.plan_epoch`)."""
    groups: list[int] = []
    for _ in range(config.run.epochs):
        groups += config.step_sizes(problems, len(groups))
    if config.curriculum.order == "pools":  # every RL step draws afresh
        supervised = config.learning.warm_start_steps
        drawn = min(config.curriculum.problems_per_step, problems)
        return groups[:supervised] + [drawn] * len(groups[supervised:])
    return groups
