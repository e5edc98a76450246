"""Do hanging answers hold a step up, and does a limit of CPU time change an honest verdict?

    python -m benchmarks.hanging steps [--hanging 200] [--steps 40] [--loads 1,8] [--executor bubblewrap]
    python -m benchmarks.hanging honest [--data ../shared/data] [--starter 36] [--loads 1,8] [--cvdp]

`steps` grades simulated train steps: 96 answers to 8 starter problems by two graders, most of them honest (every text another),
some hanging, of five kinds in turn. The golden answers are graded before, as validation does. A load of 8 is 8 endless loops
beside it. The exit code is 1 if a step takes longer than twice the median of its load, a hanging answer is no timeout, or an
honest one is none that passes.

`honest` grades right and wrong answers (benchmarks/answers.py) to starter problems, VerilogEval, RTLLM and the CVDP examples, with
--cvdp the known answers in tests/fidelity, too: once under the ceiling alone and then, at each load, under the golden answer's budget.
It lists every verdict that differs: a wrong answer that takes longer than its budget ends as a timeout. The exit code is 1 if an answer
passes in one way and not in the other. Each table tells how near to its budget the nearest answer came.
"""

import contextlib
import os
import random
import statistics
import subprocess
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from benchmarks.answers import answer_to, golden, graded, right_and_wrong, said
from benchmarks.common import ROOT, names, numbers, options, show
from benchmarks.equivalence import readers
from benchmarks.grading import examples
from rtl_core.grading.executors import Executor, make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.problems.starter import starter_problems
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome

WORKERS = 2
PROBLEMS, ANSWERS = 8, 12
SETS = ("starter", "CVDP examples", "VerilogEval", "RTLLM")
MOST_TIME = 2.0
"""No step may take more than so many times the median."""
HANGING = {
    "always without delay": ("", "reg hang = 0; always begin if (hang === 1'bz) #1; hang = ~hang; end"),
    "loop of zero delays": ("", "reg hang = 0; always @(hang) hang <= ~hang; initial #0 hang = 1;"),
    "forever with #1": ("`timescale 1fs/1fs\n", "reg hang = 0; initial forever #1 hang = ~hang;"),
    "huge loop in initial": ("", "integer hang; initial for (hang = 0; hang < 2000000000; hang = hang + 1) ;"),
    "sleeping": ('`ifdef __ICARUS__\n`include "/dev/ptmx"\n`endif\n', ""),
}
"""(in front of the design, in its first module)."""
Known = tuple[Problem, str, Answer]
"""A problem with a golden answer, and an answer of a kind."""


@contextlib.contextmanager
def load(count: int) -> Iterator[None]:
    """So many endless loops beside what is measured."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.callback(stack.enter_context(subprocess.Popen(["yes"], stdout=subprocess.DEVNULL)).kill)
        yield


def changed(problem: Problem, before: str, inside: str) -> Answer:
    """The golden answer with something in front of it and something more in its first module."""
    (path, text), *others = (problem.golden or {}).items()
    return Answer(files={path: before + text.replace("endmodule", inside + "\nendmodule", 1), **dict(others)})


def steps_of(hanging: int, steps: int) -> Iterator[list[tuple[Problem, Answer, str]]]:
    """(problem, answer, kind of hanging or nothing) of each step; the steps have differently many that hang."""
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
    """Grades the steps at a load and prints a line for each; whether all is well."""
    walls: list[float] = []
    wrong: list[str] = []
    spent: list[float] = []
    for number, step in enumerate(steps_of(hanging, steps)):
        graded(grader, {p.id: (p, golden(p)) for p, *_ in step}.values(), WORKERS)
        started = time.monotonic()
        verdicts = graded(grader, [(problem, answer) for problem, answer, _ in step], WORKERS)
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


def honest(data: Path, sets: list[str], starter: int, cvdp: bool) -> dict[str, list[Known]]:
    """The answers by set."""
    places = {**readers(data, starter), "CVDP examples": lambda: examples(data)}
    found = {
        name: [
            (problem, kind, Answer(files={path: f"// {kind}\n{text}" for path, text in files.items()}))
            for problem in read()
            for kind, files in right_and_wrong(problem)
        ]
        for name, read in places.items()
        if name in sets
    }
    if cvdp:
        goldens = ROOT / "tests/fidelity/goldens"
        known = {path.stem for path in goldens.iterdir()}
        single = [p for p in read_cvdp(data / "cvdp-single" / "problems.jsonl").problems if p.id in known]
        right = [(p.model_copy(update={"golden": answer_to(p, goldens).files}), "golden") for p in single]
        found["CVDP, known answers"] = [(p, kind, changed(p, "// again\n", "")) for p, kind in right]
    return found


def compare(executor: Executor, sets: dict[str, list[Known]], loads: list[int]) -> bool:
    """Grades all sets under the ceiling and, at each load, under budgets; whether the same answers pass."""
    different: list[str] = []
    same = True
    rows = []
    for name, known in sets.items():
        most_s = 600.0 if name.startswith("CVDP") else 60.0
        limits = Limits(wall_s=most_s, cpu_s=most_s)
        alone = Grader(executor, limits=limits.model_copy(update={"cpu_floor_s": most_s}))
        grader = Grader(executor, limits=limits)
        jobs = [(problem, answer) for problem, _, answer in known]
        ceiling = [said(verdict) for verdict in graded(alone, jobs, WORKERS)]
        goldens = {problem.id: (problem, golden(problem)) for problem, _ in jobs}
        graded(grader, goldens.values(), WORKERS)
        budgets = [grader.budget(*job) for job in jobs]
        nearest, differ = 0.0, []
        for count in loads:
            with load(count):
                now = graded(grader, jobs, WORKERS)
            lines = [
                f"load {count}: {problem.id}, {kind}: {was} under the ceiling, now {said(verdict)}: {'; '.join(verdict.reasons)}"
                for (problem, kind, _), was, verdict in zip(known, ceiling, now, strict=True)
                if said(verdict) != was
            ]
            different += lines
            same &= all(verdict.passed == (was[0] is Outcome.PASSED) for was, verdict in zip(ceiling, now, strict=True))
            differ.append(str(len(lines)))
            ended = ((v, b) for v, b in zip(now, budgets, strict=True) if b and v.outcome is not Outcome.TIMEOUT)
            nearest = max(nearest, *(verdict.cpu_s / budget.cpu_s for verdict, budget in ended))
        with_budget = sum(budget is not None for budget in budgets)
        rows.append((name, len(jobs), with_budget, *differ, f"{nearest:.0%} of its budget"))
        print(f"{name}: {', '.join(differ)} of {len(jobs)} differ")
        alone.close()
        grader.close()
    show("under budgets", ("", "answers", "with a budget", *(f"load {n}: differ" for n in loads), "nearest"), rows)
    for line in different:
        print(line)
    return same


def main() -> None:
    parser = options(__doc__, data=True)
    parser.add_argument("what", choices=("steps", "honest"))
    parser.add_argument("--executor", default="bubblewrap")
    parser.add_argument("--loads", type=numbers, default=[1, 8], help="endless loops beside it, comma-separated")
    parser.add_argument("--hanging", type=int, default=200)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--starter", type=int, default=36)
    parser.add_argument("--sets", type=names, default=list(SETS), help="of `honest`, comma-separated")
    parser.add_argument("--cvdp", action="store_true", help="known answers of CVDP, too")
    arguments = parser.parse_args()
    with contextlib.closing(make_executor(arguments.executor)) as executor:
        print(f"{executor.name}, {executor.tools()}, load of the machine before: {os.getloadavg()[0]:.1f}")
        if arguments.what == "steps":
            well = []
            for count in arguments.loads:
                limits = Limits(wall_s=600, cpu_s=600)
                with load(count), contextlib.closing(Grader(executor, limits=limits)) as grader:
                    well.append(measure_steps(grader, count, arguments.hanging, arguments.steps))
            good = all(well)
        else:
            known = honest(arguments.data, arguments.sets, arguments.starter, arguments.cvdp)
            good = compare(executor, known, arguments.loads)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
