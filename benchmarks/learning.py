"""Does it learn, on every seed, and does nothing else raise the score? Three seeds of the demo and one control.

    python -m benchmarks.learning [--seeds 0 1 2] [--directory build/learning] [--set section.key=value ...]

Each seed is a whole demo run (`rtl-distill train demo`), graded by the cocotb harnesses. The control hands each rollout another
one's advantage: it must not rise. Runs that are finished are not run again, so the table alone is printed in seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rtl_core.history.store import History
from rtl_core.reporting.evaluations import run_result


def run_demo(name: str, settings: list[str]) -> float:
    """Train one run to its end in a process of its own; returns seconds."""
    sets = [part for setting in settings for part in ("--set", setting)]
    start = time.monotonic()
    command = [
        sys.executable,
        "-c",
        "from rtl_core.cli import main; main()",
        "train",
        "demo",
        "--set",
        f"run.name={name}",
        *sets,
    ]
    subprocess.run(command, check=True)
    return time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--directory", type=Path, default=Path("build/learning"))
    parser.add_argument("--no-control", action="store_true", help="leave the control run out")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="override for all runs")
    arguments = parser.parse_args()

    database = arguments.directory / "history.duckdb"
    history = History(database, read_only=True)
    runs = [(f"seed-{seed}", [f"run.seed={seed}"]) for seed in arguments.seeds]
    if not arguments.no_control:
        runs.append(("control-permuted", ["learning.permute_advantages=true", "evaluation.teacher=false"]))
    seconds: dict[str, float] = {}
    for name, settings in runs:
        known = history.run(name) if database.exists() else None
        if known is None or known.status != "finished":
            where = [f"run.directory={arguments.directory}", f"run.history={database}"]
            seconds[name] = run_demo(name, [*where, *settings, *arguments.set])

    table = Table(title="held-out pass@1 at temperature 1, with 95 % intervals over problems")
    for column in ("run", "student before", "student after", "teacher", "gain", "of teacher", "minutes"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for name, _ in runs:
        result = run_result(history, name)
        if result.before is None or result.after is None:
            raise SystemExit(f"run {name} has no evaluation before and after")
        before, after = result.before.pass_at_1, result.after.pass_at_1
        teacher = result.teacher.pass_at_1 if result.teacher else None
        shown = [f"{e.mean:.3f} [{e.lo:.3f}, {e.hi:.3f}]" if e else "" for e in (before, after, teacher)]
        share = f"{after.mean / teacher.mean:.1%}" if teacher else ""
        minutes = f"{seconds[name] / 60:.1f}" if name in seconds else "(done before)"
        table.add_row(name, *shown, f"{100 * (after.mean - before.mean):+.1f} points", share, minutes)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
