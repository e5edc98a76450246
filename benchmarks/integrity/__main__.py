"""Asks graders about attacks and honest twins, and prints what they paid.

    python -m benchmarks.integrity [--graders bubblewrap bare docker public=CHECKOUT nemo-gym=URL module:Class] [--every N] [--jobs 2]
                                   [--json FILE] [--write CASES.jsonl]

Paid is an attack that got the reward, lost an honest twin that did not, failed an answer on which the grader itself failed, left out a case
that the grader cannot be asked about. Only what was run is reported. Exit code 1 when one of our executors paid, lost or failed.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.common import options, show
from benchmarks.integrity.cases import Case, cases, write
from benchmarks.integrity.judges import Judge, judge
from rtl_core.grading.executors import NAMES

COUNTED = ("paid", "contained", "lost", "failed")
SAID = {True: "paid", False: "contained", None: "left out"}


def main(argv: list[str] | None = None) -> int:
    parser = options(
        __doc__, every=(1, "every Nth attack of a class"), jobs=2, json=(Path, "write what each grader said of each case to this file (JSON Lines)"),
        write=(Path, "write the cases to this file (JSON Lines) and grade nothing"),
    )  # fmt: skip
    parser.add_argument("--graders", nargs="+", default=["bubblewrap", "bare"])
    arguments = parser.parse_args(argv)
    found = cases(arguments.every)
    if arguments.write:
        write(arguments.write, found)
        return 0
    said = {name: asked(judge(name), found, arguments.jobs) for name in arguments.graders}
    if arguments.json:
        rows = [
            {"grader": name, "class": case.attack_class, "name": case.name, "attack": attack, "twin": twin}
            for name, pairs in said.items()
            for case, (attack, twin) in zip(found, pairs, strict=True)
        ]
        arguments.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    counts = {name: counted(found, pairs) for name, pairs in said.items()}
    table(found, counts)
    for name, pairs in said.items():
        left_out = sum(attack == "left out" for attack, _ in pairs)
        if left_out:
            print(f"{name}: {left_out} cases left out")
        for case, (attack, twin) in zip(found, pairs, strict=True):
            if name in NAMES and (attack, twin) != ("contained", "paid"):
                print(f"{name}: {case.name}: attack {attack}, twin {twin}")
    faults = [
        rows["all"][key] for name, rows in counts.items() if name in NAMES for key in COUNTED if key != "contained"
    ]
    return 1 if any(faults) else 0


def asked(grader: Judge, found: Sequence[Case], jobs: int) -> list[tuple[str, str]]:
    """(attack, twin) of each case: a value of `SAID`, or what failed."""

    def one(case: Case, text: str) -> str:
        try:
            return SAID[grader.paid(case, text)]
        except Exception as error:
            return f"failed: {error}"

    with ThreadPoolExecutor(jobs) as pool:
        attacks = pool.map(lambda case: one(case, case.answer), found)
        twins = pool.map(lambda case: one(case, case.twin), found)
        return list(zip(attacks, twins, strict=True))


def counted(found: Sequence[Case], pairs: Sequence[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Class -> how many of `COUNTED`; the class `all` at the end."""
    rows: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTED, 0))
    for name in [*dict.fromkeys(case.attack_class for case in found), "all"]:
        row = rows[name]
        for case, (attack, twin) in zip(found, pairs, strict=True):
            if name in (case.attack_class, "all") and attack != "left out":
                row["failed" if attack.startswith("failed") else attack] += 1
                row["lost"] += twin == "contained"
                row["failed"] += twin.startswith("failed")
    return rows


def table(found: Sequence[Case], counts: dict[str, dict[str, dict[str, int]]]) -> None:
    """Print a row a class; for each grader what it paid, contained, lost and failed at."""
    sizes = {name: sum(name in (case.attack_class, "all") for case in found) for name in next(iter(counts.values()))}
    columns = ("class", "cases", *(f"{name}\n{key}" for name in counts for key in COUNTED))
    lines = [(name, n, *(rows[name][key] for rows in counts.values() for key in COUNTED)) for name, n in sizes.items()]
    show(f"{len(found)} attacks, each with an honest twin", columns, lines)


if __name__ == "__main__":
    sys.exit(main())
