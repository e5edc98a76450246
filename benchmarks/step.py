"""Measure where a train step's time goes: sample, grade, score, train, store, Prefect, and the overhead of the pipeline itself.

    python -m benchmarks.step [--steps 10]
    python -m benchmarks.step --staleness      # steps with and without overlap, at a cloud's stage times

Runs the demo's first steps twice with the same seeds, on fresh histories and empty verdict caches: through the Prefect flow, and through the
same functions without Prefect. Stages of a step overlap, so their seconds add up to more than the step. `work` is the time in which at
least one stage was running; the rest of `total` is the pipeline's overhead, and the difference between the two runs is Prefect's. The
history has two figures: how long the step waited for it (`store_waited`; the rest of `store` overlaps other work), and its CPU time.

`--staleness` compares overlapping steps with sequential ones. The stage times of a real job (35B student, 397B teacher, CVDP), scaled by a
factor, are added to backend and grader. A step is the time from one trained step to the next. The limit is relative to the longest stage of
sequential steps, which no other step's work slows down. By arithmetic (tests/rollouts/test_run_ahead.py) a step takes 22 s until its first
group, 30 s of grading and 31 s of training: 83 s, of which two steps overlap: 41.5 s. If grading began after the last sample it would be
52.5 s, 1.19 times the longest stage. The exit code is 1 if the limit is exceeded.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")

from benchmarks.common import EVERY_STEP_WITH_TEACHER, options, run_settings, show
from rtl_core.config import load_config
from rtl_core.history.store import History
from rtl_core.rollouts import batch, datums, planning, scoring, training
from rtl_core.rollouts.side_by_side import all_of, in_order
from rtl_core.run.session import open_session
from rtl_distill.operations.temporary_server import start_temporary_server

STAGES = ("sample", "grade", "score", "train", "store", "store_waited", "work", "total")
CLOUD_S = {"sample": 44.0, "grade": 30.0, "score": 10.0, "train": 31.0}
GROUPS, ANSWERS, GRADERS = 8, 2, 4
LIMIT = 1.15
"""Largest duration of a step with a staleness of 1, relative to its longest stage."""


def overrides(folder: Path, name: str, steps: int) -> list[str]:
    """The demo, limited to `steps` steps, with its files in `folder`."""
    return [
        *run_settings(name, folder, f"{name}.duckdb"),
        "run.epochs=1",
        "learning.warm_start_steps=0",
        f"problems.sources.0.train={steps * GROUPS}",
        f"curriculum.problems_per_step={GROUPS}",
        "problems.sources.0.heldout=2",
        "evaluation.samples=4",
        "evaluation.teacher=false",
    ]


class Slowed:
    """A wrapper that delays `sample`, `logprobs`, `step` and `grade` to the cloud's times, scaled by a factor. Groups are sampled between half
    of the stage's time and all of it, and answers are scored one after the other."""

    def __init__(self, part: Any, factor: float) -> None:
        self._part, self._factor = part, factor
        self._sampled, self._scored_at = 0, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)

    def grade(self, *arguments: Any) -> Any:
        time.sleep(self._factor * CLOUD_S["grade"] * GRADERS / (GROUPS * ANSWERS))
        return self._part.grade(*arguments)

    async def sample(self, *arguments: Any, **named: Any) -> Any:
        share = 0.5 + 0.5 * (self._sampled % GROUPS) / (GROUPS - 1)
        self._sampled += 1
        return await self._slowly(share * CLOUD_S["sample"], self._part.sample(*arguments, **named))

    async def logprobs(self, *arguments: Any) -> Any:
        now = time.monotonic() / self._factor
        self._scored_at = max(now, self._scored_at) + CLOUD_S["score"] / (GROUPS * ANSWERS)
        return await self._slowly(self._scored_at - now, self._part.logprobs(*arguments))

    async def open_trainer(self, *arguments: Any, **named: Any) -> Any:
        return Slowed(await self._part.open_trainer(*arguments, **named), self._factor)

    async def step(self, *arguments: Any) -> Any:
        return await self._slowly(CLOUD_S["train"], self._part.step(*arguments))

    async def _slowly(self, seconds: float, work: Coroutine[Any, Any, Any]) -> Any:
        done, _ = await asyncio.gather(work, asyncio.sleep(self._factor * seconds))
        return done


async def without_prefect(settings: list[str], factor: float = 0.0) -> None:
    """Run the steps by the functions that the tasks call; with a factor, at the cloud's stage times."""
    async with open_session(load_config("demo", settings)) as session:
        if factor:
            session.graders.grader = Slowed(session.graders.grader, factor)  # type: ignore[assignment]
            session.policy.backend = Slowed(session.policy.backend, factor)  # type: ignore[assignment]
        await planning.plan_run(session)

        async def prepare(state: Any) -> batch.Batch:
            step = batch.open_batch(session, await planning.batch_of(session, state))

            async def group(problem_id: str) -> None:
                await batch.sample(session, step, problem_id)
                await asyncio.gather(batch.grade(session, step, problem_id), scoring.score(session, step, problem_id))
                datums.credit_group(session, step, problem_id)

            await all_of(map(group, step.problem_ids))
            return step

        async def after(step: batch.Batch) -> None:
            pass

        ahead, finish = session.config.learning.staleness, partial(training.train, session)
        await in_order(
            session.weights.steps, prepare=prepare, finish=finish, after=after, stop=lambda _: None, ahead=ahead
        )


def step_times(history: Path, skip: int) -> dict[str, float]:
    """Stage -> mean seconds of a step, without the first `skip` (warm-up); also `cpu/store`, and `period`, from one trained step to the
    next."""
    opened = History(history, read_only=True)
    rows = opened.query(
        "SELECT name, avg(value) AS value FROM step_metrics WHERE (name LIKE 'time/%' OR name = 'cpu/store') AND step >= ? GROUP BY name",
        [skip],
    ).to_pylist()
    times = {
        **dict.fromkeys((*STAGES, "cpu/store"), 0.0),
        **{row["name"].removeprefix("time/"): row["value"] for row in rows},
    }
    ends = [row["trained_at"] for row in opened.query("SELECT trained_at FROM steps ORDER BY step").to_pylist()]
    periods = [(later - earlier).total_seconds() for earlier, later in zip(ends[skip - 1 :], ends[skip:], strict=False)]
    return {**times, "period": statistics.fmean(periods)}


def compare_prefect(folder: Path, steps: int) -> None:
    """Print the duration of a step with and without Prefect, and the pipeline's own share."""
    from rtl_distill.flows.train import train

    asyncio.run(without_prefect(overrides(folder, "plain", steps)))
    asyncio.run(train("demo", overrides(folder, "prefect", steps)))
    plain, prefect = (step_times(folder / f"{run}.duckdb", skip=1) for run in ("plain", "prefect"))
    total = prefect["total"]
    rows = [(x, f"{prefect[x]:.3f}", f"{plain[x]:.3f}", f"{prefect[x] / total:.1%}") for x in STAGES]
    added = total - plain["total"]  # negative where it is within the noise between the two runs
    last = ("Prefect", f"{added:+.3f}", "", f"{added / total:+.1%}")
    columns = ("stage", "through Prefect", "without", "share of the step")
    show(f"seconds a step, mean of {steps - 1} steps", columns, [*rows, last])
    ours = total - prefect["work"]
    print(f"pipeline overhead: {ours:.3f} s of {total:.3f} s a step ({ours / total:.1%}), with no stage running")
    waited, store, cores = prefect["store_waited"], prefect["cpu/store"], os.cpu_count() or 1
    print(
        f"history: a step waits {1e3 * waited:.0f} ms for it ({waited / total:.1%}), "
        f"and it takes {1e3 * store:.0f} ms of CPU ({store / total / cores:.1%} of {cores} cores); target < 2 % each"
    )


def compare_staleness(folder: Path, steps: int, factor: float) -> bool:
    """Print steps with and without overlap at the cloud's stage times; return whether the limit is kept."""
    found = []
    for staleness in (0, 1):
        settings = [
            *overrides(folder, f"staleness-{staleness}", steps),
            *EVERY_STEP_WITH_TEACHER,
            "learning.learning_rate=1e-5",
            f"learning.staleness={staleness}",
            f"sampling.group_size={ANSWERS}",
            f"grading.workers={GRADERS}",
        ]
        asyncio.run(without_prefect(settings, factor))
        found.append(step_times(folder / f"staleness-{staleness}.duckdb", skip=2))
    longest = max(found[0][stage] for stage in CLOUD_S)
    rows = [(stage, *(f"{times[stage]:.2f}" for times in found), f"{factor * s:.2f}") for stage, s in CLOUD_S.items()]
    rows.append(("the step", *(f"{times['period']:.2f}" for times in found), ""))
    rows.append(("of the longest at staleness 0", *(f"{t['period'] / longest:.2f} ×" for t in found), f"≤ {LIMIT} ×"))
    title = f"seconds a step, the cloud's stage times × {factor:g}, mean of {steps - 2} steps"
    show(title, ("", "staleness 0", "staleness 1", "simulated"), rows)
    kept = found[1]["period"] <= LIMIT * longest
    print(f"a step with staleness 1 {'keeps' if kept else 'BREAKS'} its limit of {LIMIT} × its longest stage")
    return kept


def main() -> int:
    given = options(
        __doc__, steps=(10, "of each run; the first is not counted"),
        staleness=(False, "compare steps with and without overlap instead"), factor=(0.1, "with --staleness: scale of the cloud's stage times"),
    ).parse_args()  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="rtl-distill-bench-") as name:
        if given.staleness:
            return not compare_staleness(Path(name), given.steps, given.factor)
        start_temporary_server()  # as a command has it
        compare_prefect(Path(name), given.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
