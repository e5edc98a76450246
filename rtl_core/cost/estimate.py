"""What a run will use: tokens by kind, dollars and hours, from its configuration and stated assumptions.

Two figures by the same rules. `at_most` is the bill that no run of the configuration exceeds: every answer as long as it may be, every
rollout trained on, every group replaced as often as it may be, every answer followed up in every further turn, and no prompt found in
the service's cache. `likely` takes the workload's means and shares in place of these.

In neither: what a crash takes before it is recorded, train steps that are repeated after it, storage of checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rtl_core.config import RunConfig
from rtl_core.cost.tokens import Prices, Tokens, Usage, sampled, scored, together, total_dollars, trained


@dataclass(frozen=True)
class Workload:
    """How much text a run meets: problems of each split, mean tokens of their prompts, mean tokens of an answer."""

    train_problems: int
    heldout_problems: int
    train_prompt: float
    heldout_prompt: float
    completion: float
    most_train_prompt: float | None = None
    """A mean that the training prompts cannot exceed, since they were counted; None: `prompting.max_prompt_tokens`."""
    most_heldout_prompt: float | None = None
    """The same of the held-out prompts."""
    longest_train_prompt: float | None = None
    """Tokens of the longest training prompt, likewise."""
    trained_share: float = 1.0
    """Of what is sampled in a step without a KL, the share of tokens that is trained on: groups of equal rewards are not."""
    failed_share: float = 1.0
    """Share of answers that fail, and so are followed up where there are further turns."""
    train_sources: Mapping[str, float] = field(default_factory=dict)
    """Source -> share of the training problems; of the rest nothing is known. Counts where a run has several teachers."""
    heldout_sources: Mapping[str, float] = field(default_factory=dict)
    """The same of the held-out problems."""


@dataclass(frozen=True)
class Pace:
    """How fast it goes. Seconds of a step are the sum of its stages, which is an upper bound: stages overlap."""

    stream_tokens_per_s: float
    """Tokens per second of one answer being sampled."""
    streams: float
    """Answers that are sampled side by side."""
    grade_s: float
    """Seconds that one grade takes."""
    graders: int
    score_tokens_per_s: float
    train_tokens_per_s: float
    fixed_s: float
    """Seconds a step whatever its size: queues, saving the weights, a new sampler."""


@dataclass(frozen=True)
class Estimate:
    """Usage of the training steps and of the evaluations, apart, and the time they take."""

    steps: int
    evaluations: int
    """Student evaluations."""
    teacher_evaluations: int
    rollouts: int
    training: Usage
    """Of the train steps, and of measuring the problems before them."""
    evaluating: Usage
    step_s: float
    evaluation_s: float

    @property
    def usage(self) -> dict[str, Tokens]:
        return together([self.training, self.evaluating])

    @property
    def hours(self) -> float:
        return (self.steps * self.step_s + (self.evaluations + self.teacher_evaluations) * self.evaluation_s) / 3600


def duration(hours: float) -> str:
    """`1 minute`, `12 minutes` or `3.5 hours`."""
    minutes = max(1, round(60 * hours))
    return f"{hours:,.1f} hours" if hours >= 1.5 else f"{minutes} minute{'s' if minutes > 1 else ''}"


@dataclass(frozen=True)
class _Asked:
    """Groups that are asked for alike: their number, the answers in all their turns, and what they use."""

    answers: float
    sampling: Tokens
    scoring: Tokens
    training: Tokens


@dataclass(frozen=True)
class _Rules:
    """What `likely` and `at_most` see differently."""

    work: Workload
    further_prompt: float
    """Tokens of the prompt of a further turn."""
    other_prompt: float
    """Tokens of the prompt of a problem that replaces another."""
    cached: bool
    """Whether a group reads its prompt once and from the cache after that."""
    replacements: int
    """How often each place of a step is given to another problem, where that may be."""
    evaluated: float
    """Tokens of an answer in an evaluation."""
    hint: float = 0.0
    """Tokens that a prompt has more when the student scores its own answer."""

    def ask(self, groups: float, prompt: float, samples: int, turns: int) -> _Asked:
        """`groups` groups of `samples` answers to prompts of `prompt` tokens, each answer that fails followed up in `turns` turns."""
        first = [self.work.completion] * samples
        asked = _Asked(samples, sampled(prompt, first), scored(prompt + self.hint, first), trained(prompt, first))
        share = 1.0
        for _ in range(1, turns):
            share *= self.work.failed_share
            again = [self.work.completion]  # each with a prompt of its own
            asked = _Asked(
                asked.answers + samples * share,
                asked.sampling + sampled(self.further_prompt, again) * (samples * share),
                asked.scoring + scored(self.further_prompt + self.hint, again) * (samples * share),
                asked.training + trained(self.further_prompt, again) * (samples * share),
            )
        return _Asked(
            asked.answers * groups,
            self._read(asked.sampling) * groups,
            self._read(asked.scoring) * groups,
            asked.training * groups,
        )

    def _read(self, tokens: Tokens) -> Tokens:
        """As they are paid: without a cache every prompt is read at the full price."""
        return tokens if self.cached else replace(tokens, prefill=tokens.prefill + tokens.cached, cached=0)


def likely(config: RunConfig, work: Workload, pace: Pace, step_s: float | None = None) -> Estimate:
    """What the run as configured will use if the workload's means and shares hold and no group is replaced.

    Args:
        step_s: a measured time of a step; takes the place of the computed one.
    """
    # A further turn's prompt holds the answer before it and what was said of it.
    further = min(work.train_prompt + work.completion, config.prompting.max_prompt_tokens)
    rules = _Rules(
        work,
        further_prompt=further,
        other_prompt=work.train_prompt,
        cached=True,
        replacements=0,
        evaluated=work.completion,
        hint=_hint(config, work.completion),
    )
    return _estimate(config, rules, pace, step_s)


def at_most(config: RunConfig, work: Workload, pace: Pace, prices: Prices | None = None) -> Estimate:
    """The most that the run as configured can use (see the module's first lines). Of `work` count the problems and what bounds their prompts.

    With several teachers the dearest by `prices` is charged for all that any of them does: which problems come up how often, and how
    long their prompts are, no bound by source can tell.
    """
    if config.tinker.teachers:
        alone = [
            config.model_copy(update={"tinker": config.tinker.model_copy(update={"teacher": name, "teachers": {}})})
            for name in config.tinker.named_teachers.values()
        ]
        found = [at_most(one, work, pace) for one in alone]
        costs = [total_dollars(most.usage, prices) if prices else None for most in found]
        # What has no price comes first: whoever reads the estimate is told of it.
        return max(zip(found, costs, strict=True), key=lambda one: math.inf if one[1] is None else one[1])[0]
    limit = float(config.prompting.max_prompt_tokens)
    longest = limit if work.longest_train_prompt is None else work.longest_train_prompt
    planned = limit if work.most_train_prompt is None else work.most_train_prompt
    most = Workload(
        train_problems=work.train_problems,
        heldout_problems=work.heldout_problems,
        # Pools may draw the longest again and again, and a warm start may have read the short ones.
        train_prompt=longest if config.curriculum.order == "pools" or config.learning.warm_start_steps else planned,
        heldout_prompt=limit if work.most_heldout_prompt is None else work.most_heldout_prompt,
        completion=float(config.sampling.max_tokens),
    )
    rules = _Rules(
        most,
        further_prompt=limit,
        other_prompt=longest,
        cached=False,
        replacements=config.learning.replacements,
        evaluated=float(config.evaluation.max_tokens or config.sampling.max_tokens),
        hint=_hint(config, most.completion),
    )
    return _estimate(config, rules, pace, None)


def _hint(config: RunConfig, completion: float) -> float:
    """Tokens of the hint of a self-teacher: an answer, and a sentence."""
    return completion + 20 if config.learning.self_taught else 0.0


def _estimate(config: RunConfig, rules: _Rules, pace: Pace, step_s: float | None) -> Estimate:
    student, teacher = config.tinker.student, config.tinker.teacher
    learning, turns, work = config.learning, config.refinement.turns, rules.work

    def by_teachers(tokens: Tokens, sources: Mapping[str, float]) -> Usage:
        shares = {source: sources.get(source, 0.0) for source in config.tinker.teachers}
        rest = {teacher: tokens * (1 - sum(shares.values()))} if teacher else {}
        return together([rest, *({config.tinker.teachers[source]: tokens * share} for source, share in shares.items())])

    groups_of_steps = planned_groups(config, work.train_problems)
    steps = len(groups_of_steps)
    answers = trained_tokens = scored_tokens = 0.0
    usages: list[Usage] = []
    for step, groups in enumerate(groups_of_steps):
        if step < learning.warm_start_steps:
            samples = config.warm_start_group if learning.imitates_teacher else 1
            asked = rules.ask(groups, work.train_prompt, samples, turns=1)
            usages.append({student: asked.training})
            if learning.imitates_teacher and teacher:
                usages.append(by_teachers(asked.sampling, work.train_sources))
                answers += asked.answers
            trained_tokens += asked.training.train
            continue
        charged = learning.uses_kl_at(step, steps)
        share = 1.0 if charged else work.trained_share
        asks = [rules.ask(groups, work.train_prompt, config.sampling.group_size, turns)]
        if learning.replaces_equal_at(step, steps) and rules.replacements:
            others = min(groups * rules.replacements, max(work.train_problems - groups, 0))
            asks.append(rules.ask(others, rules.other_prompt, config.sampling.group_size, turns))
        for asked in asks:
            usages.append({student: asked.sampling + asked.training * share})
            answers += asked.answers
            trained_tokens += asked.training.train * share
            if charged:
                own = learning.self_taught
                usages.append({student: asked.scoring} if own else by_teachers(asked.scoring, work.train_sources))
                scored_tokens += asked.training.train
    sampled_before = 0.0
    if config.curriculum.measure_samples:
        measured = rules.ask(work.train_problems, work.train_prompt, config.curriculum.measure_samples, turns=1)
        usages.append({student: measured.sampling})
        usages.append(by_teachers(measured.sampling, work.train_sources))
        sampled_before += measured.answers * (2 if teacher else 1)

    every = config.evaluation.every
    warm = learning.warm_start_steps
    extra = config.evaluation.after_warm_start and 0 < warm < steps and not (every and warm % every == 0)
    evaluations = 2 + ((steps - 1) // every if every else 0) + extra
    teacher_evaluations = int(config.evaluation.teacher and teacher is not None)
    held = replace(rules, work=replace(work, completion=rules.evaluated))
    one = held.ask(work.heldout_problems, work.heldout_prompt, config.evaluation.samples, turns)
    evaluating: list[Usage] = [{student: one.sampling * evaluations}]
    if teacher_evaluations:
        evaluating.append(by_teachers(one.sampling * teacher_evaluations, work.heldout_sources))

    def sample_and_grade(count: float) -> float:
        waves = max(1.0, count / pace.streams)
        return waves * work.completion / pace.stream_tokens_per_s + count * pace.grade_s / pace.graders

    number = max(steps, 1)
    computed = sample_and_grade(answers / number) + pace.fixed_s
    computed += trained_tokens / number / pace.train_tokens_per_s + scored_tokens / number / pace.score_tokens_per_s
    return Estimate(
        steps=steps,
        evaluations=evaluations,
        teacher_evaluations=teacher_evaluations,
        rollouts=round(sampled_before + answers + one.answers * (evaluations + teacher_evaluations)),
        training=together(usages),
        evaluating=together(evaluating),
        step_s=computed if step_s is None else step_s,
        evaluation_s=sample_and_grade(one.answers),
    )


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
