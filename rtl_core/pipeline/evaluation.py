"""Evaluation of a policy on held-out problems: what is sampled, and the figures that are recorded of it."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import numpy as np

from rtl_core.history.records import EvaluationRecord, utc_now
from rtl_core.learning.intervals import mean_interval
from rtl_core.learning.passk import pass_at_k
from rtl_core.pipeline.batch import Batch
from rtl_core.pipeline.session import Session


def evaluation_key(run: str, policy: Literal["student", "teacher"], step: int) -> str:
    """Primary key of an evaluation: one per policy and number of train steps."""
    return f"{run}/{policy}/{step:05d}"


def evaluation_batch(session: Session, policy: Literal["student", "teacher"], step: int) -> Batch:
    """The batch of an evaluation: every usable held-out problem, `evaluation.samples` answers each."""
    return Batch(
        purpose="evaluation",
        evaluation=evaluation_key(session.run, policy, step),
        epoch=-1,
        step=step,
        policy_step=step,
        problem_ids=tuple(problem.id for problem in session.usable(session.loaded.heldout)),
        group_size=session.config.evaluation.samples,
        sampler=policy,
        sampler_path=session.checkpoint.sampler_path if session.checkpoint and policy == "student" else None,
    )


def summarise(session: Session, batch: Batch, policy: Literal["student", "teacher"]) -> EvaluationRecord:
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
    return EvaluationRecord(
        key=batch.key,
        run=session.run,
        policy=policy,
        step=batch.step,
        split="heldout",
        status="done",
        n_problems=len(batch.problem_ids),
        samples=n,
        pass_at_1=interval.mean,
        lo=interval.lo,
        hi=interval.hi,
        pass_at_k={
            k: float(np.mean([pass_at_k(n, counts[p], k) for p in batch.problem_ids]))
            for k in session.config.evaluation.k
        },
        by_difficulty={name: float(np.mean(values)) for name, values in by_difficulty.items()},
        by_family={name: float(np.mean(values)) for name, values in by_family.items()},
        finished_at=utc_now(),
    )


def is_done(session: Session, policy: Literal["student", "teacher"], step: int) -> bool:
    """Whether the history already holds this evaluation whole."""
    stored = session.history.evaluation(evaluation_key(session.run, policy, step))
    return stored is not None and stored.status == "done"


async def record(session: Session, batch: Batch, policy: Literal["student", "teacher"]) -> EvaluationRecord:
    """Summarise a graded evaluation and write it."""
    summary = summarise(session, batch, policy)
    session.recorder.put("record_evaluation", [summary])
    await session.recorder.settle()
    return summary


def in_words(record: EvaluationRecord) -> str:
    """One line for a human."""
    return (
        f"{record.policy} after {record.step} steps: pass@1 {record.pass_at_1:.3f} "
        f"[{record.lo:.3f}, {record.hi:.3f}] on {record.n_problems} held-out problems × {record.samples}"
    )
