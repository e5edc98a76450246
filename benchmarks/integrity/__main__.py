"""Ask graders about attacks and honest twins, and print which they paid.

    python -m benchmarks.integrity [--graders bubblewrap bare docker public=CHECKOUT module:Class]
        [--every N] [--jobs 2] [--json FILE] [--write CASES.jsonl]

`paid` counts attacks that got the reward, `lost` honest twins that did not, `failed` answers on which the
grader itself failed. Cases that a grader does not support are left out. The exit code is 1 if one of our
executors paid, lost or failed.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from benchmarks.common import options, show, write_jsonl
from benchmarks.integrity.judges import Case, Judge, cases, judge
from rtl_grader.grading.executors import NAMES

COUNTED = ("paid", "contained", "lost", "failed")
SAID = {True: "paid", False: "contained", None: "left out"}


def main(argv: list[str] | None = None) -> int:
    parser = options(
        __doc__,
        every=(1, "every Nth attack of a class"),
        jobs=2,
        json=(Path, "write each grader's result for each case to this file (JSON Lines)"),
        write=(Path, "write the cases to this file (JSON Lines) and grade nothing"),
    )
    parser.add_argument("--graders", nargs="+", default=["bubblewrap", "bare"])
    arguments = parser.parse_args(argv)
    found = cases(arguments.every)
    if arguments.write:
        write_jsonl(arguments.write, map(asdict, found))
        return 0
    said = {name: results_of(judge(name), found, arguments.jobs) for name in arguments.graders}
    if arguments.json:
        rows = [
            {
                "grader": name,
                "class": case.attack_class,
                "name": case.name,
                "attack": attack,
                "twin": twin,
            }
            for name, pairs in said.items()
            for case, (attack, twin) in zip(found, pairs, strict=True)
        ]
        write_jsonl(arguments.json, rows)
    counts = {name: counted(found, pairs) for name, pairs in said.items()}
    table(found, counts)
    for name, pairs in said.items():
        left_out = sum(attack == "left out" for attack, _ in pairs)
        if left_out:
            print(f"{name}: {left_out} cases left out")
        for case, (attack, twin) in zip(found, pairs, strict=True):
            if name in NAMES and (attack, twin) != ("contained", "paid"):
                print(f"{name}: {case.name}: attack {attack}, twin {twin}")
    wrong = (
        c["all", key]
        for name, c in counts.items()
        if name in NAMES
        for key in COUNTED
        if key != "contained"
    )
    return 1 if any(wrong) else 0


def results_of(grader: Judge, found: Sequence[Case], jobs: int) -> list[tuple[str, str]]:
    """(attack, twin) of each case: a value of `SAID`, or the error."""

    def one(case: Case, text: str) -> str:
        try:
            return SAID[grader.paid(case, text)]
        except Exception as error:
            return f"failed: {error}"

    with ThreadPoolExecutor(jobs) as pool:
        attacks = pool.map(lambda case: one(case, case.answer), found)
        twins = pool.map(lambda case: one(case, case.twin), found)
        return list(zip(attacks, twins, strict=True))


def counted(
    found: Sequence[Case], pairs: Sequence[tuple[str, str]]
) -> Counter[tuple[str, str]]:
    """(class, one of `COUNTED`) -> number; the class `all` is their sum."""
    counts: Counter[tuple[str, str]] = Counter()
    for case, (attack, twin) in zip(found, pairs, strict=True):
        if attack != "left out":
            keys = [
                "failed" if attack.startswith("failed") else attack,
                *(["lost"] if twin == "contained" else []),
            ]
            keys += ["failed"] if twin.startswith("failed") else []
            counts.update((name, key) for name in (case.attack_class, "all") for key in keys)
    return counts


def table(found: Sequence[Case], counts: dict[str, Counter[tuple[str, str]]]) -> None:
    """Print a row for each class, with each grader's counts."""
    sizes = Counter(case.attack_class for case in found) + Counter(all=len(found))
    columns = ("class", "cases", *(f"{name}\n{key}" for name in counts for key in COUNTED))
    lines = [
        (name, n, *(c[name, key] for c in counts.values() for key in COUNTED))
        for name, n in sizes.items()
    ]
    show(f"{len(found)} attacks, each with an honest twin", columns, lines)


if __name__ == "__main__":
    sys.exit(main())
