"""Does a run learn on another engine as on the embedded service, and what does a step cost there?

    python -m benchmarks.engines                 # SkyRL beside the embedded service, seeds 0 to 2
    python -m benchmarks.engines --seeds 0

`make test-engines` installs SkyRL. The student is trained on the engine, its teacher scores on the embedded service
in both cases. The time of a step is the median over the steps in which the engine compiled little (all but the
first three).
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.common import command, options, run_settings, show
from benchmarks.learning.crossed import crossed_interval
from benchmarks.learning.measuring import counts_of, fit_of
from benchmarks.skyrl import SkyRL
from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval
from rtl_core.tinymodels import model_path

COMPILES = 3
"""Steps at the beginning in which JAX meets most shapes of a batch for the first time."""
SAMPLES = 4
SIZE = (
    "problems.sources.0.train=96",
    "problems.sources.0.heldout=48",
    "curriculum.problems_per_step=8",
    "sampling.group_size=8",
    "run.epochs=1",
    "evaluation.every=0",
    f"evaluation.samples={SAMPLES}",
    'tinker.teacher_base_url="local"',
    # SkyRL's JAX backend does not clip.
    "learning.grad_clip_norm=0",
)
_STEPS_SQL = "SELECT step, value FROM step_metrics WHERE run = $run AND name = 'time/total' ORDER BY step"


@dataclass(frozen=True)
class Learnt:
    """What a run gave: passed answers by problem before and after, and seconds of each step."""

    before_P: list[int]
    after_P: list[int]
    steps_s: list[float]


def settings(name: str, folder: Path, seed: int) -> list[str]:
    """Overrides of `demo` for a run of 12 steps of 8 problems with 8 answers each."""
    return [*run_settings(name, folder), *SIZE, f"run.seed={seed}"]


@contextmanager
def engine(name: str, folder: Path) -> Iterator[list[str]]:
    """Yields the overrides with which a run uses this engine."""
    if name == "embedded":
        yield []
        return
    with SkyRL("student", folder / "skyrl") as server:
        tokenizer = f"tinker.local_models.student={model_path('student')}"
        yield [f'tinker.base_url="{server.url}"', tokenizer]


def train(name: str, seed: int, folder: Path) -> Learnt:
    """Train on an engine in a new folder."""
    folder.mkdir(parents=True)
    run = f"{name}-{seed}"
    with engine(name, folder) as where, (folder / "log").open("wb") as log:
        words = command("train", "demo", sets=[*settings(run, folder, seed), *where])
        subprocess.run(words, check=True, stdout=log, stderr=log)
    return learnt(folder / "history.duckdb", run)


def learnt(history: Path, run: str) -> Learnt:
    """Read what a finished run gave."""
    opened = History(history, read_only=True)
    problems = fit_of(opened, run)
    before, after = (
        counts_of(opened, run, "student", problems, step=step).passed_P for step in (0, None)
    )
    rows = opened.query(_STEPS_SQL, {"run": run}).to_pylist()
    return Learnt(before, after, [row["value"] for row in rows])


def in_words(rate: Interval) -> str:
    return f"{rate.mean:.3f} [{rate.lo:.3f}, {rate.hi:.3f}]"


def main() -> None:
    parser = options(
        __doc__,
        seeds=([0, 1, 2], "seeds of the runs"),
        engines=["embedded", "skyrl"],
        directory=(Path("build/engines"), "for the runs; finished ones are not repeated"),
    )
    given = parser.parse_args()
    found: dict[str, list[Learnt]] = {name: [] for name in given.engines}
    for seed in given.seeds:
        for name in given.engines:
            kept = given.directory.resolve() / f"{name}-{seed}.json"
            if not kept.exists():
                one = train(name, seed, kept.with_suffix(""))
                kept.write_text(json.dumps([one.before_P, one.after_P, one.steps_s]))
            found[name].append(Learnt(*json.loads(kept.read_text())))
    rows = []
    rates = {}
    for name, runs in found.items():
        before, after = (
            np.array([getattr(run, when) for run in runs]) / SAMPLES
            for when in ("before_P", "after_P")
        )
        rates[name] = after
        compiled = [s for run in runs for s in run.steps_s[COMPILES:]]
        rows.append(
            (
                name,
                str(len(runs)),
                in_words(crossed_interval(before, bounds=(0, 1))),
                in_words(crossed_interval(after, bounds=(0, 1))),
                in_words(crossed_interval(after - before)),
                f"{median(compiled):.1f}",
            )
        )
    show(
        "12 steps of 64 answers",
        ("engine", "seeds", "untrained", "trained", "gain", "s a step"),
        rows,
    )
    if len(rates) == 2:
        first, second = rates.values()
        print(f"{' − '.join(reversed(rates))}: {in_words(crossed_interval(second - first))}")


if __name__ == "__main__":
    main()
