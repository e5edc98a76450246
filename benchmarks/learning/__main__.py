"""What does each ingredient add? The matrix of training runs behind report.md.

    python -m benchmarks.learning [--jobs N] [--only NAME ...] [--seeds 0 1 2]
    python -m benchmarks.learning --list          # the settings, and which of their cells are in the ledger
    python -m benchmarks.learning --print-only    # the report of what is there
    python -m benchmarks.learning --only hard-rl --seeds 0 --ledger again.jsonl --report again.md     # run a cell again

A cell is a whole training run on the embedded models, graded by the cocotb harnesses and evaluated on the
`test` split. It adds one line to the ledger, a tracked file, and is not repeated; the command resumes where
it stopped.
"""

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.common import options
from benchmarks.learning.ledger import LEDGER, Ledger
from benchmarks.learning.report import REPORT, markdown
from benchmarks.learning.running import Matrix
from benchmarks.learning.settings import SETTINGS


def parsed() -> argparse.Namespace:
    jobs = max(1, len(os.sched_getaffinity(0)) // 2)
    parser = options(
        __doc__,
        overrides=True,
        jobs=(jobs, "concurrent runs; each uses two cores"),
        directory=(Path("build/learning"), "for the runs"),
        ledger=(LEDGER, "the ledger to read and to extend"),
        report=(REPORT, "where to write the report"),
        list=(False, "list the settings and exit"),
        print_only=(False, "write and print the report, run nothing"),
    )
    parser.add_argument(
        "--only", nargs="*", choices=SETTINGS, metavar="NAME", help="settings (all)"
    )
    parser.add_argument("--seeds", type=int, nargs="*", help="seeds (each setting's own)")
    arguments = parser.parse_args()
    if arguments.overrides and arguments.ledger == LEDGER:
        parser.error(
            "--set makes other cells than the ledger's: also give --ledger and --report"
        )
    return arguments


def main() -> None:
    arguments = parsed()
    console = Console(width=max(160, Console().width))
    ledger = Ledger(arguments.ledger)
    matrix = Matrix(
        ledger,
        arguments.directory,
        arguments.only or [*SETTINGS],
        arguments.seeds,
        arguments.overrides,
    )
    if arguments.list:
        missing = matrix.missing()
        for setting in matrix.settings:
            lacking = ", ".join(str(seed) for place, seed in missing if place is setting)
            there = f"lacks seeds {lacking}" if lacking else "in the ledger"
            print(f"{setting.name:24} {setting.tier:8} {there:22} {setting.about}")
        return

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def write() -> str:
        text = markdown(ledger)
        arguments.report.parent.mkdir(parents=True, exist_ok=True)
        arguments.report.write_text(text, encoding="utf-8")
        return text

    if not arguments.print_only:
        matrix.run(arguments.jobs, write, tell)
    if not ledger.tiers:
        raise SystemExit(f"{arguments.ledger} is empty; run without --print-only")
    console.print(write(), markup=False, highlight=False, soft_wrap=True)
    if matrix.failed:
        raise SystemExit(
            f"{len(matrix.failed)} cells failed: {', '.join(matrix.failed)}; see the logs in {matrix.folder}"
        )


if __name__ == "__main__":
    main()
