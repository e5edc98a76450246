"""Regrade: grade what a run sampled again, with other tools or another seed, and tell which verdicts change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from prefect import flow
from pydantic import Field

from rtl_core.errors import InfrastructureError
from rtl_core.observe.progress import progress
from rtl_core.rollouts import regrading, reopen
from rtl_core.rollouts.concurrently import for_each
from rtl_distill.tasks.cluster import cluster_of
from rtl_distill.tasks.logs import lines_in_flow_run_log
from rtl_distill.tasks.regrading import regrade_problem


@flow(name="regrade", flow_run_name="regrade {run}", validate_parameters=True)
async def regrade(
    run: str,
    history: str = "runs/history.duckdb",
    label: str | None = None,
    executor: Literal["bubblewrap", "docker"] | None = None,
    image: str | None = None,
    seed: Annotated[int, Field(ge=0)] | None = None,
    purpose: Literal["all", "train", "evaluation"] = "all",
    first_step: Annotated[int, Field(ge=0)] = 0,
    last_step: Annotated[int, Field(ge=0)] = 2**31 - 1,
    most: Annotated[int, Field(ge=1)] = 2**31 - 1,
) -> str:
    """Grade rollouts of a stored run again. What training saw stays as it is; the same label goes on where it stopped.

    Args:
        run: name of the run.
        history: the DuckDB file that holds it.
        label: name of the regrading; executor, tools and seed by default.
        executor: where the harness runs; the run's own by default.
        image: simulation image of the Docker executor.
        seed: random seed of the harnesses; the run's own by default.
        purpose: training rollouts, those of evaluations, or all.
        first_step: first step to look at.
        last_step: last step to look at.
        most: how many rollouts at most.

    Returns:
        The label, under which the history keeps the verdicts.

    Raises:
        InfrastructureError: grading itself failed for some; the same command tries those again.
    """
    settings, tell = reopen.settings_of(Path(history), run), progress.get()
    changes = {name: value for name, value in (("executor", executor), ("seed", seed)) if value is not None}
    settings = settings.model_copy(update={"grading": settings.grading.model_copy(update=changes)})
    choice = regrading.Choice(purpose, first_step, last_step, most)
    with (
        lines_in_flow_run_log(),
        cluster_of(settings) as cluster,
        regrading.open_regrading(
            Path(history), settings, choice, label=label, image=image, cluster=cluster
        ) as under_way,
    ):
        waiting = sum(map(len, under_way.waiting.values()))
        tell.stage(f"regrade {under_way.label}: {waiting} rollouts, {under_way.known} known from before")
        done = 0
        bound = asyncio.Semaphore(2 * under_way.graders)

        async def one(problem_id: str) -> None:
            nonlocal done
            async with bound:
                await regrade_problem(under_way, problem_id)
            done += 1
            tell.advance("problems", done, len(under_way.waiting))

        await for_each(one, under_way.waiting)
        tell.line(under_way.in_words())
        tell.show(under_way.changes())
        if under_way.failed:
            ((reason, _),) = under_way.failed.most_common(1)
            raise InfrastructureError(
                f"grading failed for {under_way.failed.total()} rollouts: {reason}", "the same command tries them again"
            )
        return under_way.label
