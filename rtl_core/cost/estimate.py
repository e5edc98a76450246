"""Estimate of the tokens that a run will use, from its configuration and explicit assumptions.

Two figures follow the same rules. `at_most` is an upper bound: every answer and every episode is as long as
allowed, every rollout is trained on, every group is replaced as often as allowed, and the service's prompt
cache never hits. `likely` uses the workload's means and shares.

Neither includes work lost in a crash and repeated after it, or storage of checkpoints.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add

from rtl_core.config import RunConfig
from rtl_core.cost.tokens import (
    Prices,
    Tokens,
    Usage,
    sampled,
    scored,
    together,
    total_dollars,
    trained,
)
from rtl_grader.words import counted


@dataclass(frozen=True)
class Prompts:
    """The prompts of one split: their number, tokens and sources."""

    count: int
    mean: float
    most: float = math.inf
    """Upper bound of the mean; no prompt is longer than `prompting.max_prompt_tokens`."""
    longest: float = math.inf
    """Upper bound of the longest prompt, in the same way."""
    sources: Mapping[str, float] = field(default_factory=dict)
    """Mapping of source to its share of the problems, for runs with several teachers."""

    @classmethod
    def of(cls, prompts: Sequence[tuple[float, float, str]]) -> Prompts:
        """Build from (likely tokens, maximum tokens, source) of each prompt."""
        if not prompts:
            return cls(0, 0.0, 0.0, 0.0)
        tokens, most, sources = zip(*prompts, strict=True)
        n = len(prompts)
        shares = {source: count / n for source, count in Counter(sources).items()}
        return cls(n, sum(tokens) / n, sum(most) / n, max(most), shares)


@dataclass(frozen=True)
class Workload:
    """Amount of text in a run."""

    train: Prompts
    heldout: Prompts
    completion: float
    """Mean tokens that the model writes in an answer or an episode."""
    trained_share: float = 1.0
    """Share of sampled tokens that a step without a KL trains on. Groups with equal rewards are not trained on."""
    turns: float = 1.0
    """Mean turns of an episode; 1 for single-shot answers."""
    tool_tokens: float = 0.0
    """Mean tokens of tool results in an episode."""
    teacher_ratios: Mapping[str, float] = field(default_factory=dict)
    """Mapping of teacher to its tokens per token of the student, if its tokens are others."""


@dataclass(frozen=True)
class Estimate:
    """Usage of a run, separately for training and evaluations."""

    steps: int
    evaluations: int
    """Number of evaluations of the student."""
    teacher_evaluations: int
    rollouts: int
    training: Usage
    """Usage of the train steps and of measuring problems before them."""
    evaluating: Usage

    @property
    def usage(self) -> dict[str, Tokens]:
        return together([self.training, self.evaluating])

    def hours(self, tokens_per_s: float) -> float:
        """Return the duration for an overall rate of answer tokens per second. The token sampled for
        scoring also counts."""
        return sum(tokens.sample for tokens in self.usage.values()) / tokens_per_s / 3600


def duration(hours: float) -> str:
    """Format a duration as `1 minute`, `12 minutes` or `3.5 hours`."""
    if hours >= 1.5:
        return f"{hours:,.1f} hours"
    return counted(max(1, round(60 * hours)), "minute")


@dataclass(frozen=True)
class _Answers:
    """A number of answers, and the tokens of sampling them, scoring them and training on them."""

    count: float
    sampling: Tokens
    scoring: Tokens
    training: Tokens

    def __add__(self, other: _Answers) -> _Answers:
        return _Answers(*map(add, vars(self).values(), vars(other).values()))


@dataclass(frozen=True)
class _Rules:
    """The differences between `likely` and `at_most`."""

    config: RunConfig
    work: Workload
    other_prompt: float
    """Prompt tokens of a replacement problem."""
    evaluated: float
    """Tokens of an answer in an evaluation."""
    most: bool
    """Assume no cache hits, and that groups are replaced as often as allowed."""

    def ask(self, groups: float, prompt: float, samples: int) -> _Answers:
        """Return the answers of `groups` groups of `samples` to prompts of `prompt` tokens."""
        whole = self.work.completion + self.work.tool_tokens
        # The hint of a self-teacher: an answer and a sentence.
        hint = self.work.completion + 20 if self.config.learning.self_taught else 0.0
        sampling = sampled(prompt, [self.work.completion] * samples)
        sampling += self._later_turns(prompt, whole) * samples
        scoring = scored(prompt + hint, [whole] * samples)
        training = trained(prompt, [whole] * samples)
        return _Answers(
            samples * groups,
            self._read(sampling) * groups,
            self._read(scoring) * groups,
            training * groups,
        )

    def _later_turns(self, prompt: float, whole: float) -> Tokens:
        """Return what an episode's turns after the first read: with turns of equal length or, without a
        cache, everything at each turn."""
        turns = self.work.turns
        if self.most:
            return Tokens(prefill=(turns - 1) * (prompt + whole))
        cached = (turns - 1) * (prompt + whole * (turns - 2) / (2 * turns))
        return Tokens(prefill=whole * (turns - 1) / turns, cached=max(cached, 0.0))

    def _read(self, tokens: Tokens) -> Tokens:
        """Return the billed tokens: without cache hits every prompt is billed at the full price."""
        if not self.most:
            return tokens
        return replace(tokens, prefill=tokens.prefill + tokens.cached, cached=0)

    def by_teachers(self, tokens: Tokens, sources: Mapping[str, float]) -> Usage:
        """Distribute a teacher's tokens among the teachers by the sources of the problems. What one with other tokens
        reads is counted in them; it writes as many as the student."""
        teacher, teachers = self.config.tinker.teacher, self.config.tinker.teachers
        shares = {source: sources.get(source, 0.0) for source in teachers}
        usages: list[Usage] = []
        if teacher:
            usages.append({teacher: tokens * (1 - sum(shares.values()))})
        usages += [{teachers[source]: tokens * share} for source, share in shares.items()]
        return together(map(self._in_their_tokens, usages))

    def _in_their_tokens(self, usage: Usage) -> Usage:
        counted = {}
        for model, tokens in usage.items():
            ratio = self.work.teacher_ratios.get(model, 1.0)
            prefill, cached = tokens.prefill * ratio, tokens.cached * ratio
            counted[model] = replace(tokens, prefill=prefill, cached=cached)
        return counted


def likely(config: RunConfig, work: Workload) -> Estimate:
    """Estimate a run's usage from the workload's means and shares, without replaced groups."""
    return _estimate(
        _Rules(
            config, work, other_prompt=work.train.mean, evaluated=work.completion, most=False
        )
    )


def at_most(config: RunConfig, work: Workload, prices: Prices | None = None) -> Estimate:
    """Return an upper bound of a run's usage (see the module docstring). Reads only problem counts and
    prompt bounds of `work`.

    With several teachers, charges the most expensive one by `prices` for the work of all, because no bound
    by source is known.
    """
    if config.tinker.teachers:

        def alone(teacher: str) -> Estimate:
            return at_most(config.but("tinker", teacher=teacher, teachers={}), work)

        def cost(estimate: Estimate) -> float:
            dollars = total_dollars(estimate.usage, prices) if prices else None
            # A teacher without a price counts as most expensive, so that the missing price is reported.
            return math.inf if dollars is None else dollars

        return max(map(alone, config.tinker.named_teachers.values()), key=cost)
    limit = float(config.prompting.max_prompt_tokens)
    train, heldout = work.train, work.heldout
    longest = min(train.longest, limit)
    # Pools may draw the longest repeatedly, and a warm start may leave the long ones.
    any_order = config.curriculum.order == "pools" or config.learning.warm_start_steps
    most = Workload(
        replace(train, mean=longest if any_order else min(train.most, limit)),
        replace(heldout, mean=min(heldout.most, limit)),
        completion=float(config.trained_limit),
        teacher_ratios=work.teacher_ratios,
    )
    if config.learning.episodes:
        episode = config.episode
        most = replace(
            most,
            turns=float(episode.most_turns),
            tool_tokens=float(episode.most_tool_tokens),
        )
    evaluated = float(config.evaluated_limit)
    return _estimate(_Rules(config, most, other_prompt=longest, evaluated=evaluated, most=True))


def _estimate(rules: _Rules) -> Estimate:
    config, work = rules.config, rules.work
    student, teacher, learning = config.tinker.student, config.tinker.teacher, config.learning
    groups_of_steps = planned_groups(config, work.train.count)
    steps = len(groups_of_steps)
    warm = learning.warm_start_steps
    # Steps of one kind use the same, so a run of a million steps is estimated as fast as one of ten.
    kinds: dict[tuple[bool, int, bool], list[int]] = defaultdict(list)
    for step, groups in enumerate(groups_of_steps):
        kinds[step < warm, groups, learning.uses_kl_at(step, steps)].append(step)
    answers = 0.0
    training: list[Usage] = []
    for (supervised, groups, _), same in kinds.items():
        if supervised:
            count, usages = _warm_start(rules, groups)
        else:
            count, usages = _reinforced(rules, groups, same[0], steps)
        number = len(same)
        answers += count * number
        for usage in usages:
            training.append({model: tokens * number for model, tokens in usage.items()})
    if samples := config.curriculum.measure_samples:
        survey = rules.ask(work.train.count, work.train.mean, samples)
        answers += survey.count * (2 if teacher else 1)
        by_teachers = rules.by_teachers(survey.sampling, work.train.sources)
        training += [{student: survey.sampling}, by_teachers]

    # Besides the intermediate ones, one before and one after the run.
    evaluations = 2 + sum(map(config.evaluates_after, range(steps)))
    by_teacher = int(config.evaluation.teacher and teacher is not None)
    of_evaluation = replace(rules, work=replace(work, completion=rules.evaluated))
    one = of_evaluation.ask(work.heldout.count, work.heldout.mean, config.evaluation.samples)
    evaluating: list[Usage] = [{student: one.sampling * evaluations}]
    if by_teacher:
        evaluating.append(rules.by_teachers(one.sampling, work.heldout.sources))
    answers += one.count * (evaluations + by_teacher)
    return Estimate(
        steps, evaluations, by_teacher, round(answers), together(training), together(evaluating)
    )


def _warm_start(rules: _Rules, groups: int) -> tuple[float, list[Usage]]:
    """Return the number of sampled answers and the usages of a supervised step."""
    config, work = rules.config, rules.work
    learning = config.learning
    samples = 1 if learning.imitates_golden else config.warm_start_group
    answers = rules.ask(groups, work.train.mean, samples)
    usages: list[Usage] = [{config.tinker.student: answers.training}]
    if learning.imitates_endpoint:
        # The same share of its limit; every request is billed in full.
        longer = config.endpoint_limit / config.sampling.max_tokens
        asked = sampled(work.train.mean, [work.completion * longer]) * answers.count
        return answers.count, [*usages, {str(learning.warm_start_model): asked}]
    if not (learning.imitates_teacher and config.tinker.teacher):
        return 0.0, usages
    return answers.count, [*usages, rules.by_teachers(answers.sampling, work.train.sources)]


def _reinforced(rules: _Rules, groups: int, step: int, steps: int) -> tuple[float, list[Usage]]:
    """Return the number of sampled answers and the usages of an RL step."""
    config, work = rules.config, rules.work
    student, learning, samples = (
        config.tinker.student,
        config.learning,
        config.sampling.group_size,
    )
    answers = rules.ask(groups, work.train.mean, samples)
    if rules.most and learning.replaces_equal_at(step, steps):
        others = min(groups * learning.replacements, max(work.train.count - groups, 0))
        answers += rules.ask(others, rules.other_prompt, samples)
    if not learning.uses_kl_at(step, steps):
        tokens = answers.sampling + answers.training * work.trained_share
        return answers.count, [{student: tokens}]
    scoring: Usage = {student: answers.scoring}
    if not learning.self_taught:
        scoring = rules.by_teachers(answers.scoring, work.train.sources)
    passes = 2 if learning.reads_trainer else 1
    tokens = answers.sampling + answers.training * passes
    return answers.count, [{student: tokens}, scoring]


def planned_groups(config: RunConfig, problems: int) -> list[int]:
    """Return the planned number of groups of each step of a run on `problems` training problems
    (`learning.curriculum.plan_epoch`)."""
    groups: list[int] = []
    for epoch in range(config.run.epochs):
        # After the supervised steps all epochs are alike.
        alike = (
            config.run.epochs - epoch if len(groups) >= config.learning.warm_start_steps else 1
        )
        groups += config.step_sizes(problems, len(groups)) * alike
        if alike > 1:
            break
    if config.curriculum.order == "pools":  # every RL step draws again
        supervised = config.learning.warm_start_steps
        per_step = min(config.curriculum.problems_per_step, problems)
        return groups[:supervised] + [per_step] * len(groups[supervised:])
    return groups
