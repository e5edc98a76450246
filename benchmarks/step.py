"""Measure where a train step's time goes: sample, grade, score, train, store, Prefect, and the overhead of
the pipeline itself.

    python -m benchmarks.step [--steps 10]

Runs the demo's first steps twice with the same seeds, on fresh histories and empty verdict caches: through
the Prefect flow, and through the same functions without Prefect. Stages of a step overlap, so their seconds
add up to more than the step. `work` is the time in which at least one stage was running; the rest of
`total` is the pipeline's overhead, and the difference between the two runs is Prefect's. The history has
two figures: how long the step waited for it (`store_waited`; the rest of `store` overlaps other work), and
its CPU time.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")

from benchmarks.common import options, run_settings, show
from rtl_core.config import load_config
from rtl_core.history.store import History
from rtl_core.rollouts import batch, datums, planning, scoring, training
from rtl_core.run.opening import open_session
from rtl_core.run.session import Session
from rtl_distill.operations.temporary_server import start_temporary_server
from rtl_grader.work import all_of

STAGES = ("sample", "grade", "score", "train", "store", "store_waited", "work", "total")


def overrides(folder: Path, name: str, steps: int) -> list[str]:
    """The demo, limited to `steps` steps, with its files in `folder`."""
    return [
        *run_settings(name, folder, f"{name}.duckdb"),
        "run.epochs=1",
        "learning.warm_start_steps=0",
        f"problems.sources.0.train={8 * steps}",
        "curriculum.problems_per_step=8",
        "problems.sources.0.heldout=2",
        "evaluation.samples=4",
        "evaluation.teacher=false",
    ]


async def without_prefect(settings: list[str]) -> None:
    """Run the steps by the functions that the tasks call."""
    async with open_session(load_config("demo", settings)) as session:
        await planning.plan_run(session)
        for state in list(session.weights.steps):
            step = await planning.batch_of(session, state)
            await all_of(_group(session, step, problem_id) for problem_id in step.problem_ids)
            await training.train(session, step)


async def _group(session: Session, step: batch.Batch, problem_id: str) -> None:
    await batch.sample(session, step, problem_id)
    await asyncio.gather(
        batch.grade(session, step, problem_id), scoring.score(session, step, problem_id)
    )
    datums.credit_group(session.config, session.recorder, step, problem_id)


def step_times(history: Path) -> dict[str, float]:
    """Stage -> mean seconds of a step, without the first (warm-up); also `cpu/store`."""
    rows = History(history, read_only=True).query(
        "SELECT name, avg(value) AS value FROM step_metrics WHERE (name LIKE 'time/%' OR name = "
        "'cpu/store') AND step >= 1 GROUP BY name"
    )
    found = {row["name"].removeprefix("time/"): row["value"] for row in rows.to_pylist()}
    return {**dict.fromkeys((*STAGES, "cpu/store"), 0.0), **found}


def compare_prefect(folder: Path, steps: int) -> None:
    """Print the duration of a step with and without Prefect, and the pipeline's own share."""
    from rtl_distill.flows.train import train

    asyncio.run(without_prefect(overrides(folder, "plain", steps)))
    asyncio.run(train("demo", overrides(folder, "prefect", steps)))
    plain, prefect = (step_times(folder / f"{run}.duckdb") for run in ("plain", "prefect"))
    total = prefect["total"]
    rows = [
        (x, f"{prefect[x]:.3f}", f"{plain[x]:.3f}", f"{prefect[x] / total:.1%}") for x in STAGES
    ]
    added = total - plain["total"]  # negative where it is within the noise between the two runs
    last = ("Prefect", f"{added:+.3f}", "", f"{added / total:+.1%}")
    columns = ("stage", "through Prefect", "without", "share of the step")
    show(f"seconds a step, mean of {steps - 1} steps", columns, [*rows, last])
    ours = total - prefect["work"]
    print(
        f"pipeline overhead: {ours:.3f} s of {total:.3f} s a step ({ours / total:.1%}), with no stage running"
    )
    waited, store, cores = prefect["store_waited"], prefect["cpu/store"], os.cpu_count() or 1
    print(
        f"history: a step waits {1e3 * waited:.0f} ms for it ({waited / total:.1%}), "
        f"and it takes {1e3 * store:.0f} ms of CPU ({store / total / cores:.1%} of {cores} cores); target < 2 % each"
    )


def main() -> None:
    parser = options(__doc__, steps=(10, "of each run; the first is not counted"))
    given = parser.parse_args()
    if given.steps < 2:
        parser.error("--steps must be at least 2, because the first is not counted")
    with tempfile.TemporaryDirectory(prefix="rtl-distill-bench-") as name:
        start_temporary_server()  # as a command has it
        compare_prefect(Path(name), given.steps)


if __name__ == "__main__":
    main()
