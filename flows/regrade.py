"""Regrade: grade a run's answers again, with other tools or another seed, and report which verdicts change."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from prefect import flow
from pydantic import Field

from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.reporting.console import rich_table
from rtl_core.rollouts.regrading import open_regrading
from rtl_core.rollouts.resumable import ALL, Choice, refuse_failed
from rtl_core.run.folder import config_of
from rtl_distill.tasks.cluster import cluster_of
from rtl_distill.tasks.logs import lines_in_flow_run_log
from rtl_distill.tasks.orchestration import tag_with_run
from rtl_distill.tasks.steps import regrade_problem
from rtl_grader.progress import progress
from rtl_grader.words import counted
from rtl_grader.work import Tally, process_all


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
    """Grade rollouts of a stored run again. The verdicts used in training do not change; repeating a label resumes it.

    Args:
        run: name of the run.
        history: the DuckDB file that holds it.
        label: name of the regrading; executor, tools and seed by default.
        executor: where the harness runs; the run's own by default.
        image: simulation image of the Docker executor.
        seed: random seed of the harnesses; the run's own by default.
        choice: which of the run's rollouts; all by default.

    Returns:
        The label under which the history stores the verdicts.

    Raises:
        InfrastructureError: grading itself failed for some rollouts; the same command retries them.
    """
    settings, tell = config_of(History(Path(history), read_only=True), run), progress.get()
    options = {"executor": executor, "image": image, "seed": seed}
    changes = {name: value for name, value in options.items() if value is not None}
    settings = settings.but("grading", **changes)
    if image is not None and settings.grading.executor != "docker":
        words = f"the executor {settings.grading.executor} uses no image"
        raise ConfigError(words, "add --executor docker, or omit --image")
    with (
        lines_in_flow_run_log(),
        cluster_of(settings) as cluster,
        open_regrading(
            Path(history), settings, choice, label=label, cluster=cluster
        ) as regrading,
    ):
        await tag_with_run(run)
        waiting = sum(map(len, regrading.waiting.values()))
        tell.stage(
            f"regrade {regrading.label}: {counted(waiting, 'rollout')}, {regrading.n_known} regraded before"
        )
        tally = Tally("problems", len(regrading.waiting))
        concurrency = 2 * regrading.pool.threads
        await process_all(
            regrading.waiting,
            partial(regrade_problem, regrading),
            tally,
            concurrency=concurrency,
        )
        tell.line(regrading.in_words())
        tell.show(rich_table(regrading.changes()))
        refuse_failed("grading", "rollouts", regrading.failed)
        return regrading.label
