"""Measure how long a large set takes to read, to fingerprint and to split, and its memory.

    python -m benchmarks.problem_reading [--kind pairs] [--rows 20000] [--pairs ../shared/data/pairs]
        [--folder /tmp/bench-pairs]
    python -m benchmarks.problem_reading --kind rtl [--rtl ../shared/data/rtl-benchls] [--per-module 30]

`rtl` reads the tasks of the RTL at `--rtl`, many of each module. `pairs` writes `--rows` pairs to `--folder`,
unless the file exists: copies of the pairs at `--pairs` with other names of modules and ports, and with enough
other words and constants that no two are near-duplicates. Prints wall and CPU seconds of each part and the peak
of the process's memory, so each kind is measured in a process of its own.
"""

import json
import random
import re
import resource
import time
from argparse import Namespace
from pathlib import Path

from benchmarks.common import DATA, options, show
from rtl_grader.hdl.text import WORD, code_of, modules
from rtl_grader.problems.near_duplicates import separate
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.problems.sources import FileSource, source_of
from rtl_grader.problems.sources.pairs import PairsSource
from rtl_grader.problems.sources.rtl import RtlSource
from rtl_grader.types.problem import Problem

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def copy_of(problem: Problem, number: int) -> dict[str, str]:
    """A pair like this one with other names and words, for a design that behaves the same."""
    rng = random.Random(f"{problem.id} {number}")
    interface = problem.interface
    assert interface is not None
    names = {interface.module, *(port.name for port in interface.ports)}
    (design,) = (problem.golden or {}).values()
    texts = [
        WORD.sub(lambda word: f"{word[0]}_{number}" if word[0] in names else word[0], text)
        for text in (problem.prompt, design)
    ]
    notes = " ".join(
        "".join(rng.choices(LETTERS, k=7)) for _ in range(len(texts[0].split()) // 2)
    )
    (module, *_) = [one for one in modules(code_of(texts[1])) if one.name in texts[1]]
    end = texts[1].index(";", module.start) + 1
    size = len(re.findall(r"\w+", texts[1]))
    salt = " ^ ".join(str(rng.randrange(1 << 20)) for _ in range(size // 2 + 8))
    design = f"{texts[1][:end]}\n  localparam [31:0] SALT = {salt};\n{texts[1][end:]}"
    return {"instruction": f"{texts[0]}\nNotes: {notes}\n", "output": design}


def fill(file: Path, pairs: Path, rows: int) -> None:
    if file.exists():
        return
    source = source_of(f"pairs={pairs}")
    assert isinstance(source, FileSource)
    problems = source.read().problems
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as opened:
        for row in range(rows):
            number, place = divmod(row, len(problems))
            opened.write(json.dumps(copy_of(problems[place], number)) + "\n")


class Clock:
    """Wall and CPU seconds since the last call."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def row(self, what: str) -> tuple[str, str, str]:
        wall, cpu = time.perf_counter(), time.process_time()
        seconds = f"{wall - self._wall:.1f}", f"{cpu - self._cpu:.1f}"
        self._wall, self._cpu = wall, cpu
        return (what, *seconds)


def source_to_read(arguments: Namespace) -> FileSource:
    if arguments.kind == "rtl":
        return RtlSource(kind="rtl", path=arguments.rtl, per_module=arguments.per_module)
    file = arguments.folder / f"pairs-{arguments.rows}.jsonl"
    fill(file, arguments.pairs, arguments.rows)
    return PairsSource(kind="pairs", path=file)


def main() -> None:
    parser = options(
        __doc__ or "",
        rows=20_000,
        pairs=DATA / "pairs",
        folder=Path("/tmp/bench-pairs"),
        rtl=DATA / "rtl-benchls",
        per_module=30,
    )
    parser.add_argument("--kind", choices=("pairs", "rtl"), default="pairs")
    source = source_to_read(parser.parse_args())
    clock = Clock()
    loaded = LoadedProblems()
    source.add_to(loaded, 0)
    rows = [clock.row(f"read {len(loaded.every):,} problems")]
    assert loaded.fingerprint
    rows.append(clock.row("fingerprints"))
    train, heldout, moved = separate(loaded.train, loaded.heldout, loaded.designs)
    rows.append(clock.row(f"split: {len(train):,} and {len(heldout):,}, {len(moved)} moved"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    show("", ["part", "wall s", "CPU s"], [*rows, ("peak memory", f"{peak} MB", "")])


if __name__ == "__main__":
    main()
