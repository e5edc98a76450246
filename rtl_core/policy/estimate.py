"""What a run will use: tokens by kind, dollars and hours, from its configuration and stated assumptions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rtl_core.config import RunConfig
from rtl_core.policy.cost import Tokens, Usage, sampled, scored, together, trained


@dataclass(frozen=True)
class Workload:
    """How much text a run meets: problems of each split, mean tokens of their prompts, mean tokens of an answer."""

    train_problems: int
    heldout_problems: int
    train_prompt: float
    heldout_prompt: float
    completion: float


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
    evaluating: Usage
    step_s: float
    evaluation_s: float

    @property
    def usage(self) -> dict[str, Tokens]:
        return together([self.training, self.evaluating])

    @property
    def hours(self) -> float:
        return (self.steps * self.step_s + (self.evaluations + self.teacher_evaluations) * self.evaluation_s) / 3600


def estimate_run(config: RunConfig, work: Workload, pace: Pace, step_s: float | None = None) -> Estimate:
    """The whole run as configured. `step_s` is a measured time of a step and takes the place of the computed one.

    Every rollout counts as trained on, and every answer as `work.completion` tokens long. Not counted: groups that replace others,
    what is measured for the curriculum, and the time that overlapping steps save.
    """
    group, completion = config.sampling.group_size, work.completion
    student, teacher = config.tinker.student, config.tinker.teacher
    steps_an_epoch = math.ceil(work.train_problems / config.curriculum.problems_per_step)
    steps = steps_an_epoch * config.run.epochs
    groups = work.train_problems * config.run.epochs
    per_group: list[Usage] = [
        {student: sampled(work.train_prompt, [completion] * group) + trained(work.train_prompt, [completion] * group)}
    ]
    learning = config.learning
    rises = learning.kl_schedule in ("linear", "cosine") and learning.final_kl_weight > 0
    scoring = teacher is not None and (learning.kl_weight > 0 or rises)
    if scoring and teacher is not None:
        per_group.append({teacher: scored(work.train_prompt, [completion] * group)})
    training = {model: tokens * groups for model, tokens in together(per_group).items()}

    every = config.evaluation.every
    evaluations = 2 + ((steps - 1) // every if every else 0)
    teacher_evaluations = int(config.evaluation.teacher and teacher is not None)
    one = sampled(work.heldout_prompt, [completion] * config.evaluation.samples) * work.heldout_problems
    evaluating: list[Usage] = [{student: one * evaluations}]
    if teacher_evaluations and teacher is not None:
        evaluating.append({teacher: one * teacher_evaluations})

    def sample_and_grade(answers: float) -> float:
        waves = max(1.0, answers / pace.streams)
        return waves * completion / pace.stream_tokens_per_s + answers * pace.grade_s / pace.graders

    answers = group * work.train_problems / max(steps_an_epoch, 1)
    tokens = answers * (work.train_prompt + completion)
    computed = sample_and_grade(answers) + tokens / pace.train_tokens_per_s + pace.fixed_s
    if scoring:
        computed += tokens / pace.score_tokens_per_s
    return Estimate(
        steps=steps,
        evaluations=evaluations,
        teacher_evaluations=teacher_evaluations,
        rollouts=group * groups
        + config.evaluation.samples * work.heldout_problems * (evaluations + teacher_evaluations),
        training=training,
        evaluating=together(evaluating),
        step_s=computed if step_s is None else step_s,
        evaluation_s=sample_and_grade(config.evaluation.samples * work.heldout_problems),
    )
