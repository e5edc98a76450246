"""What overlapping steps gain where every stage takes as long as in the cloud: `python -m benchmarks.step --staleness`.

Stage times of a real job (35B student, 397B teacher, CVDP): sampling 44 s, grading 30 s, scoring 10 s, training 31 s. They are
simulated, scaled by a factor, as delays in front of an embedded service (slow_service.py) and in the grader, around the real work
of the demo's models and simulators. Nothing else is simulated: the steps are planned, sampled, graded, scored, trained and recorded by
the functions that the tasks of the flow call, in the same pipeline.

A step is the time from one trained step to the next, in the middle of a run. A stage's seconds are those in which any of its work of
one step was under way, as the history has them. The limit is held against the longest stage of steps that do not overlap, whose
stages are not lengthened by another step's work on the same cores. Two steps may be sampled at the same time, as in the cloud.

By arithmetic (tests/rollouts/test_run_ahead_times.py): a step's chain is 22 s until its first group, 30 s of grading and 31 s of training,
83 s, of which two are under way: 41.5 s. Were no group graded before the last is sampled, it would be 52.5 s, 1.19 times the longest.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

CLOUD_S = {"sample": 44.0, "grade": 30.0, "score": 10.0, "train": 31.0}
GROUPS, ANSWERS, GRADERS = 8, 2, 4
LIMIT = 1.15
"""A step with a staleness of 1 may take so many times its longest stage."""


class SlowGrader:
    """A grader whose every distinct answer takes `seconds` longer."""

    def __init__(self, grader: Any, seconds: float) -> None:
        self._grader = grader
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grader, name)

    def grade(self, problem: Any, answer: Any) -> Any:
        time.sleep(self._seconds)
        return self._grader.grade(problem, answer)


@contextmanager
def slow_service(state: Path, factor: float) -> Iterator[tuple[str, str, str]]:
    """A slow service with the demo's models; yields (URL, student's name, teacher's name). Names are paths, so that the
    tokenizers are found as a cloud's are."""
    from rtl_core.tinymodels import model_path

    student, teacher = str(model_path("student")), str(model_path("teacher"))
    os.environ["TINKER_API_KEY"] = f"tml-bench-{secrets.token_hex(8)}"
    environment = {
        **os.environ,
        "SLOW_SAMPLE": str(factor * CLOUD_S["sample"]),
        "SLOW_SCORE": str(factor * CLOUD_S["score"]),
        "SLOW_TRAIN": str(factor * CLOUD_S["train"]),
        "SLOW_GROUPS": str(GROUPS),
        "SLOW_ANSWERS": str(ANSWERS),
    }
    command = [sys.executable, "-m", "benchmarks.slow_service", "--state", str(state), "--die-with-parent"]
    command += ["--model", f"{student}={student}", "--model", f"{teacher}={teacher}"]
    with (state.parent / f"{state.name}.log").open("wb") as log:
        service = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert service.stdout is not None
            yield json.loads(service.stdout.readline())["base_url"], student, teacher
        finally:
            service.terminate()
            service.wait()


async def run_steps(folder: Path, service: tuple[str, str, str], staleness: int, steps: int, factor: float) -> Path:
    """A run of so many steps; returns its history."""
    url, student, teacher = service
    from rtl_core.config import load_config
    from rtl_core.rollouts import batch, datums, planning, scoring, training
    from rtl_core.rollouts.side_by_side import all_of, in_order
    from rtl_core.run.session import open_session

    config = load_config(
        "demo",
        [
            "run.name=overlap",
            f"run.directory={folder / str(staleness)}",
            f"run.history={folder / str(staleness)}.duckdb",
            "run.epochs=1",
            f"problems.sources.0.train={steps * GROUPS}",
            "learning.warm_start_steps=0",
            "learning.kl_schedule=constant",
            "learning.replace_with_kl=false",
            "problems.sources.0.heldout=1",
            f"tinker.base_url={url}",
            f"tinker.student={student}",
            f"tinker.teacher={teacher}",
            f"curriculum.problems_per_step={GROUPS}",
            f"sampling.group_size={ANSWERS}",
            "sampling.seeded=false",
            f"grading.workers={GRADERS}",
            f"learning.staleness={staleness}",
            "learning.learning_rate=1e-5",
        ],
    )
    async with open_session(config) as session:
        session.grader = SlowGrader(session.grader, factor * CLOUD_S["grade"] * GRADERS / (GROUPS * ANSWERS))  # type: ignore[assignment]
        await planning.plan_run(session)

        async def prepare(state: Any) -> batch.Batch:
            step = batch.open_batch(session, await planning.batch_of(session, state))

            async def group(problem_id: str) -> None:
                await batch.sample(session, step, problem_id)
                await asyncio.gather(batch.grade(session, step, problem_id), scoring.score(session, step, problem_id))
                datums.credit_group(session, step, problem_id)

            await all_of(map(group, step.problem_ids))
            return step

        async def finish(step: batch.Batch) -> None:
            await training.train(session, step)

        async def after(step: batch.Batch) -> None:
            pass

        await in_order(
            planning.todo(session, 0),
            prepare=prepare,
            finish=finish,
            after=after,
            stop=lambda _: None,
            ahead=staleness,
        )
    return config.run.history


def measured(path: Path, skip: int) -> tuple[float, dict[str, float]]:
    """Seconds from one trained step to the next, and of each stage of a step; means without the first `skip` steps."""
    from rtl_core.history.store import History

    history = History(path, read_only=True)
    times = {
        row["stage"]: row["s"]
        for row in history.query(
            "SELECT stage, avg(seconds) AS s FROM step_times WHERE step >= ? GROUP BY stage", [skip]
        ).to_pylist()
    }
    ends = [state.trained_at for state in history.steps("overlap") if state.trained_at is not None]
    periods = [(later - earlier).total_seconds() for earlier, later in zip(ends[skip - 1 :], ends[skip:], strict=False)]
    return statistics.fmean(periods), {stage: times[stage] for stage in CLOUD_S}


def compare(steps: int, factor: float) -> bool:
    """Print both, and whether the overlap keeps its promise."""
    with tempfile.TemporaryDirectory(prefix="rtl-distill-overlap-") as name:
        folder = Path(name)

        async def both(service: tuple[str, str, str]) -> dict[int, Path]:
            return {staleness: await run_steps(folder, service, staleness, steps, factor) for staleness in (0, 1)}

        with slow_service(folder / "service", factor) as service:
            found = {staleness: measured(path, skip=2) for staleness, path in asyncio.run(both(service)).items()}
    table = Table(title=f"seconds a step, the cloud's stage times × {factor:g}, mean of {steps - 2} steps")
    for column in ("", "staleness 0", "staleness 1", "simulated"):
        table.add_column(column, justify="right" if column else "left")
    for stage, seconds in CLOUD_S.items():
        table.add_row(stage, *(f"{found[s][1][stage]:.2f}" for s in (0, 1)), f"{factor * seconds:.2f}")
    sums = [sum(found[s][1].values()) for s in (0, 1)]
    longest = max(found[0][1].values())
    table.add_row("sum of the stages", *(f"{value:.2f}" for value in sums), f"{factor * sum(CLOUD_S.values()):.2f}")
    table.add_row(
        "longest stage", *(f"{max(found[s][1].values()):.2f}" for s in (0, 1)), f"{factor * max(CLOUD_S.values()):.2f}"
    )
    table.add_row("[bold]the step", *(f"[bold]{found[s][0]:.2f}" for s in (0, 1)), "")
    table.add_row("of the longest at staleness 0", *(f"{found[s][0] / longest:.2f} ×" for s in (0, 1)), f"≤ {LIMIT} ×")
    table.add_row("of the sum at staleness 0", *(f"{found[s][0] / sums[0]:.2f} ×" for s in (0, 1)), "")
    Console(width=120).print(table)
    kept = found[1][0] <= LIMIT * longest
    print(f"a step with staleness 1 {'keeps' if kept else 'BREAKS'} its limit of {LIMIT} × its longest stage")
    return kept
