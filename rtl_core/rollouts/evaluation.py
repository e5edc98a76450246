"""Evaluation of a policy on held-out problems: what is sampled, and the figures that are recorded of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from rtl_core.errors import HistoryError
from rtl_core.history.records import EvaluationRecord, utc_now
from rtl_core.learning.intervals import mean_interval
from rtl_core.learning.passk import pass_at_k
from rtl_core.observe.progress import progress
from rtl_core.reporting import breakdown
from rtl_core.reporting.evaluations import by_source, view_of
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.turns import passed_by_turn
from rtl_core.run.session import Session
from rtl_core.types.rollout import PolicyName


@dataclass(frozen=True)
class EvaluationPlan:
    """Which policy is evaluated, after how many train steps, on which held-out split, with how many answers a problem."""

    policy: PolicyName
    step: int
    split: str
    samples: int
    sampler_path: str | None = None
    """Weights of the student; None for the untrained one and for the teacher."""
    template: str | None = None
    """Another prompt template than the run's own."""
    temperature: float | None = None
    """Another sampling temperature than the run's own."""

    def key(self, run: str) -> str:
        """Primary key of the evaluation in the history."""
        names = [self.split, self.template, None if self.temperature is None else f"temperature {self.temperature:g}"]
        name = ", ".join(name for name in names if name is not None)
        return f"{run}/{self.policy}/{self.step:05d}/{name}x{self.samples}"

    def record(self, run: str, **found: Any) -> EvaluationRecord:
        """What is recorded of the evaluation, with what was found."""
        return EvaluationRecord(
            key=self.key(run), run=run, policy=self.policy, step=self.step, split=self.split, template=self.template,
            temperature=self.temperature, samples=self.samples, finished_at=utc_now(), **found,
        )  # fmt: skip


def plan_evaluation(session: Session, policy: PolicyName, step: int) -> EvaluationPlan:
    """The evaluation of a run's own rhythm: its held-out split, `evaluation.samples` answers, its newest weights."""
    path = session.checkpoint.sampler_path if session.checkpoint and policy == "student" else None
    return EvaluationPlan(policy, step, session.loaded.heldout_split, session.config.evaluation.samples, path)


def evaluation_batch(session: Session, plan: EvaluationPlan) -> Batch:
    """The batch of an evaluation: every usable held-out problem."""
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
    """Figures of a graded evaluation: pass@1 with its 95 % interval over problems, pass@k, and by difficulty and family."""
    counts = {p: sum(s.verdict is not None and s.verdict.passed for s in batch.group(p)) for p in batch.problem_ids}
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


def show(session: Session, plan: EvaluationPlan) -> None:
    """Tell a finished evaluation in detail: pass@k with intervals by kind of problem, and paired with the run's others."""
    record = session.history.evaluation(plan.key(session.run))
    if record is None or record.status != "done":
        raise HistoryError(f"evaluation {plan.key(session.run)} has not been made", "run the command again")
    counts = breakdown.counts_of(session.history, record)
    ks = sorted({1, *(k for k in (2, 4, 8, 16, 32, 64, 128) if k <= plan.samples)})
    found = breakdown.slices(counts, session.problems, ks)
    progress.get().show(breakdown.table(record, found, breakdown.comparisons(session.history, record)))


def is_done(session: Session, plan: EvaluationPlan) -> bool:
    """Whether the history already holds this evaluation whole."""
    stored = session.history.evaluation(plan.key(session.run))
    return stored is not None and stored.status == "done"


async def record(session: Session, batch: Batch, plan: EvaluationPlan) -> EvaluationRecord:
    """Summarise a graded evaluation and write it."""
    summary = summarise(session, batch, plan)
    session.recorder.put("record_evaluation", [summary])
    await session.recorder.settle()
    return summary


async def record_failure(session: Session, plan: EvaluationPlan) -> None:
    """Write that an evaluation could not be finished; the run goes on, and the same command tries it again."""
    session.recorder.put("record_evaluation", [plan.record(session.run, status="failed")])
    await session.recorder.settle()


def sources_in_words(session: Session, record: EvaluationRecord) -> list[str]:
    """One line for each source of problems: pass@1 with its interval. None where all are of one source."""
    found = by_source(session.history, view_of(session.history, record))
    return [
        f"  {source}: pass@1 {view.pass_at_1.mean:.3f} [{view.pass_at_1.lo:.3f}, {view.pass_at_1.hi:.3f}] on {view.pass_at_1.n}"
        for source, view in (found.items() if len(found) > 1 else ())
    ]


def turns_in_words(batch: Batch) -> list[str]:
    """One line for each later turn: pass@1 by its end, with its interval. None for a single-shot evaluation."""
    lines = []
    for turn, rates in passed_by_turn(batch).items():
        if turn > 1:
            interval = mean_interval(list(rates.values()))
            lines.append(f"  by turn {turn}: pass@1 {interval.mean:.3f} [{interval.lo:.3f}, {interval.hi:.3f}]")
    return lines


def in_words(record: EvaluationRecord) -> str:
    """One line for a human."""
    problems = f"{record.n_problems} {', '.join([record.split, *record.conditions])} problems × {record.samples}"
    return (
        f"{record.policy} after {record.step} steps: pass@1 {record.pass_at_1:.3f} "
        f"[{record.lo:.3f}, {record.hi:.3f}] on {problems}"
    )
