"""Run the cells that the ledger lacks, some at a time. A tier's first cell also evaluates the teacher, for
the tier's line."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.learning import foreign
from benchmarks.learning.ledger import Cell, Ledger, Ran, TierLine
from benchmarks.learning.measuring import counts_of, figures_of, fit_of, masks_of, problems_of
from benchmarks.learning.settings import SETTINGS, STEPS, TIERS, Setting, TierName, config_of
from rtl_core import pretrained
from rtl_core.config import RunConfig, load_config, to_toml
from rtl_core.history.store import History
from rtl_core.pretrained.fetch import fetch_model
from rtl_core.run.lock import is_held, lock_path

Tell = Callable[[str], None]


class Matrix:
    """The cells of some settings: which are in the ledger, and how the others are run."""

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        names: Sequence[str],
        seeds: Sequence[int] | None = None,
        extra: Sequence[str] = (),
    ) -> None:
        """`folder` is for the runs; `seeds` replaces those of each setting; `extra` overrides apply to all
        cells, which makes them other cells."""
        self.ledger, self.folder, self.extra = ledger, folder.resolve(), tuple(extra)
        self.settings = [SETTINGS[name] for name in names]
        self.seeds = seeds
        self.failed: list[str] = []
        self._lock = threading.Lock()
        self._at_work: dict[str, threading.Lock] = {}

    def cells(self) -> list[tuple[Setting, int]]:
        """Every requested cell, setting by setting."""
        return [
            (s, seed)
            for s in self.settings
            for seed in (s.seeds if self.seeds is None else self.seeds)
        ]

    def missing(self) -> list[tuple[Setting, int]]:
        """The cells that the ledger lacks, or has with other settings or models."""
        recipes = {key: cell.recipe for key, cell in self.ledger.cells.items()}
        return [
            (s, seed)
            for s, seed in self.cells()
            if recipes.get((s.name, seed)) != recipe_of(s, self.extra)
        ]

    def run(self, jobs: int, after: Callable[[], object], tell: Tell) -> None:
        """Run every missing cell, `jobs` at a time; `after` is called after each."""
        cells = self.missing()
        for model in {TIERS[setting.tier].student for setting, _ in cells} & {
            *pretrained.MODELS
        }:
            fetch_model(model, tell)
        if any(setting.foreign for setting, _ in cells) and not foreign.FOLDER.exists():
            tell(f"training {foreign.NAME}")
            foreign.make_teacher()
        tell(f"{len(cells)} cells to run, {jobs} at a time")

        def one(place: tuple[Setting, int]) -> None:
            setting, seed = place
            try:
                cell = self._train(setting, seed)
            except (RuntimeError, LookupError) as error:
                self.failed.append(f"{setting.name}-{seed}")
                tell(f"{setting.name}-{seed} failed: {error}")
            else:
                with self._lock:
                    self.ledger.add(cell)
                    after()
                if not any(other.after == setting.name for other in SETTINGS.values()):
                    shutil.rmtree(
                        self.folder / f"{setting.name}-{seed}"
                    )  # tens of megabytes that nobody needs now
                tell(f"{setting.name}-{seed}: {in_words(cell, self.ledger)}")

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, cells))

    def _train(self, setting: Setting, seed: int) -> Cell:
        """Run a cell, or resume it."""
        more = [*self.extra]
        if setting.after:
            more.append(f'tinker.start_from="{self._weights(SETTINGS[setting.after], seed)}"')
        lacks_tier = self._lacks(setting.tier)
        if lacks_tier and TIERS[setting.tier].teacher is not None:
            more.append("evaluation.teacher=true")
        config = config_of(setting, seed, self.folder, tuple(more))
        name, history = config.run.name, config.run.history
        recipe, made_of = recipe_of(setting, self.extra), history.with_name("recipe")
        with self._at_work.setdefault(name, threading.Lock()):
            if is_held(lock_path(config)):
                raise RuntimeError(
                    f"another process works on it in {history.parent}; for other settings give another --directory"
                )
            if history.exists() and text_of(made_of) != recipe:
                shutil.rmtree(
                    history.parent
                )  # from other settings; kept for cells that start from it
            path = self._write(config)
            made_of.write_text(recipe)
            start = time.monotonic()
            memory_gb = self._process(name, ["-m", "rtl_distill.cli", "train", str(path)])
        found, ran = (
            History(history, read_only=True),
            ran_here((time.monotonic() - start) / 60, memory_gb),
        )
        if lacks_tier:
            self._add_tier(setting.tier, found, config, ran)
        problems = self.ledger.tiers[setting.tier].problems_P
        figures = figures_of(found, name, problems)
        if config.evaluation.after_warm_start and (steps := config.learning.warm_start_steps):
            figures["after_warm_start"] = counts_of(
                found, name, "student", problems, step=steps
            )
        return Cell(
            setting=setting.name,
            tier=setting.tier,
            seed=seed,
            recipe=recipe,
            ran=ran,
            **figures,
        )

    def _lacks(self, tier: TierName) -> bool:
        """Whether the ledger lacks a tier's line, or has that of other settings or models."""
        return tier not in self.ledger.tiers or self.ledger.tiers[
            tier
        ].recipe != self._tier_recipe(tier)

    def _tier_recipe(self, tier: TierName) -> str:
        return recipe_of(
            Setting("", tier, "", TIERS[tier].overrides, base=TIERS[tier].base), self.extra
        )

    def _add_tier(self, tier: TierName, history: History, config: RunConfig, ran: Ran) -> None:
        """Add the tier's line: its test problems, and the results of teacher and untrained student in this run."""
        run, samples = config.run.name, config.evaluation.samples
        from_files = TIERS[tier].problems is None
        problems = fit_of(history, run) if from_files else problems_of(history, run)
        masks = masks_of(config, problems) if from_files else None
        before = counts_of(history, run, "student", problems, step=0)
        teacher = (
            None
            if TIERS[tier].teacher is None
            else counts_of(history, run, "teacher", problems, step=0)
        )
        with self._lock:
            recipe = self._tier_recipe(tier)
            self.ledger.add(
                TierLine(tier, recipe, problems, samples, before, teacher, ran, masks)
            )

    def _weights(self, setting: Setting, seed: int) -> str:
        """The weights at the end of a cell, which is run first unless its folder has it complete."""
        config = config_of(setting, seed, self.folder, self.extra)
        name, history = config.run.name, config.run.history
        same = history.exists() and text_of(history.with_name("recipe")) == recipe_of(
            setting, self.extra
        )
        run = History(history, read_only=True).run(name) if same else None
        if run is None or run.status != "finished" or self._lacks(setting.tier):
            self._train(setting, seed)
        return str(History(history, read_only=True).trained_steps(name)[-1].state_path)

    def _write(self, config: RunConfig) -> Path:
        folder = self.folder / config.run.name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "settings.toml"
        path.write_text(to_toml(config), encoding="utf-8")
        return path

    def _process(self, name: str, arguments: list[str]) -> float:
        """Run Python with its output in a log. Returns the peak resident memory (GB) of its largest process.

        Raises:
            RuntimeError: it failed; with the end of the log.
        """
        folder = self.folder / name
        log = folder / "log.txt"
        with log.open("a") as file:
            process = subprocess.Popen(
                [sys.executable, *arguments], stdout=file, stderr=subprocess.STDOUT
            )
            _, status, usage = os.wait4(process.pid, 0)  # Popen.wait does not report memory
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            tail = " | ".join(log.read_text(errors="replace").strip().splitlines()[-5:])
            raise RuntimeError(f"exit code {process.returncode}; the end of {log}: {tail}")
        return usage.ru_maxrss / 1024**2


def text_of(path: Path) -> str | None:
    """The text of a file, if there is one."""
    return path.read_text() if path.exists() else None


def in_words(cell: Cell, ledger: Ledger) -> str:
    """A cell's result in one line."""
    samples = ledger.tiers[cell.tier].samples
    rate = cell.figure_P("pass@1", samples).mean()
    interface = cell.figure_P("interface", samples).mean()
    return f"pass@1 {rate:.3f}, interface {interface:.3f}, {len(cell.steps)} steps, {cell.ran.minutes:.1f} minutes"


def recipe_of(setting: Setting, extra: Sequence[str] = ()) -> str:
    """Hash of what determines a cell: the keys that its base and its overrides set, its models, and the
    numbers of its problems."""
    config = load_config(
        setting.base, (*setting.overrides, *extra), environment={}, check_files=False
    )
    tier = TIERS[setting.tier]
    keys = config.model_dump(mode="json", exclude_unset=True)
    made_of: list[Any] = [keys, setting.tier, STEPS, tier.test_problems, tier.weights]
    if setting.foreign:
        made_of.append(foreign.recipe_hash())
    if setting.after:
        made_of.append(recipe_of(SETTINGS[setting.after], extra))
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:12]


def ran_here(minutes: float, memory_gb: float | None = None) -> Ran:
    """This machine, today, and the commit that is checked out. Changes of the files that the matrix writes
    do not make it dirty."""
    git = ["git", "-C", str(Path(__file__).parents[2])]
    commit = subprocess.run(
        [*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    outputs = [
        f":(exclude){name}"
        for name in ("benchmarks/learning/ledger.jsonl", "benchmarks/learning/report.md")
    ]
    if (
        commit
        and subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ".", *outputs]).returncode
    ):
        commit += "-dirty"
    cores = len(os.sched_getaffinity(0))
    machine = f"{cores} cores of {_processor()}, Python {platform.python_version()}, torch {version('torch')}"
    day, memory_gb = datetime.now(UTC).date().isoformat(), memory_gb and round(memory_gb, 2)
    return Ran(commit or "no git", machine, day, round(minutes, 2), memory_gb)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
