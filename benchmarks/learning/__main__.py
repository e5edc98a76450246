"""Does it learn, and what does each ingredient add? The matrix of runs behind `make learning-report`.

    python -m benchmarks.learning [--jobs N] [--only NAME ...] [--seeds 0 1 2] [--directory build/learning]

Every run is a whole training run on the embedded default, graded by the cocotb harnesses, and judged on the `test` split, which no
setting was chosen by; to choose settings, `--split heldout` in a directory of its own. Rates are pooled over seeds with 95 % intervals over problems and seeds. A run that has a result in
`<directory>/results.jsonl` is not made again, so the command goes on where it stopped, and prints the tables in seconds when all
is there. Beside it: `report.md`, `report.json`, and each run's history and log under `runs/`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.learning import tables
from benchmarks.learning.running import CORES_PER_RUN, Matrix
from benchmarks.learning.settings import SETTINGS, Size


def write(matrix: Matrix) -> str:
    """Write the report of all results so far; returns its Markdown."""
    known = matrix.known()
    text = tables.markdown(known, matrix.size.split)
    (matrix.folder / "report.md").write_text(text, encoding="utf-8")
    data = json.dumps(tables.as_data(known), indent=2)
    (matrix.folder / "report.json").write_text(data + "\n", encoding="utf-8")
    return text


def main() -> None:
    default = Size()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--jobs", type=int, default=max(1, cores // CORES_PER_RUN), help="runs at a time, two cores each"
    )
    parser.add_argument("--only", nargs="*", choices=SETTINGS, default=[*SETTINGS], metavar="NAME", help="settings")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--directory", type=Path, default=Path("build/learning"))
    parser.add_argument("--steps", type=int, default=default.steps, help=f"train steps of a run ({default.steps})")
    parser.add_argument("--samples", type=int, default=default.samples, help=f"answers a problem ({default.samples})")
    parser.add_argument(
        "--per-family", type=int, default=default.per_family, help="test problems of each starter family"
    )
    parser.add_argument(
        "--split", choices=("test", "heldout"), default=default.split, help="judge on this split; tune on heldout"
    )
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="override for all runs")
    parser.add_argument("--list", action="store_true", help="list the settings and leave")
    parser.add_argument("--print-only", action="store_true", help="print what is there, run nothing")
    arguments = parser.parse_args()
    console = Console(width=max(160, Console().width))
    if arguments.list:
        for setting in SETTINGS.values():
            console.print(f"{setting.name:18} {setting.tier:8} {setting.about}", markup=False, highlight=False)
        return
    size = Size(arguments.steps, arguments.per_family, arguments.samples, arguments.split)
    matrix = Matrix(arguments.directory, size, arguments.seeds, arguments.only, arguments.set)

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if not arguments.print_only:
        matrix.run(arguments.jobs, lambda: write(matrix), tell)
    if not matrix.known():
        raise SystemExit(f"there is no result in {matrix.results}; run without --print-only")
    console.print(Markdown(write(matrix)))
    print(f"report: {matrix.folder / 'report.md'}", file=sys.stderr)
    if missing := matrix.missing():
        raise SystemExit(f"{len(missing)} runs have no result: {', '.join(f'{s.name}-{seed}' for s, seed in missing)}")


if __name__ == "__main__":
    main()
