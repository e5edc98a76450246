"""Running the settings: preparation once, then so many runs side by side, each on cores of its own."""

from __future__ import annotations

import hashlib
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.learning.measured import Measured, Rates, read_before, read_lines, read_rates, read_second_turn
from benchmarks.learning.settings import SETTINGS, Setting, Size, config_of
from rtl_core.config import RunConfig, to_toml
from rtl_core.history.store import History
from rtl_core.problems.starter.spec import Tier

CORES_PER_RUN = 2
ATTEMPTS = 2


class Matrix:
    """The runs of a report and where their results are kept (`results.jsonl`, one line a run)."""

    def __init__(self, folder: Path, size: Size, seeds: Sequence[int], names: Sequence[str], extra: Sequence[str] = ()):
        self.folder, self.size, self.seeds, self.extra = folder.resolve(), size, tuple(seeds), tuple(extra)
        self.settings = [SETTINGS[name] for name in names]
        self.tiers: list[Tier] = [t for t in ("starter", "hard") if any(s.tier == t for s in self.settings)]
        self.results = self.folder / "results.jsonl"
        self.failed: list[str] = []
        self._lock = threading.Lock()

    def config(self, setting: Setting, seed: int) -> RunConfig:
        return config_of(setting, seed, self.size, str(self.folder / "runs"), self.extra)

    def known(self) -> dict[tuple[str, int], Measured]:
        """(setting or `teacher-<tier>`, seed) -> result, of those that were made with the present settings."""
        wanted = {(s.name, seed): recipe_of(self.config(s, seed)) for s in self.settings for seed in self.seeds}
        wanted |= {(f"teacher-{tier}", 0): self._teacher_recipe(tier) for tier in self.tiers}
        found = {(line.setting, line.seed): line for line in read_lines(self.results)}
        return {key: line for key, line in found.items() if wanted.get(key) == line.recipe}

    def missing(self) -> list[tuple[Setting, int]]:
        """The runs that have no result, the first seed of every setting before the second of any."""
        known = self.known()
        return [(s, seed) for seed in self.seeds for s in self.settings if (s.name, seed) not in known]

    def run(self, jobs: int, after: Callable[[], object], tell: Callable[[str], None]) -> None:
        """Make every missing run, `jobs` at a time; `after` is called after each result."""
        missing = self.missing()
        if not missing and all((f"teacher-{tier}", 0) in self.known() for tier in self.tiers):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        self._prepare(tell)
        after()
        tell(f"prepared in {time.monotonic() - start:.0f} s; {len(missing)} runs to make, {jobs} at a time")
        free: queue.SimpleQueue[set[int]] = queue.SimpleQueue()
        for cores in shares(jobs):
            free.put(cores)

        def one(place: tuple[Setting, int]) -> None:
            setting, seed = place
            cores = free.get()
            try:
                line = self._train(setting, seed, cores)
            except (RuntimeError, LookupError) as error:
                self.failed.append(f"{setting.name}-{seed}")
                tell(f"{setting.name}-{seed} failed: {error}")
                return
            finally:
                free.put(cores)
            self._keep(line)
            with self._lock:
                after()
            done = sum(line.after.passed.values()) / len(line.after.passed)
            tell(f"{setting.name}-{seed}: pass@1 {done:.3f} after {line.steps} steps, {line.minutes:.1f} minutes")

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, missing))

    def _keep(self, line: Measured) -> None:
        with self._lock, self.results.open("a", encoding="utf-8") as file:
            file.write(line.to_json() + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _prepare(self, tell: Callable[[str], None]) -> None:
        base = self.folder / "base.duckdb"
        halves = shares(len(self.tiers), all_cores=True)
        with ThreadPoolExecutor(len(self.tiers)) as pool:
            list(pool.map(lambda tier, cores: self._prepare_tier(tier, cores, base, tell), self.tiers, halves))

    def _prepare_tier(self, tier: Tier, cores: set[int], base: Path, tell: Callable[[str], None]) -> None:
        kinds = sorted({s.mixed for s in self.settings if s.tier == tier})  # the plain problems first
        configs = [self._prepared(tier, seed, mixed, base, len(cores)) for mixed in kinds for seed in self.seeds]
        paths = [self._write(config) for config in configs]
        mark = base.with_name(f"prepared-{tier}-{recipe_of_files(paths)}")
        teacher = f"teacher-{tier}"
        if not mark.exists():
            name = f"prepare-{tier}"
            self._process(name, ["-m", "benchmarks.learning.prepare", *map(str, paths)], cores)
            mark.touch()
        if (teacher, 0) not in self.known():
            history = History(base, read_only=True)
            run = f"{teacher}{'-mixed' if not self._plain(tier) else ''}-{self.seeds[0]}"
            _, rates, families = read_rates(history, run, "teacher", tier)
            line = Measured(teacher, tier, 0, 0, self._teacher_recipe(tier), Rates(), rates, families, 0.0)
            self._keep(line)
            tell(f"teacher, {tier} tier: pass@1 {sum(rates.passed.values()) / len(rates.passed):.3f}")

    def _plain(self, tier: Tier) -> bool:
        return any(not s.mixed for s in self.settings if s.tier == tier)

    def _prepared(self, tier: Tier, seed: int, mixed: bool, base: Path, cores: int) -> RunConfig:
        overrides = ("sampling.max_tokens=256",) if tier == "hard" else ()
        setting = Setting(f"teacher-{tier}{'-mixed' if mixed else ''}", tier, "", overrides, mixed)
        more = (f'run.history="{base}"', f"grading.workers={cores}", f"tinker.local_threads={max(1, cores // 2)}")
        return config_of(setting, seed, self.size, str(self.folder / "runs"), (*self.extra, *more))

    def _teacher_recipe(self, tier: Tier) -> str:
        return recipe_of(self._prepared(tier, self.seeds[0], not self._plain(tier), Path("base.duckdb"), 1))

    def _train(self, setting: Setting, seed: int, cores: set[int]) -> Measured:
        config = self.config(setting, seed)
        path = self._write(config)
        history = config.run.history
        if not history.exists():
            copy = history.with_suffix(".copy")
            shutil.copyfile(self.folder / "base.duckdb", copy)
            copy.rename(history)
        start = time.monotonic()
        train = ["-c", "from cli import main; main()", "train", str(path)]
        self._process(config.run.name, train, cores)
        minutes = (time.monotonic() - start) / 60
        found = History(history, read_only=True)
        steps, after, families = read_rates(found, config.run.name, "student", setting.tier)
        before = read_before(found, config.run.name, setting.tier)
        for left in ("tinker", "prefect"):  # weights and server files, megabytes each, that nothing here reads again
            shutil.rmtree(history.parent / left, ignore_errors=True)
        return Measured(
            setting.name,
            setting.tier,
            seed,
            steps,
            recipe_of(config),
            before,
            after,
            families,
            minutes,
            self.size.samples,
            read_second_turn(found, config.run.name, setting.tier) if config.refinement.turns > 1 else {},
        )

    def _write(self, config: RunConfig) -> Path:
        folder = self.folder / "runs" / config.run.name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "settings.toml"
        path.write_text(to_toml(config), encoding="utf-8")
        return path

    def _process(self, name: str, arguments: list[str], cores: set[int]) -> None:
        """Run Python on these cores, its output in a log; RuntimeError with the log's end when it fails twice."""
        folder = self.folder / "runs" / name
        folder.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            # Runs side by side must not share a server's database.
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
            # Nobody looks at these servers, so what they would note of every task is time lost to the runs.
            "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
            "PREFECT_LOGGING_LEVEL": "ERROR",
            "PREFECT_LOGGING_SERVER_LEVEL": "CRITICAL",
        }
        log = folder / "log.txt"
        for attempt in range(ATTEMPTS):
            with log.open("a") as file:
                done = subprocess.run(
                    [sys.executable, *arguments],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    preexec_fn=lambda: os.sched_setaffinity(0, cores),
                )
            if done.returncode == 0:
                return
            if attempt + 1 == ATTEMPTS:
                tail = " | ".join(log.read_text(errors="replace").strip().splitlines()[-5:])
                raise RuntimeError(f"exit code {done.returncode}; the end of {log}: {tail}")


def recipe_of(config: RunConfig) -> str:
    """Hash of what a run is made of: its configuration without its place on disk and the number of cores."""
    data = config.model_dump(mode="json")
    for key in ("directory", "history"):
        data["run"].pop(key)
    data["grading"].pop("workers")
    data["tinker"].pop("local_threads")
    return hashlib.sha256(repr(sorted(data.items())).encode()).hexdigest()[:12]


def recipe_of_files(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


def shares(jobs: int, *, all_cores: bool = False) -> list[set[int]]:
    """The cores of each of `jobs` runs: two each, the same ones again where there are not enough; or an equal part of all."""
    cores = sorted(os.sched_getaffinity(0))
    width = max(1, len(cores) // jobs) if all_cores else min(CORES_PER_RUN, len(cores))
    return [{cores[(job * width + i) % len(cores)] for i in range(width)} for job in range(jobs)]
