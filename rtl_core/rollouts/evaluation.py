"""Evaluation of a policy on held-out problems: what is sampled, and the figures that are recorded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rtl_core.config import RunConfig
from rtl_core.config.episode import Bounds
from rtl_core.errors import ConfigError, HistoryError, PolicyError, ProblemError
from rtl_core.history.records import OWN, Conditions, EvaluationRecord, StoredRollout, utc_now
from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval, mean_interval
from rtl_core.reporting.evaluations import (
    by_source,
    cost_of,
    figures_of,
    kind_in_words,
    view_of,
)
from rtl_core.rollouts.batch import Batch, open_batch
from rtl_core.run.folder import command_for, config_of
from rtl_core.run.recorder import Recorder
from rtl_core.run.session import Session
from rtl_core.types.rollout import Kind, PolicyName
from rtl_grader.problems.errata import edited, errata_of
from rtl_grader.problems.sources import FileSource
from rtl_grader.progress import log_line
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
    kind: Kind = "single attempt"

    def key(self, run: str) -> str:
        """Primary key of the evaluation in the history."""
        conditions = [words.removeprefix("template ") for words in self.other.conditions]
        what = "-".join([self.split, *conditions]).replace(" ", "")
        return f"{run}/{self.policy}/{self.step:05d}/{what}x{self.samples}"

    def record(self, run: str, **results: Any) -> EvaluationRecord:
        """Return the evaluation's row with its results."""
        return EvaluationRecord(
            key=self.key(run),
            run=run,
            policy=self.policy,
            step=self.step,
            split=self.split,
            samples=self.samples,
            kind=self.kind,
            finished_at=utc_now(),
            **self.other.model_dump(),
            **results,
        )


def config_for(
    path: Path,
    run: str,
    split: Literal["heldout", "test"] = "heldout",
    other: Conditions = OWN,
    step: int | None = None,
) -> RunConfig:
    """Return the configuration that a run was started with, but with `split` held out and evaluations under
    `other` conditions, of the weights after `step` steps (None: the newest).

    Raises:
        HistoryError: there is no such run, or it has not trained that far.
        ConfigError: a source of the run has no such split, or an endpoint gave the run's answers.
    """
    history = History(path, read_only=True)
    config = config_of(history, run)
    steps = history.steps_done(run)
    if step is not None and not 0 <= step <= steps:
        raise HistoryError(
            f"run {run!r} has trained {counted(steps, 'step')}, not {step}",
            f"choose --step from 0 (before training) to {steps}, or omit it",
        )
    if config.evaluation.endpoint:
        raise ConfigError(
            f"run {run!r} evaluated a model behind an endpoint",
            "evaluate it with other settings by --model, --endpoint and --problems",
        )
    data = config.model_dump(mode="json")
    data["problems"]["sources"] = [
        source.with_split(split) for source in config.problems.sources
    ]
    for name, value in other.model_dump(exclude_none=True).items():
        data["prompting" if name == "template" else "evaluation"][name] = value
    return RunConfig.model_validate(data)


def plan_evaluation(
    session: Session,
    policy: PolicyName,
    step: int | None,
    samples: int | None = None,
    other: Conditions = OWN,
) -> EvaluationPlan:
    """Plan an evaluation of the weights after `step` steps (None: the newest) on the session's held-out split.
    `samples` is `evaluation.samples` by default; `other`: see `config_for`.

    Raises:
        PolicyError: these weights are not in the history.
    """
    section, history, path = session.config.evaluation, session.history, None
    if policy != "student":
        step = 0
    else:
        trained = history.trained_steps(session.run)
        step = len(trained) if step is None else step
        if not step:
            path = section.weights or history.existing_run(session.run).start_sampler
        elif step > len(trained):
            raise PolicyError(
                f"cannot evaluate the weights after {counted(step, 'step')}: they are not in the history",
                "`rtl-distill admin checkpoints RUN` lists the saved weights",
            )
        else:
            path = trained[step - 1].sampler_path
    split, kind = session.loaded.heldout_split, session.config.kind
    samples = samples or section.samples
    return EvaluationPlan(policy, step, split, samples, path, other, kind)


def needs_older_weights(session: Session, plan: EvaluationPlan) -> PolicyError | None:
    """Return the error for an evaluation of other weights than the newest, if the run's service samples only those."""
    if plan.policy != "student" or not (session.trains and session.policy.newest_weights_only):
        return None
    newest = session.history.steps_done(session.run)
    if plan.step == newest:
        return None
    return PolicyError(
        f"the weights after {counted(plan.step, 'step')} cannot be evaluated: the engine samples only the newest, "
        f"those after {counted(newest, 'step')}",
        "evaluate the newest, or write the others as a model (`rtl-distill admin checkpoints RUN --export DIR "
        "--step N --merged`) and serve that",
    )


def evaluation_batch(session: Session, plan: EvaluationPlan) -> Batch:
    """Return the batch of an evaluation: every usable held-out problem, with the answers that the history
    already holds."""
    batch = Batch(
        purpose="evaluation",
        evaluation=plan.key(session.run),
        epoch=-1,
        step=plan.step,
        policy_step=plan.step,
        problem_ids=tuple(problem.id for problem in session.heldout),
        group_size=plan.samples,
        sampler=plan.policy,
        sampler_path=plan.sampler_path,
    )
    return open_batch(session.history, session.run, batch)


def summarise(session: Session, batch: Batch, plan: EvaluationPlan) -> EvaluationRecord:
    """Compute the figures of a graded evaluation: pass@1 with its 95 % interval over problems, pass@k, and
    by difficulty and family.

    Raises:
        ProblemError: no problem could be evaluated.
    """
    batch.problem_ids = tuple(p for p in batch.problem_ids if p not in session.unfit)
    excluded = left_out(session)
    if not batch.problem_ids:
        reasons = "; ".join(f"{_number(of)}: {why}" for why, of in excluded.items())
        raise ProblemError(
            f"no problem could be evaluated ({reasons or 'the split is empty'})",
            f"{command_for(session.config, 'query validation --run')} gives the reason for each",
        )
    faults = {p: errata_of(session.problems[p]) for p in batch.problem_ids}
    n = batch.group_size
    counts, by_difficulty, by_family = [], defaultdict(list), defaultdict(list)
    for problem_id in batch.problem_ids:
        problem = session.problems[problem_id]
        passed = sum(stored.passed for stored in batch.group(problem_id))
        counts.append((n, passed))
        by_difficulty[problem.difficulty].append(passed / n)
        by_family[problem.family or problem.category].append(passed / n)
    return plan.record(
        session.run,
        status="done",
        left_out=excluded,
        errata={p: "; ".join(map(str, known)) for p, known in faults.items() if known},
        **figures_of(counts, [k for k in session.config.evaluation.k if k <= n]),
        by_difficulty=_means(by_difficulty),
        by_family=_means(by_family),
    )


def _means(groups: Mapping[Any, list[float]]) -> dict[str, float]:
    return {name: float(np.mean(values)) for name, values in groups.items()}


def _number(excluded: int | list[str]) -> int:
    return excluded if isinstance(excluded, int) else len(excluded)


def left_out(session: Session) -> dict[str, int | list[str]]:
    """Mapping of the reason for leaving problems out of an evaluation to their ids; to their number if they have no
    ids: broken lines, and those missing from a public set."""
    loaded, unfit = session.loaded, session.unfit
    names: dict[str, list[str]] = defaultdict(list)
    for entry in loaded.left_out:
        names[entry.reason].append(entry.id)
    for problem in loaded.heldout:
        if problem.id in unfit:
            names[unfit[problem.id]].append(problem.id)
    reasons = Counter(f"broken line: {line.fault}" for line in loaded.broken)
    if not session.trains:
        counts = Counter(problem.source for problem in loaded.heldout)
        for kind, size in published(session.config, counts).items():
            if size > counts[kind]:
                why = f"not in the given files, of the {size} of the public set {kind}"
                reasons[why] += size - counts[kind]
    return {**reasons, **names}


def published(config: RunConfig, kinds: Collection[str]) -> dict[str, int]:
    """Mapping of source to the size of its public set, for the sources among `kinds` that have one."""
    sizes = {}
    for source in config.problems.sources:
        if (
            isinstance(source, FileSource)
            and source.kind in kinds
            and source.published is not None
            and source.is_whole
        ):
            sizes[source.kind] = source.published[0]
    return sizes


def incomplete_warnings(session: Session) -> list[str]:
    """Return a warning for each public set that the figures do not cover completely, or that was edited."""
    in_figures = Counter(problem.source for problem in session.heldout)
    sizes = published(session.config, {problem.source for problem in session.loaded.heldout})
    lines = [
        f"WARNING: the figures are over {in_figures[kind]} of the {size} problems of the public "
        f"set {kind}; published figures are over all"
        for kind, size in sizes.items()
        if in_figures[kind] < size
    ]
    return lines + [f"WARNING: {line}" for line in edited(session.heldout)]


def log_unanswered(session: Session) -> None:
    """Log problems whose prompts leave no room for an answer; their answers are empty and fail."""
    prompts = [session.prompts[p.id] for p in session.heldout]
    too_long = [prompt for prompt in prompts if session.room_after(prompt.tokens_P) == 0]
    if too_long:
        shortest = min(too_long, key=lambda prompt: len(prompt.tokens_P))
        number = f"{len(too_long)} of {len(prompts)} problems"
        length = f"the shortest, {shortest.problem_id}, has {len(shortest.tokens_P)}"
        log_line(
            f"not answered: the prompts of {number} fill the model's context of"
            f" {session.policy.context} tokens ({length}); they count as failed"
        )


def result_of(history: History, run: str, plan: EvaluationPlan) -> EvaluationRecord | None:
    """Return the finished evaluation of a plan; None if the history does not hold it."""
    stored = history.evaluation(plan.key(run))
    return stored if stored is not None and stored.status == "done" else None


async def record(session: Session, batch: Batch, plan: EvaluationPlan) -> EvaluationRecord:
    """Summarise a graded evaluation and record it."""
    summary = summarise(session, batch, plan)
    session.recorder.put("record_evaluation", [summary])
    await session.recorder.settle()
    session.recorder.take_spent()  # belongs to no step
    return summary


async def record_failure(recorder: Recorder, run: str, plan: EvaluationPlan) -> None:
    """Record that an evaluation failed; the run goes on, and the same command retries it."""
    recorder.put("record_evaluation", [plan.record(run, status="failed")])
    await recorder.settle()


def passed_by_turn(batch: Batch, bounds: Bounds) -> dict[int, dict[str, float]]:
    """Mapping of turn to problem to the share of its answers that had passed by the end of the turn; empty
    except for episodes without tools."""
    has_turns = any(stored.rollout.n_turns for stored in batch.rollouts.values())
    if not bounds.whole_answers or not has_turns:
        return {}
    groups = {problem_id: batch.group(problem_id) for problem_id in batch.problem_ids}

    def rate(group: list[StoredRollout], turn: int) -> float:
        by_then = [s.passed and (s.rollout.n_turns or 0) <= turn for s in group]
        return sum(by_then) / max(len(group), 1)

    turns = range(1, bounds.most_turns + 1)
    return {turn: {p: rate(group, turn) for p, group in groups.items()} for turn in turns}


def policy_in_words(config: RunConfig, plan: EvaluationPlan) -> str:
    """Name of the evaluated policy in log lines."""
    if config.run.purpose != "train":
        return config.evaluation.weights or config.tinker.student
    if plan.policy == "student":
        return f"student after {counted(plan.step, 'step')}"
    return plan.policy


def in_words(
    session: Session, batch: Batch, plan: EvaluationPlan, record: EvaluationRecord
) -> list[str]:
    """The log lines of an evaluation: pass@1 with its interval and kind, then by source of problems if there are
    several, then by the end of each turn of episodes without tools. By turn 1 it is single-shot pass@1."""
    config, history = session.config, session.history
    kind = ", ".join([record.split, *record.conditions])
    problems = counted(record.n_problems, f"{kind} problem")
    whole = view_of(history, record)
    spent = kind_in_words(record, cost_of(history, record))
    where = f"on {problems} × {record.samples}; {spent}"
    lines = [f"{policy_in_words(config, plan)}: {_pass_at_1(whole.pass_at_1)} {where}"]
    parts = by_source(history, whole)
    for source, view in parts.items() if len(parts) > 1 else ():
        lines.append(f"  {source}: {_pass_at_1(view.pass_at_1)} on {view.pass_at_1.n}")
    if (faultless := whole.faultless) is not None:
        sound = f"{_pass_at_1(faultless.pass_at_1)} on {faultless.pass_at_1.n}"
        known = ", ".join(record.errata)
        lines.append(f"  without the {len(record.errata)} with known faults: {sound} ({known})")
    for turn, rates in passed_by_turn(batch, config.episode).items():
        lines.append(f"  by turn {turn}: {_pass_at_1(mean_interval(list(rates.values())))}")
    return lines


def _pass_at_1(rate: Interval) -> str:
    return f"pass@1 {rate.mean:.3f} [{rate.lo:.3f}, {rate.hi:.3f}]"
