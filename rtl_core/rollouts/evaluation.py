"""Evaluation of a policy on held-out problems: what is sampled, and the figures that are recorded."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rtl_core.config import RunConfig
from rtl_core.config.episode import Bounds
from rtl_core.errors import HistoryError, PolicyError, ProblemError
from rtl_core.history.records import OWN, Conditions, EvaluationRecord, StoredRollout, utc_now
from rtl_core.history.store import History
from rtl_core.learning.intervals import mean_interval
from rtl_core.learning.passk import pass_at_k
from rtl_core.reporting import breakdown
from rtl_core.reporting.evaluations import by_source, counts_of, view_of
from rtl_core.rollouts.batch import Batch
from rtl_core.run.folder import config_of
from rtl_core.run.session import Session
from rtl_core.types.rollout import PolicyName
from rtl_grader.problems.sources import FileSource
from rtl_grader.progress import progress
from rtl_grader.words import counted


@dataclass(frozen=True)
class EvaluationPlan:
    """Which policy to evaluate, after how many train steps, on which held-out split, with how many answers
    per problem."""

    policy: PolicyName
    step: int
    split: str
    samples: int
    sampler_path: str | None = None
    """Weights of the student; None for the untrained one and for the teacher."""
    other: Conditions = OWN
    """Settings that differ from the run's own evaluations."""

    def key(self, run: str) -> str:
        """Primary key of the evaluation in the history."""
        names = [self.split, *(words.removeprefix("template ") for words in self.other.conditions)]
        return (
            f"{run}/{self.policy}/{self.step:05d}/{'-'.join(names).replace(' ', '')}x{self.samples}"
        )

    def record(self, run: str, **found: Any) -> EvaluationRecord:
        """Return the evaluation's row with its results."""
        return EvaluationRecord(
            key=self.key(run),
            run=run,
            policy=self.policy,
            step=self.step,
            split=self.split,
            samples=self.samples,
            finished_at=utc_now(),
            **self.other.model_dump(),
            **found,
        )


def config_for(
    path: Path, run: str, split: Literal["heldout", "test"] = "heldout", other: Conditions = OWN
) -> RunConfig:
    """Return the configuration that a run was started with, but with `split` held out and evaluations under
    `other` conditions.

    Raises:
        HistoryError: there is no such run.
        ConfigError: a source of the run has no such split.
    """
    config = config_of(History(path, read_only=True), run)
    data = config.model_dump(mode="json")
    data["problems"]["sources"] = [source.with_split(split) for source in config.problems.sources]
    for name, value in other.model_dump(exclude_none=True).items():
        data["prompting" if name == "template" else "evaluation"][name] = value
    return RunConfig.model_validate(data)


def without_teachers(config: RunConfig) -> RunConfig:
    """Return a configuration for sampling only the student: no teacher's service has to be reachable."""
    return config.model_copy(
        update={"tinker": config.tinker.model_copy(update={"teacher": None, "teachers": {}})}
    )


def is_due(config: RunConfig, step: int) -> bool:
    """Whether an intermediate evaluation is due after `step` train steps."""
    every, warm = config.evaluation.every, config.learning.warm_start_steps
    return step > 0 and (
        bool(every and step % every == 0) or (config.evaluation.after_warm_start and step == warm)
    )


def plan_evaluation(session: Session, policy: PolicyName, step: int) -> EvaluationPlan:
    """Plan one of the run's own evaluations: its held-out split, `evaluation.samples` answers, the weights
    after `step` steps.

    Raises:
        PolicyError: these weights are not in the history.
    """
    path = None
    if policy == "student" and not session.trains:
        path = session.config.evaluation.weights
    elif policy == "student":
        # A resumed run may have newer weights than those of an evaluation that failed before.
        if step and step not in session.weights.sampler_paths:
            raise PolicyError(
                f"cannot evaluate the weights after {counted(step, 'step')}: they are not in the history",
                "`rtl-distill checkpoints RUN` lists the saved weights",
            )
        path = session.weights.sampler_paths.get(step)
    return EvaluationPlan(
        policy, step, session.loaded.heldout_split, session.config.evaluation.samples, path
    )


def plan_at(
    session: Session,
    policy: Literal["student", "teacher"],
    step: int | None,
    samples: int,
    other: Conditions = OWN,
) -> EvaluationPlan:
    """Plan the evaluation of a trained run's policy at a step; None means the newest weights. `other`: see
    `config_for`.

    Raises:
        HistoryError: the run has not trained that far.
    """
    trained = session.history.trained_steps(session.run)
    step = 0 if policy == "teacher" else len(trained) if step is None else step
    if not 0 <= step <= len(trained):
        raise HistoryError(
            f"run {session.run!r} has trained {counted(len(trained), 'step')}, not {step}",
            "choose --step within that",
        )
    start = (
        session.config.evaluation.weights or session.history.existing_run(session.run).start_sampler
    )
    path = trained[step - 1].sampler_path if step else start if policy == "student" else None
    return EvaluationPlan(policy, step, session.loaded.heldout_split, samples, path, other)


def evaluation_batch(session: Session, plan: EvaluationPlan) -> Batch:
    """Return the batch of an evaluation: every usable held-out problem."""
    return Batch(
        purpose="evaluation",
        evaluation=plan.key(session.run),
        epoch=-1,
        step=plan.step,
        policy_step=plan.step,
        problem_ids=tuple(problem.id for problem in session.usable(session.loaded.heldout)),
        group_size=plan.samples,
        sampler=plan.policy,
        sampler_path=plan.sampler_path,
    )


def summarise(session: Session, batch: Batch, plan: EvaluationPlan) -> EvaluationRecord:
    """Compute the figures of a graded evaluation: pass@1 with its 95 % interval over problems, pass@k, and
    by difficulty and family.

    Raises:
        ProblemError: no problem could be evaluated.
    """
    batch.problem_ids = tuple(p for p in batch.problem_ids if p not in session.unfit)
    if not batch.problem_ids:
        reasons = "; ".join(f"{count}: {why}" for why, count in left_out(session).items())
        raise ProblemError(
            f"no problem could be evaluated ({reasons or 'the split is empty'})",
            "`rtl-distill query validation` gives the reason for each",
        )
    counts = {p: sum(s.passed for s in batch.group(p)) for p in batch.problem_ids}
    n = batch.group_size
    rates = np.array([counts[p] / n for p in batch.problem_ids])
    interval = mean_interval(rates)
    by_difficulty, by_family = defaultdict(list), defaultdict(list)
    for problem_id, rate in zip(batch.problem_ids, rates, strict=True):
        problem = session.problems[problem_id]
        by_difficulty[problem.difficulty].append(float(rate))
        by_family[problem.family or problem.category].append(float(rate))
    return plan.record(
        session.run,
        status="done",
        left_out=left_out(session),
        n_problems=len(batch.problem_ids),
        pass_at_1=interval.mean,
        lo=interval.lo,
        hi=interval.hi,
        pass_at_k={
            k: float(np.mean([pass_at_k(n, counts[p], k) for p in batch.problem_ids]))
            for k in session.config.evaluation.k
            if k <= n
        },
        by_difficulty={name: float(np.mean(values)) for name, values in by_difficulty.items()},
        by_family={name: float(np.mean(values)) for name, values in by_family.items()},
    )


def left_out(session: Session) -> dict[str, int]:
    """Mapping of the reason for leaving problems out of an evaluation to their number, those missing from a
    public set included."""
    reasons = Counter(problem.reason for problem in session.loaded.left_out)
    reasons.update(f"broken line: {line.field}: {line.reason}" for line in session.loaded.broken)
    held = {problem.id for problem in session.loaded.heldout}
    reasons.update(why for problem_id, why in session.unfit.items() if problem_id in held)
    if not session.trains:
        given = Counter(problem.source for problem in session.loaded.heldout)
        for kind, whole in published(session).items():
            if (missing := whole - given[kind]) > 0:
                reasons[f"not in the given files, of the {whole} of the public set {kind}"] += (
                    missing
                )
    return dict(reasons)


def published(session: Session) -> dict[str, int]:
    """Mapping of source to the size of its public set, for the sources of the held-out problems."""
    given = {problem.source for problem in session.loaded.heldout}
    sources = [
        s for s in session.config.problems.sources if isinstance(s, FileSource) and s.kind in given
    ]
    return {s.kind: s.published[0] for s in sources if s.published is not None}


def incomplete_warnings(session: Session) -> list[str]:
    """Return a warning for each public set that the figures do not cover completely."""
    in_figures = Counter(problem.source for problem in session.usable(session.loaded.heldout))
    return [
        f"WARNING: the figures are over {in_figures[kind]} of the {whole} problems of the public "
        f"set {kind}; published figures are over all"
        for kind, whole in published(session).items()
        if in_figures[kind] < whole
    ]


def tell_unanswered(session: Session) -> None:
    """Report problems whose prompts leave no room for an answer; their answers are empty and fail."""
    prompts = [session.prompts[p.id] for p in session.usable(session.loaded.heldout)]
    too_long = [prompt for prompt in prompts if session.room_after(prompt.tokens_P) == 0]
    if too_long:
        shortest = min(too_long, key=lambda prompt: len(prompt.tokens_P))
        progress.get().line(
            f"not answered: the prompts of {len(too_long)} of {len(prompts)} problems fill the model's context of"
            f" {session.policy.context} tokens (the shortest, {shortest.problem_id}, has "
            f"{len(shortest.tokens_P)}); they count as failed"
        )


def show(session: Session, plan: EvaluationPlan) -> None:
    """Print a finished evaluation in detail: pass@k with intervals by kind of problem, and compared with
    the run's others."""
    record = session.history.evaluation(plan.key(session.run))
    assert record is not None, "the evaluation is finished"
    counts = counts_of(session.history, record)
    ks = sorted({1, *(k for k in (2, 4, 8, 16, 32, 64, 128) if k <= plan.samples)})
    found = breakdown.slices(counts, session.problems, ks)
    progress.get().show(
        breakdown.table(record, found, breakdown.comparisons(session.history, record))
    )


def is_done(session: Session, plan: EvaluationPlan) -> bool:
    """Whether the history already holds this evaluation, finished."""
    stored = session.history.evaluation(plan.key(session.run))
    return stored is not None and stored.status == "done"


async def record(session: Session, batch: Batch, plan: EvaluationPlan) -> EvaluationRecord:
    """Summarise a graded evaluation and record it."""
    summary = summarise(session, batch, plan)
    session.recorder.put("record_evaluation", [summary])
    await session.recorder.settle()
    session.recorder.take_spent()  # belongs to no step
    return summary


async def record_failure(session: Session, plan: EvaluationPlan) -> None:
    """Record that an evaluation failed; the run goes on, and the same command retries it."""
    session.recorder.put("record_evaluation", [plan.record(session.run, status="failed")])
    await session.recorder.settle()


def sources_in_words(session: Session, record: EvaluationRecord) -> list[str]:
    """One line per source of problems: pass@1 with its interval. Empty if there is only one source."""
    found = by_source(session.history, view_of(session.history, record))
    return [
        f"  {source}: pass@1 {view.pass_at_1.mean:.3f} [{view.pass_at_1.lo:.3f}, "
        f"{view.pass_at_1.hi:.3f}] on {view.pass_at_1.n}"
        for source, view in (found.items() if len(found) > 1 else ())
    ]


def passed_by_turn(batch: Batch, bounds: Bounds) -> dict[int, dict[str, float]]:
    """Mapping of turn to problem to the share of its answers that had passed by the end of the turn; empty
    except for episodes without tools."""
    if not bounds.whole_answers or not any(
        stored.rollout.n_turns for stored in batch.rollouts.values()
    ):
        return {}
    groups = {problem_id: batch.group(problem_id) for problem_id in batch.problem_ids}

    def rate(group: list[StoredRollout], turn: int) -> float:
        return sum(s.passed and (s.rollout.n_turns or 0) <= turn for s in group) / max(
            len(group), 1
        )

    return {
        turn: {p: rate(group, turn) for p, group in groups.items()}
        for turn in range(1, bounds.most_turns + 1)
    }


def turns_in_words(session: Session, batch: Batch) -> list[str]:
    """One line per turn of episodes without tools: pass@1 by its end, with its interval. By turn 1 it is
    single-shot pass@1."""
    lines = []
    for turn, rates in passed_by_turn(batch, session.config.episode).items():
        interval = mean_interval(list(rates.values()))
        lines.append(
            f"  by turn {turn}: pass@1 {interval.mean:.3f} [{interval.lo:.3f}, {interval.hi:.3f}]"
        )
    return lines


def policy_in_words(session: Session, plan: EvaluationPlan) -> str:
    """Name of the evaluated policy in log lines."""
    if not session.trains:
        return session.config.evaluation.weights or session.config.tinker.student
    return (
        f"student after {counted(plan.step, 'step')}" if plan.policy == "student" else plan.policy
    )


def in_words(session: Session, plan: EvaluationPlan, record: EvaluationRecord) -> str:
    problems = counted(
        record.n_problems, f"{', '.join([record.split, *record.conditions])} problem"
    )
    return f"{policy_in_words(session, plan)}: pass@1 {record.pass_at_1:.3f} [{record.lo:.3f}, {record.hi:.3f}] on {problems} × {record.samples}"
