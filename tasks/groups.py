"""Tasks over one group: the answers to one problem in one step or evaluation."""

from __future__ import annotations

from rtl_core.pipeline import batch, planning, refining
from rtl_core.pipeline.session import session_of
from tasks.retrying import step_task


@step_task("sample group", "sample {problem_id} ({key})")
async def sample_group(run: str, key: str, problem_id: str) -> int:
    """Sample what is missing of a group; returns how many rollouts were sampled."""
    return await batch.sample(session_of(run), batch.batch_of(run, key), problem_id)


@step_task("grade group", "grade {problem_id} ({key})")
async def grade_group(run: str, key: str, problem_id: str) -> int:
    """Grade what is ungraded of a group; returns how many answers passed."""
    return await batch.grade(session_of(run), batch.batch_of(run, key), problem_id)


@step_task("teacher-score group", "score {problem_id} ({key})")
async def score_group(run: str, key: str, problem_id: str) -> float:
    """Teacher's log-probabilities of a group; returns its mean KL per token in nats."""
    return await batch.score(session_of(run), batch.batch_of(run, key), problem_id)


@step_task("refine group", "turn {turn} of {problem_id} ({key})")
async def refine_group(run: str, key: str, problem_id: str, turn: int) -> int:
    """A further answer to each that failed, sampled, graded and, in training with a teacher, scored; returns how many passed."""
    session, first = session_of(run), batch.batch_of(run, key)
    score = planning.needs_scores(session, first)
    return await refining.refine(session, first, turn, problem_id, score=score)
