"""Measure how many wrong designs the starter benches kill.

    python -m benchmarks.starter_strength [--specs 3] [--seed 0] [--threads 2] [--families counter,fifo]

For every family, takes `--specs` specifications over its widths, options and reset kinds, and grades wrong
designs for each: the mutants and stubs of `rtl-distill problems validate`, other members of the family with the same
ports, and golden answers that are wrong for one input pattern or in one state. Designs that fail are
killed. A survivor is simulated beside the golden answer for at least 40,000 cycles or inputs, as in an
audit: if they are told apart it counts against the bench, otherwise it is equivalent and left out.

The exit code is 1 if fewer than 99 % of the distinguishable designs were killed, or a golden answer did not pass.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace

from benchmarks.common import options, show
from rtl_core.starter import BY_NAME, FAMILIES, Spec, problem_of, starter_specs
from rtl_grader.equivalence.differential import Effort, compare
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.executors.base import Executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import Limits
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome
from rtl_grader.validation.mutants import mutants
from rtl_grader.validation.stubs import INNER, AroundGolden, stubs

EFFORT = Effort.of_cycles(40_000)
GOAL = 0.99
MUTANTS = 40
RARITIES = (2, 4, 6, 8)
"""Bits that must match for a design that is wrong for one pattern or in one state: once in 4 to once in 256 times."""
EACH = 3
"""Patterns of each rarity."""
Wrong = dict[str, Answer]
"""Description -> wrong design."""


@dataclass
class Tally:
    """Results for the wrong designs of a family."""

    killed: int = 0
    same: int = 0
    unfit: Counter[str] = field(default_factory=Counter)
    """Designs that were never tested, by outcome; they say nothing about the bench."""
    survivors: list[str] = field(default_factory=list)

    def __add__(self, other: Tally) -> Tally:
        mine, theirs = (vars(one).values() for one in (self, other))
        return Tally(*(a + b for a, b in zip(mine, theirs, strict=True)))

    def row(self, name: str) -> tuple[str, ...]:
        told = self.killed + len(self.survivors)
        share = f"{100 * self.killed / told:.1f} %" if told else "–"
        return name, str(self.killed), str(told), share, str(self.same), str(self.unfit.total())


def specs_of(family: str, count: int, seed: int) -> list[Spec]:
    """`count` specifications over the family's widths, widest first, with its options and reset kinds in turn."""
    made = BY_NAME[family]
    tier = next(tier for tier, families in FAMILIES.items() if made in families)
    drawn = starter_specs("train", 4 * len(FAMILIES[tier]), seed, tier)
    base = next(spec for spec in drawn if spec.family == family)
    widths, found = made.widths, []
    for number in range(count):
        place = (len(widths) - 1) * (count - 1 - number) // max(1, count - 1)
        spec = replace(
            base, width=widths[place], option=made.options[(number + seed) % len(made.options)]
        )
        if made.sequential:
            spec = replace(
                spec, asynchronous=bool(number % 2), active_low=bool(number // 2 % 2)
            )
        found.append(spec)
    return found


def wrong_designs(spec: Spec, seed: int = 0) -> Wrong:
    """All wrong designs of a specification, with distinct texts; the same for the same arguments."""
    problem = problem_of(spec)
    golden = problem.golden or {}
    found = {
        f"{m.kind}: {m.description}": m.files
        for m in mutants(golden, spec.module, MUTANTS, seed)
    }
    found |= {f"stub: {name}": files for name, files in stubs(problem).files.items()}
    found |= dict(relatives(spec, golden)) | dict(
        rarely_wrong(problem, random.Random(f"{seed}/{spec}"))
    )
    different = {tuple(files.items()): name for name, files in found.items() if files != golden}
    return {name: Answer(files=dict(files)) for files, name in different.items()}


def relatives(spec: Spec, golden: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Other members of the family with the same ports: another option, or another kind of reset."""
    family, ((path, text),) = BY_NAME[spec.family], golden.items()
    others = [replace(spec, option=option) for option in family.options]
    if family.sequential:
        others += [
            replace(spec, active_low=not spec.active_low),
            replace(spec, asynchronous=not spec.asynchronous),
        ]
    for other in others:
        code = family.code(other)
        if code.split("\n", 1)[0] == text.split("\n", 1)[0]:
            what = f"{other.option}, active_low {other.active_low}, asynchronous {other.asynchronous}"
            yield f"relative: {what}", {path: code}


def rarely_wrong(
    problem: Problem, rng: random.Random, rarities: Sequence[int] = RARITIES
) -> Iterator[tuple[str, dict[str, str]]]:
    """The golden answer with one output bit wrong while `rarity` bits of inputs, or of outputs, have one value."""
    around = AroundGolden(problem)
    for what, ports, mark in (("input", around.inputs, ""), ("state", around.outputs, INNER)):
        wide = [(p.name + mark, p.width or 1) for p in ports]
        bits = [
            f"{name}[{bit}]" if width > 1 else name
            for name, width in wide
            for bit in range(width)
        ]
        for rarity in (number for number in (*rarities,) * EACH if number <= len(bits)):
            pattern = (
                f"{{{', '.join(rng.sample(bits, rarity))}}} == {rng.randrange(1 << rarity)}"
            )
            output = rng.choice(around.outputs)
            flipped = (
                f"{output.name}{INNER} ^ (({pattern}) << {rng.randrange(output.width or 1)})"
            )
            if files := around.answer(around.but_for(output.name, flipped)):
                yield f"one {what}: {output.name} is wrong at {pattern}", files


def strength(
    executor: Executor,
    specs: Sequence[Spec],
    seed: int,
    threads: int,
    choose: Callable[[Wrong], Wrong] = dict,
) -> Tally:
    """Grade the wrong designs of some specifications of a family. Raises AssertionError if a golden answer fails."""
    tally = Tally()
    limits = Limits(wall_s=300.0, cpu_s=300.0)
    with closing(Grader(executor, seed=seed)) as grader, ThreadPoolExecutor(threads) as pool:
        for spec in specs:
            problem = problem_of(spec)
            golden = problem.golden or {}
            verdict = grader.grade(problem, Answer(files=golden))
            assert verdict.passed, f"golden answer of {spec}: {verdict.reasons}"
            wrong = choose(wrong_designs(spec, seed))
            verdicts = list(pool.map(grader.grade, [problem] * len(wrong), wrong.values()))
            survived = []
            for name, verdict in zip(wrong, verdicts, strict=True):
                if verdict.passed:
                    survived.append(name)
                elif verdict.outcome in (Outcome.TESTS_FAILED, Outcome.TIMEOUT):
                    tally.killed += 1
                else:
                    tally.unfit[f"{verdict.outcome.value} ({name})"] += 1
            compared = [
                pool.submit(
                    compare, executor, problem, golden, wrong[name].files, limits, EFFORT
                )
                for name in survived
            ]
            for name, found in zip(survived, (one.result() for one in compared), strict=True):
                if found.agrees:
                    tally.same += 1
                else:
                    place = f"{spec.family} {spec.option} {spec.width}"
                    tally.survivors.append(f"{place}: {name}: {found.result}, {found.detail}")
    return tally


def main() -> None:
    specs = (3, "specifications of each family")
    arguments = options(
        __doc__, specs=specs, seed=0, threads=os.cpu_count() or 1, families=[*BY_NAME]
    ).parse_args()
    whole, rows = Tally(), []
    started = time.monotonic()
    with make_executor("bubblewrap") as executor:
        for family in arguments.families:
            specs = specs_of(family, arguments.specs, arguments.seed)
            tally = strength(executor, specs, arguments.seed, arguments.threads)
            rows.append(tally.row(family))
            print(*rows[-1], flush=True)
            whole += tally
    columns = ("family", "killed", "told apart", "share", "the same", "no test")
    show("wrong designs of the starter set", columns, [*rows, None, whole.row("all")])
    for outcome, count in whole.unfit.items():
        print(f"not tested: {count} {outcome}")
    for survivor in whole.survivors:
        print(f"survived: {survivor}")
    print(f"{time.monotonic() - started:.0f} s")
    sys.exit(whole.killed < GOAL * (whole.killed + len(whole.survivors)))


if __name__ == "__main__":
    main()
