"""Tasks over one group: the answers to one problem in one step or evaluation."""

from __future__ import annotations

from rtl_core.rollouts import batch as batches
from rtl_core.rollouts import planning, scoring, turns
from rtl_core.rollouts.batch import Batch
from rtl_core.run.session import Session
from rtl_distill.tasks.retrying import step_task


@step_task("sample group", "sample {problem_id} ({batch.title})")
async def sample_group(session: Session, batch: Batch, problem_id: str) -> int:
    """Sample what is missing of a group; returns how many rollouts were sampled."""
    return await batches.sample(session, batch, problem_id)


@step_task("grade group", "grade {problem_id} ({batch.title})")
async def grade_group(session: Session, batch: Batch, problem_id: str) -> int:
    """Grade what is ungraded of a group; returns how many answers passed."""
    return await batches.grade(session, batch, problem_id)


@step_task("teacher-score group", "score {problem_id} ({batch.title})")
async def score_group(session: Session, batch: Batch, problem_id: str) -> float:
    """Teacher's log-probabilities of a group; returns its mean KL per token in nats."""
    return await scoring.score(session, batch, problem_id)


@step_task("refine group", "turn {turn} of {problem_id} ({batch.title})")
async def refine_group(session: Session, batch: Batch, problem_id: str, turn: int) -> int:
    """A further answer to each that failed, sampled, graded and, in training with a teacher, scored; returns how many passed."""
    return await turns.refine(session, batch, turn, problem_id, score=planning.needs_scores(session, batch))
