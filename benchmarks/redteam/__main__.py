"""Grade every attack and every honest twin; exit with 1 if a verdict is wrong.

    python -m benchmarks.redteam [--executor bubblewrap|docker|both] [--only GROUP_OR_NAME ...] [--jobs 2]
                                 [--every N] [--cold] [--json FILE]

Wrong are: an attack that is paid, an infrastructure error, an honest answer that is refused, and a grade
that takes more than one and a half times the wall limit of a service. Slow grades are repeated after all
others, and their times are scaled to an idle machine. Attacks on published problems are left out, and
counted, if RTL_DISTILL_DATA does not have them.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.common import options, show
from benchmarks.redteam.attack import COUNTER, INC, Attack
from benchmarks.redteam.catalogue import GROUPS, chosen
from benchmarks.redteam.grading import LIMITS, Graded, grade_all, grader_for
from benchmarks.redteam.problems import find
from rtl_grader.grading.limits import Limits

FAULTS = ("paid", "infrastructure error", "over time", "honest refused")


def main(argv: list[str] | None = None) -> int:
    parser = options(
        __doc__,
        jobs=2,
        every=(1, "every Nth of a group"),
        cold=(False, "bubblewrap without prepared processes"),
        wall=(LIMITS.wall_s, "wall limit of a service, in seconds"),
        json=(Path, "write every verdict to this file"),
    )
    parser.add_argument(
        "--executor", choices=("bubblewrap", "docker", "both"), default="bubblewrap"
    )
    parser.add_argument(
        "--only", nargs="+", help=f"groups ({', '.join(GROUPS)}) or parts of names"
    )
    arguments = parser.parse_args(argv)
    try:
        attacks = chosen(arguments.only, every=arguments.every)
    except ValueError as error:
        parser.error(str(error))
    missing = sum(find(attack.problem) is None for _, attack in attacks)
    if missing:
        print(
            f"left out: {missing} on published problems that are not available (set RTL_DISTILL_DATA)"
        )
    limits = LIMITS.model_copy(update={"wall_s": arguments.wall, "cpu_s": arguments.wall})
    names = ("bubblewrap", "docker") if arguments.executor == "both" else (arguments.executor,)
    graded = {name: _run(name, attacks, arguments, limits) for name in names}
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        rows = {name: [_row(one) for one in all_] for name, all_ in graded.items()}
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 1 if any(one.faults for all_ in graded.values() for one in all_) else 0


def _run(
    name: str, attacks: list, arguments: argparse.Namespace, limits: Limits
) -> list[Graded]:
    started = time.monotonic()
    graded: list[Graded] = []
    with grader_for(name, warm=not arguments.cold, limits=limits) as grader:
        warm_up = [
            ("", Attack("", "", base.problem, text=base.design(core="good")))
            for base in (COUNTER, INC)
        ]
        list(
            grade_all(grader, warm_up, arguments.jobs)
        )  # so that one-time start-up is not timed
        for one in grade_all(grader, attacks, arguments.jobs):
            graded.append(one)
            if sys.stdout.isatty():
                print(f"{len(graded)} of {len(attacks)} {one.group}", end="\r")
    rows = []
    for group in [*dict.fromkeys(one.group for one in graded), "all"]:
        ones = [one for one in graded if group in (one.group, "all")]
        counts = [sum(fault in one.faults for one in ones) for fault in FAULTS]
        rows.append(
            (group, len(ones), *counts, f"{max((one.wall_s for one in ones), default=0):.1f}")
        )
    title = f"{name}, {time.monotonic() - started:.0f} s"
    show(title, ("group", "answers", *FAULTS, "slowest s"), rows, width=110)
    for one in graded:
        if one.faults:
            place = (
                f"{one.group}: {one.attack.name!a} ({one.outcome.value}, {one.wall_s:.1f} s)"
            )
            print(f"{', '.join(one.faults)}: {place} {'; '.join(one.reasons)[:200]!a}")
    return graded


def _row(one: Graded) -> dict[str, object]:
    attack = {key: getattr(one.attack, key) for key in ("name", "idea", "problem")}
    verdict = {
        "outcome": one.outcome.value,
        "reasons": list(one.reasons),
        "wall_s": round(one.wall_s, 3),
    }
    return {"group": one.group, **attack, **verdict, "faults": one.faults}


if __name__ == "__main__":
    sys.exit(main())
