"""Regrade: grade what a run sampled again, with other tools or another seed, and tell which verdicts change."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from prefect import flow
from pydantic import Field

from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.observe.progress import progress
from rtl_core.reporting.text import counted
from rtl_core.rollouts.regrading import open_regrading
from rtl_core.rollouts.resumable import ALL, Choice, Tally, refuse_failed, work_off
from rtl_core.run.folder import config_of
from rtl_core.run.graders import graders_of
from rtl_distill.tasks.cluster import cluster_of
from rtl_distill.tasks.logs import lines_in_flow_run_log
from rtl_distill.tasks.steps import regrade_problem


@flow(name="regrade", flow_run_name="regrade {run}", validate_parameters=True)
async def regrade(
    run: str,
    history: str = "runs/history.duckdb",
    label: str | None = None,
    executor: Literal["bubblewrap", "docker"] | None = None,
    image: str | None = None,
    seed: Annotated[int, Field(ge=0)] | None = None,
    choice: Choice = ALL,
) -> str:
    """Grade rollouts of a stored run again. What training saw stays as it is; the same label goes on where it stopped.

    Args:
        run: name of the run.
        history: the DuckDB file that holds it.
        label: name of the regrading; executor, tools and seed by default.
        executor: where the harness runs; the run's own by default.
        image: simulation image of the Docker executor.
        seed: random seed of the harnesses; the run's own by default.
        choice: which of the run's rollouts; all by default.

    Returns:
        The label, under which the history keeps the verdicts.

    Raises:
        InfrastructureError: grading itself failed for some; the same command tries those again.
    """
    settings, tell = config_of(History(Path(history), read_only=True), run), progress.get()
    given = {"executor": executor, "image": image, "seed": seed}
    changes = {name: value for name, value in given.items() if value is not None}
    settings = settings.model_copy(update={"grading": settings.grading.model_copy(update=changes)})
    if image is not None and settings.grading.executor != "docker":
        words = f"the executor {settings.grading.executor} uses no image"
        raise ConfigError(words, "add --executor docker, or leave --image out")
    with (
        lines_in_flow_run_log(),
        cluster_of(settings) as cluster,
        open_regrading(Path(history), settings, choice, label=label, cluster=cluster) as regrading,
    ):
        waiting = sum(map(len, regrading.waiting.values()))
        tell.stage(f"regrade {regrading.label}: {counted(waiting, 'rollout')}, {regrading.known} known from before")
        tally = Tally("problems", len(regrading.waiting))
        at_once = 2 * graders_of(settings, cluster)
        await work_off(regrading.waiting, partial(regrade_problem, regrading), tally, at_once=at_once)
        tell.line(regrading.in_words())
        tell.show(regrading.changes())
        refuse_failed("grading", "rollouts", regrading.failed)
        return regrading.label
