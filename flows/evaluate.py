"""Evaluate: sample and grade every held-out problem with one policy, and record pass@k with intervals."""

from __future__ import annotations

import asyncio
from typing import Literal

from prefect import flow

from rtl_core.pipeline import batch, evaluation
from rtl_core.pipeline.progress import progress
from rtl_core.pipeline.session import session_of
from tasks.groups import grade_group, sample_group


@flow(name="evaluate-policy", flow_run_name="{run} {policy} after {step} steps")
async def evaluate_policy(run: str, policy: Literal["student", "teacher"], step: int) -> None:
    """Evaluate student or teacher after `step` train steps, unless the history holds that evaluation already."""
    session = session_of(run)
    if evaluation.is_done(session, policy, step):
        return
    name = f"evaluation: {policy}" + (f" after {step} steps" if policy == "student" else "")
    progress.get().stage(name)
    held = batch.register(session, evaluation.evaluation_batch(session, policy, step))
    done = 0

    async def group(problem_id: str) -> None:
        nonlocal done
        await sample_group(run, held.key, problem_id)
        await grade_group(run, held.key, problem_id)
        done += 1
        progress.get().advance("problems", done, len(held.problem_ids))

    async with asyncio.TaskGroup() as groups:
        for problem_id in held.problem_ids:
            groups.create_task(group(problem_id))
    record = await evaluation.record(session, held, policy)
    progress.get().line(evaluation.in_words(record))
    batch.release(session, held)
