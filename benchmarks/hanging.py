"""Check that hanging answers do not hold up a step.

    python -m benchmarks.hanging [--hanging 200] [--steps 40] [--loads 1,8] [--executor bubblewrap]

Two graders grade simulated train steps of 96 distinct answers to 8 starter problems: most are honest, some hang in one of five ways. The
golden answers are graded first, as validation does. A load of 8 is 8 endless loops in the background. The exit code is 1 if a step takes more
than twice the median of its load, a hanging answer does not time out, or an honest one does not pass.
"""

import contextlib
import os
import random
import statistics
import subprocess
import time
from collections.abc import Iterator
from itertools import cycle

from benchmarks.answers import golden, grade_all, grader_on
from benchmarks.common import options
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.problems.starter import starter_problems
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome

WORKERS = 2
PROBLEMS, ANSWERS = 8, 12
MOST_TIME = 2.0
"""Longest step that is allowed, relative to the median."""
HANGING = {
    "always without delay": ("", "reg hang = 0; always begin if (hang === 1'bz) #1; hang = ~hang; end"),
    "loop of zero delays": ("", "reg hang = 0; always @(hang) hang <= ~hang; initial #0 hang = 1;"),
    "forever with #1": ("`timescale 1fs/1fs\n", "reg hang = 0; initial forever #1 hang = ~hang;"),
    "huge loop in initial": ("", "integer hang; initial for (hang = 0; hang < 2000000000; hang = hang + 1) ;"),
    "sleeping": ('`ifdef __ICARUS__\n`include "/dev/ptmx"\n`endif\n', ""),
}
"""Text before the design, and text inside its first module."""


@contextlib.contextmanager
def load(count: int) -> Iterator[None]:
    """Run `count` endless loops in the background."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.callback(stack.enter_context(subprocess.Popen(["yes"], stdout=subprocess.DEVNULL)).kill)
        yield


def changed(problem: Problem, before: str, inside: str) -> Answer:
    """The golden answer with text before it and more text inside its first module."""
    (path, text), *others = (problem.golden or {}).items()
    return Answer(files={path: before + text.replace("endmodule", inside + "\nendmodule", 1), **dict(others)})


def steps_of(hanging: int, steps: int) -> Iterator[list[tuple[Problem, Answer, str]]]:
    """Yield for each step a list of (problem, answer, way to hang, or empty); the number that hang varies."""
    chance, kinds = random.Random(1), cycle(HANGING)
    problems = starter_problems("train", PROBLEMS * steps, 0)
    counts = [0] * steps
    for _ in range(hanging):
        counts[chance.randrange(steps)] += 1
    for number, count in enumerate(counts):
        chosen = problems[PROBLEMS * number : PROBLEMS * (number + 1)]
        names = [next(kinds) for _ in range(count)] + [""] * (PROBLEMS * ANSWERS - count)
        chance.shuffle(names)
        yield [
            (problem, changed(problem, f"// {place}\n", "") if not name else changed(problem, *HANGING[name]), name)
            for place, name in enumerate(names)
            for problem in [chosen[place // ANSWERS]]
        ]


def measure_steps(grader: Grader, count: int, hanging: int, steps: int) -> bool:
    """Grade the steps and print a line for each; return whether all is well."""
    walls: list[float] = []
    wrong: list[str] = []
    spent: list[float] = []
    for number, step in enumerate(steps_of(hanging, steps)):
        grade_all(grader, {p.id: (p, golden(p)) for p, *_ in step}.values(), WORKERS)
        started = time.monotonic()
        verdicts = grade_all(grader, [(problem, answer) for problem, answer, _ in step], WORKERS)
        walls.append(time.monotonic() - started)
        spent += [v.cpu_s for v, (_, _, name) in zip(verdicts, step, strict=True) if name]
        for verdict, (problem, _, name) in zip(verdicts, step, strict=True):
            if verdict.outcome is not (Outcome.TIMEOUT if name else Outcome.PASSED):
                wrong.append(f"{problem.id}, {name or 'honest'}: {verdict.outcome.value}: {'; '.join(verdict.reasons)}")
        print(f"load {count}, step {number}: {walls[-1]:.1f} s, {sum(bool(n) for *_, n in step)} hanging")
    median, most = statistics.median(walls), max(walls)
    print(
        f"load {count}: {len(walls)} steps of {PROBLEMS * ANSWERS} answers, median {median:.1f} s, longest {most:.1f} s = {most / median:.2f}"
        f" medians; {len(spent)} hanging answers used {statistics.mean(spent):.1f} s of CPU or sleep each, {max(spent):.1f} s at most;"
        f" {len(wrong)} wrong verdicts"
    )
    for line in wrong:
        print(line)
    return not wrong and most <= MOST_TIME * median


def main() -> None:
    loads = ([1, 8], "endless loops in the background")
    arguments = options(__doc__, executor="bubblewrap", loads=loads, hanging=200, steps=40).parse_args()
    well, limits = [], Limits(wall_s=600, cpu_s=600)
    print(f"load average before: {os.getloadavg()[0]:.1f}")
    for count in arguments.loads:
        with load(count), grader_on(arguments.executor, limits=limits) as grader:
            print(f"{grader.executor.name}, {grader.executor.tools()}")
            well.append(measure_steps(grader, count, arguments.hanging, arguments.steps))
    raise SystemExit(0 if all(well) else 1)


if __name__ == "__main__":
    main()
