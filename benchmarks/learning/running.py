"""Running cells, for the first time or to check a line of the ledger: what a tier's cells share is made once, then so many runs side by side, each on cores of its own."""

import hashlib
import json
import os
import platform
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.learning import measured
from benchmarks.learning.figures import rate_of
from benchmarks.learning.ledger import Cell, Ledger, Ran, TierLine
from benchmarks.learning.settings import SETTINGS, STEPS, Setting, config_of
from benchmarks.learning.tiers import TIERS, TierName
from rtl_core import pretrained
from rtl_core.config import RunConfig, load_config, to_toml
from rtl_core.history.store import History
from rtl_core.pretrained.fetch import fetch_model

CORES_PER_RUN = 2
ATTEMPTS = 2
CHECKED = (("hard-rl", 0), ("hard-warm-88", 0))
"""What `--check` runs without names: RL alone, and RL behind supervised steps."""
Tell = Callable[[str], None]


class Matrix:
    """The cells of some settings: which are in the ledger, and how those that are not get there."""

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        names: Sequence[str],
        seeds: Sequence[int] | None = None,
        extra: Sequence[str] = (),
    ) -> None:
        """`folder` takes the runs; `seeds` None: each setting's own; `extra`: keys for all cells, which makes them other cells."""
        self.ledger, self.folder, self.extra = ledger, folder.resolve(), tuple(extra)
        self.settings = [SETTINGS[name] for name in names]
        self.seeds = seeds
        self.failed: list[str] = []
        self._lock = threading.Lock()
        self._at_work: dict[str, threading.Lock] = {}

    def cells(self) -> list[tuple[Setting, int]]:
        """Every cell that is asked for, the first setting with all its seeds before the next."""
        return [(s, seed) for s in self.settings for seed in (s.seeds if self.seeds is None else self.seeds)]

    def missing(self) -> list[tuple[Setting, int]]:
        """The cells that the ledger lacks, or has of other settings or models."""
        return [(s, seed) for s, seed in self.cells() if not self._known(s, seed)]

    def _known(self, setting: Setting, seed: int) -> bool:
        cell = self.ledger.cells.get((setting.name, seed))
        return cell is not None and cell.recipe == recipe_of(setting, self.extra)

    def run(self, jobs: int, after: Callable[[], object], tell: Tell) -> None:
        """Run every missing cell, `jobs` at a time; `after` is called after each."""
        self.measure(self.missing(), jobs, lambda cell: self._keep(cell, after, tell), tell)

    def measure(
        self, cells: Sequence[tuple[Setting, int]], jobs: int, take: Callable[[Cell], None], tell: Tell
    ) -> None:
        """Run these cells, whatever the ledger has of them, and hand each result on."""
        for tier in sorted({setting.tier for setting, _ in cells}):
            self._prepare(tier, sorted({seed for s, seed in cells if s.tier == tier}), tell)
        tell(f"{len(cells)} cells to run, {jobs} at a time")
        free: queue.SimpleQueue[set[int]] = queue.SimpleQueue()
        for cores in shares(jobs):
            free.put(cores)

        def one(place: tuple[Setting, int]) -> None:
            setting, seed = place
            cores = free.get()
            try:
                cell = self._train(setting, seed, cores)
            except (RuntimeError, LookupError) as error:
                self.failed.append(f"{setting.name}-{seed}")
                tell(f"{setting.name}-{seed} failed: {error}")
                return
            finally:
                free.put(cores)
            take(cell)

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, cells))

    def _keep(self, cell: Cell, after: Callable[[], object], tell: Tell) -> None:
        with self._lock:
            self.ledger.add(cell)
            after()
        tell(f"{cell.setting}-{cell.seed}: {in_words(cell, self.ledger)}")

    def _prepare(self, tier: TierName, seeds: Sequence[int], tell: Tell) -> None:
        """Validate the problems of each seed that nobody prepared; evaluate teacher and untrained student, if the ledger lacks them."""
        shared = Setting("", tier, "", TIERS[tier].overrides, base=TIERS[tier].base)
        recipe = recipe_of(shared, self.extra)
        # Evaluations are found by the run's name; those of other models must not be.
        shared = replace(shared, name=f"shared-{tier}-{recipe}")
        line = self.ledger.tiers.get(tier)
        known = line is not None and line.recipe == recipe
        base = self._base(tier)
        marks = {seed: base.with_suffix(f".{recipe}-{seed}") for seed in seeds}
        lacking = [seed for seed, mark in marks.items() if not mark.exists()]
        if known and not lacking:
            return
        if TIERS[tier].student in pretrained.MODELS:
            fetch_model(TIERS[tier].student, tell)
        start = time.monotonic()
        extra = (
            *self.extra,
            f'run.history="{base}"',
            f"tinker.local_threads={max(1, len(os.sched_getaffinity(0)) // 2)}",
        )
        configs = [config_of(shared, seed, self.folder, extra) for seed in lacking or seeds]
        known_already = ["--validate-only"] if known else []
        paths = [str(self._write(config)) for config in configs]
        arguments = ["-m", "benchmarks.learning.prepare", *known_already, *paths]
        self._process(f"prepare-{tier}", arguments, os.sched_getaffinity(0))
        if not known:
            history, run = History(base, read_only=True), configs[0].run.name
            problems = measured.problems_of(history, run)
            before = measured.counts_of(history, run, "student", problems, step=0)
            taught = TIERS[tier].teacher is not None
            teacher = measured.counts_of(history, run, "teacher", problems, step=0) if taught else None
            samples = configs[0].evaluation.samples
            ran = ran_here((time.monotonic() - start) / 60)
            with self._lock:
                self.ledger.add(TierLine(tier, recipe, problems, samples, before, teacher, ran))
        for mark in marks.values():
            mark.touch()
        tell(f"{tier} tier: prepared in {time.monotonic() - start:.0f} s")

    def _base(self, tier: TierName) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"shared-{tier}.duckdb"

    def _train(self, setting: Setting, seed: int, cores: set[int]) -> Cell:
        """Run a cell, or go on with it."""
        start_from: tuple[str, ...] = ()
        if setting.after:
            start_from = (f'tinker.start_from="{self._weights(SETTINGS[setting.after], seed, cores)}"',)
        config = config_of(setting, seed, self.folder, (*self.extra, *start_from))
        threads = f"tinker.local_threads={min(config.tinker.local_threads, len(cores))}"
        config = config_of(setting, seed, self.folder, (*self.extra, *start_from, threads))
        history = config.run.history
        recipe, made_of = recipe_of(setting, self.extra), history.with_name("recipe")
        with self._at_work.setdefault(config.run.name, threading.Lock()):
            if history.exists() and text_of(made_of) != recipe:
                shutil.rmtree(history.parent)  # a cell of other settings, kept for those that start from it
            path = self._write(config)
            made_of.write_text(recipe)
            if not history.exists():
                copy = history.with_suffix(".copy")
                shutil.copyfile(self._base(setting.tier), copy)
                copy.rename(history)
            start = time.monotonic()
            memory_gb = self._process(config.run.name, ["-m", "rtl_distill.cli", "train", str(path)], cores)
        cell = self._read(setting, seed, config, ran_here((time.monotonic() - start) / 60, memory_gb))
        if not any(other.after == setting.name for other in SETTINGS.values()):
            shutil.rmtree(history.parent)  # its figures are taken; a history and weights are tens of megabytes
        return cell

    def _weights(self, setting: Setting, seed: int, cores: set[int]) -> str:
        """Those at the end of a cell, which is run first unless its folder holds it whole."""
        config = config_of(setting, seed, self.folder, self.extra)
        name, history = config.run.name, config.run.history
        same = history.exists() and text_of(history.with_name("recipe")) == recipe_of(setting, self.extra)
        run = History(history, read_only=True).run(name) if same else None
        if run is None or run.status != "finished":
            self._train(setting, seed, cores)
        return str(History(history, read_only=True).trained_steps(name)[-1].state_path)

    def _read(self, setting: Setting, seed: int, config: RunConfig, ran: Ran) -> Cell:
        found, run = History(config.run.history, read_only=True), config.run.name
        tier = self.ledger.tiers[setting.tier]
        after = measured.counts_of(found, run, "student", tier.problems_P)
        return Cell(
            setting.name,
            setting.tier,
            seed,
            recipe_of(setting, self.extra),
            after,
            measured.steps_of(found, run),
            measured.evaluations_of(found, run, tier.problems_P),
            measured.answers_of(found, run),
            measured.train_tokens_of(found, run),
            ran,
        )

    def _write(self, config: RunConfig) -> Path:
        folder = self.folder / config.run.name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "settings.toml"
        path.write_text(to_toml(config), encoding="utf-8")
        return path

    def _process(self, name: str, arguments: list[str], cores: set[int]) -> float:
        """Run Python on these cores, its output in a log. Returns the largest resident memory of one of its processes (GB).

        Raises:
            RuntimeError: it failed twice; with the log's end.
        """
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        # Runs side by side must not share a server's database.
        environment = {**os.environ, "PREFECT_HOME": str(folder / "prefect")}
        log = folder / "log.txt"
        for attempt in range(ATTEMPTS):
            with log.open("a") as file:
                process = subprocess.Popen(
                    [sys.executable, *arguments],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    preexec_fn=lambda: os.sched_setaffinity(0, cores),
                )
                _, status, usage = os.wait4(process.pid, 0)  # tells the memory, which Popen.wait does not
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode == 0:
                break
            if attempt + 1 == ATTEMPTS:
                tail = " | ".join(log.read_text(errors="replace").strip().splitlines()[-5:])
                raise RuntimeError(f"exit code {process.returncode}; the end of {log}: {tail}")
        return usage.ru_maxrss / 1024**2


def check(ledger: Ledger, folder: Path, cells: Sequence[tuple[str, int]], jobs: int, tell: Tell) -> bool:
    """Run cells again; whether each one's new pass@1 lies in the 95 % interval (over problems) of its line. Nothing is written."""
    if unknown := [f"{name}-{seed}" for name, seed in cells if (name, seed) not in ledger.cells]:
        raise SystemExit(
            f"the ledger {ledger.path} has no cell {', '.join(unknown)}: name others with --only and --seeds"
        )
    folder = folder / "check"
    shutil.rmtree(folder, ignore_errors=True)  # a kept cell would be compared with itself
    matrix = Matrix(ledger, folder, [name for name, _ in cells])
    places = [(setting, seed) for setting, (_, seed) in zip(matrix.settings, cells, strict=True)]
    if stale := [f"{s.name}-{seed}" for s, seed in places if ledger.cells[s.name, seed].recipe != recipe_of(s)]:
        raise SystemExit(
            f"{', '.join(stale)}: the ledger's line is of other settings or models; run it anew, without --check"
        )
    good: list[bool] = []

    def compare(cell: Cell) -> None:
        line = ledger.tiers[cell.tier]
        before = rate_of(ledger.cells[cell.setting, cell.seed].after.passed_P, line.samples)
        now = rate_of(cell.after.passed_P, line.samples)
        good.append(before.lo <= now.mean <= before.hi)
        tell(
            f"{cell.setting}-{cell.seed}: ledger {before.mean:.3f} [{before.lo:.3f}, {before.hi:.3f}], now {now.mean:.3f}:"
            f" {'within' if good[-1] else 'OUTSIDE'}"
        )

    matrix.measure(places, jobs, compare, tell)
    return len(good) == len(cells) and all(good)


def text_of(path: Path) -> str | None:
    """The text of a file, if there is one."""
    return path.read_text() if path.exists() else None


def in_words(cell: Cell, ledger: Ledger) -> str:
    """One line of what a cell gave."""
    samples = ledger.tiers[cell.tier].samples
    rate = cell.figure_P("pass@1", samples).mean()
    interface = cell.figure_P("interface", samples).mean()
    return f"pass@1 {rate:.3f}, interface {interface:.3f}, {len(cell.steps)} steps, {cell.ran.minutes:.1f} minutes"


def recipe_of(setting: Setting, extra: Sequence[str] = ()) -> str:
    """Hash of what a cell is made of: the keys that its base and its overrides set, its models, the numbers of its problems."""
    config = load_config(setting.base, (*setting.overrides, *extra), environment={}, check_files=False)
    tier = TIERS[setting.tier]
    keys = config.model_dump(mode="json", exclude_unset=True)
    made_of: list[Any] = [keys, setting.tier, STEPS, tier.test_problems, tier.weights]
    if setting.after:
        made_of.append(recipe_of(SETTINGS[setting.after], extra))
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:12]


def ran_here(minutes: float, memory_gb: float | None = None) -> Ran:
    """This machine, the commit that is checked out, and today. Changes of what the matrix writes itself do not count as changes."""
    git = ["git", "-C", str(Path(__file__).parents[2])]
    commit = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True).stdout.strip()
    others = [
        "--",
        ".",
        *(f":(exclude){name}" for name in ("benchmarks/learning/ledger.jsonl", "docs/learning-report.md")),
    ]
    if commit and subprocess.run([*git, "diff", "--quiet", "HEAD", *others]).returncode:
        commit += "-dirty"
    cores = len(os.sched_getaffinity(0))
    machine = f"{cores} cores of {_processor()}, Python {platform.python_version()}, torch {version('torch')}"
    return Ran(
        commit or "no git",
        machine,
        datetime.now(UTC).date().isoformat(),
        round(minutes, 2),
        memory_gb and round(memory_gb, 2),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def shares(jobs: int) -> list[set[int]]:
    """The cores of each of `jobs` runs: at most two each, the same ones again where there are more runs than cores."""
    cores = sorted(os.sched_getaffinity(0))
    width = min(CORES_PER_RUN, max(1, len(cores) // jobs))
    return [{cores[(job * width + i) % len(cores)] for i in range(width)} for job in range(jobs)]
