"""Where a train step's time goes: sample, grade, score, train, store, Prefect, and the share that is ours to lose.

    python -m benchmarks.step [--steps 10]
    python -m benchmarks.step --staleness      # overlapping steps, see overlap.py

Runs the demo's first steps twice with the same seeds, on fresh histories and empty verdict caches: through the Prefect flow, and
through the same functions without Prefect. Stages of a step overlap, so their seconds add up to more than the step. `work` is the
time in which at least one stage was under way; what is left of `total` is the pipeline's own, and the difference between the
two runs is Prefect's.

The history's share is told twice: the time for which the step waited for it (`store_waited`; all else of `store` happens beside
other work), and the CPU time that it took, of all cores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")

from rich.console import Console
from rich.table import Table

from benchmarks.overlap import compare

STAGES = ("sample", "grade", "score", "train", "store", "store_waited", "work", "total")


def overrides(folder: Path, name: str, steps: int, per_step: int) -> list[str]:
    """The demo, cut to so many steps, under a folder of its own."""
    return [
        f"run.name={name}",
        f"run.directory={folder}",
        f"run.history={folder / name}.duckdb",
        "run.epochs=1",
        "learning.warm_start_steps=0",
        f"problems.sources.0.train={steps * per_step}",
        f"curriculum.problems_per_step={per_step}",
        "problems.sources.0.heldout=2",
        "evaluation.samples=4",
        "evaluation.teacher=false",
    ]


async def without_prefect(config: str, settings: list[str]) -> None:
    """The steps of a run by the functions that the tasks call."""
    from rtl_core.config import load_config
    from rtl_core.rollouts import batch, datums, planning, scoring, training
    from rtl_core.run.session import open_session

    async with open_session(load_config(config, settings)) as session:
        await planning.plan_run(session)
        for state in session.steps:
            step = batch.open_batch(session, await planning.batch_of(session, state))

            async def group(problem_id: str, step: batch.Batch = step) -> None:
                await batch.sample(session, step, problem_id)
                await asyncio.gather(batch.grade(session, step, problem_id), scoring.score(session, step, problem_id))
                datums.credit_group(session, step, problem_id)

            await asyncio.gather(*(group(problem_id) for problem_id in state.problem_ids))
            await training.train(session, step)


async def with_prefect(config: str, settings: list[str]) -> None:
    """The same steps by the train flow."""
    from rtl_distill.flows.train import train

    await train(config, settings)


def step_times(history: Path, run: str) -> dict[str, list[float]]:
    """Stage -> seconds of each step but the first, which warms up what is loaded late."""
    from rtl_core.history.store import History

    table = History(history, read_only=True).query(
        "SELECT name, value FROM step_metrics WHERE run = ? AND (name LIKE 'time/%' OR name = 'cpu/store') AND step > 0",
        [run],
    )
    times: dict[str, list[float]] = {stage: [] for stage in (*STAGES, "cpu/store")}
    for row in table.to_pylist():
        times.setdefault(row["name"].removeprefix("time/"), []).append(row["value"])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--steps", type=int, default=10, help="steps of each run (default 10; the first is not counted)"
    )
    parser.add_argument("--config", default="demo")
    parser.add_argument(
        "--staleness",
        action="store_true",
        help="compare steps with and without overlap at a cloud's stage times instead",
    )
    parser.add_argument("--factor", type=float, default=0.1, help="with --staleness: scale of the cloud's stage times")
    arguments = parser.parse_args()
    if arguments.staleness:
        sys.exit(not compare(arguments.steps, arguments.factor))
    with tempfile.TemporaryDirectory(prefix="rtl-distill-bench-") as name:
        folder = Path(name)
        for run, work in (("plain", without_prefect), ("prefect", with_prefect)):
            asyncio.run(work(arguments.config, overrides(folder, run, arguments.steps, per_step=8)))
        measured = {run: step_times(folder / f"{run}.duckdb", run) for run in ("plain", "prefect")}
    mean = {
        run: {stage: statistics.fmean(seconds or [0.0]) for stage, seconds in times.items()}
        for run, times in measured.items()
    }
    total = mean["prefect"]["total"]
    table = Table(title=f"seconds a step, mean of {arguments.steps - 1} steps")
    for column in ("stage", "through Prefect", "without", "share of the step"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for stage in STAGES:
        row = [mean[run][stage] for run in ("prefect", "plain")]
        table.add_row(
            stage, f"{row[0]:.3f}", f"{row[1]:.3f}", f"{row[0] / total:.1%}", end_section=stage == "store_waited"
        )
    prefect = total - mean["plain"]["total"]  # below 0 it is lost in the noise between the two runs
    table.add_row("Prefect", f"{prefect:+.3f}", "", f"{prefect / total:+.1%}")
    Console().print(table)
    ours = total - mean["prefect"]["work"]
    print(f"ours to lose: {ours:.3f} s of {total:.3f} s a step ({ours / total:.1%}): no stage was under way")
    store, cores = mean["prefect"], os.cpu_count() or 1
    print(
        f"the history: {1e3 * store['store_waited']:.0f} ms of a step are spent waiting for it ({store['store_waited'] / total:.1%}), "
        f"{1e3 * store['cpu/store']:.0f} ms of CPU ({store['cpu/store'] / total / cores:.1%} of {cores} cores); target < 2 % each"
    )


if __name__ == "__main__":
    main()
