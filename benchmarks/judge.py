"""How quickly and how sharply golden answers judge others.

    python -m benchmarks.judge --designs FILE.jsonl [--count 1000] [--each 3] [--proof passes]
    python -m benchmarks.judge --designs FILE.jsonl --mutants 300 [--longest 20000] [--log RESULTS.jsonl]

Each line of the files has a module in `files` (name -> text) and `top_module`. The first form grades golden
answers and `--each` mutants of each, `--count` answers in all: answers a second, and CPU seconds of a grading
by percentile. A golden answer that fails is an error. The second form grades mutants of as many designs with the
default effort and with the longest: of the mutants that the longest tells apart, how many does the default
refuse? With `--log` an interrupted call is continued. The exit code is 1 if a golden answer fails, or the
default refuses less than 99 %.
"""

import ast
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path

from benchmarks.common import Log, options, show
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.problems.judged import Judging, judged_problem
from rtl_grader.traces.stimuli import Effort
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Verdict
from rtl_grader.validation.mutants import mutants

PERCENTILES = (50, 90, 99, 100)
CASES = ("golden", "mutant")
REFUSED = "refused by the default"
MISSED = "refused by the longest alone"


def designs(paths: list[Path], judging: Judging) -> Iterator[tuple[str, Problem | str]]:
    """Yield (name, problem, or why there is none) of every line."""
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            row = json.loads(line)
            top, files = row["top_module"], row["files"]
            files = ast.literal_eval(files) if isinstance(files, str) else files
            whole = [name for name in files if name.endswith("_combined.v")]
            names = whole or [name for name in files if name.endswith((".v", ".sv"))]
            text = "\n".join(files[name] for name in names)
            name = row.get("task_id", f"{path.name}:{number + 1}")
            try:
                yield name, problem_of(name, top, text, judging)
            except ValueError as error:
                yield name, str(error)


def problem_of(name: str, top: str, text: str, judging: Judging) -> Problem:
    """A problem that this design judges, with its own text as the specification."""
    return judged_problem(
        id=name,
        source="designs",
        category="cid003",
        difficulty="medium",
        prompt=f"Write this module:\n```verilog\n{text}\n```\n",
        golden={"rtl/design.v": text},
        top=top,
        judging=judging,
    )


def answers(problem: Problem, count: int) -> Iterator[tuple[str, Answer]]:
    """Yield (kind, answer): the golden one and mutants."""
    golden = problem.golden or {}
    assert problem.interface is not None
    if count > 0:
        yield CASES[0], Answer(files=golden)
    for mutant in mutants(golden, problem.interface.module, abs(count), 0):
        yield CASES[1], Answer(files=mutant.files)


def speed(grader: Grader, problems: list[Problem], count: int, each: int, workers: int) -> int:
    """Grade `count` answers and print how long that takes. Returns the number of golden answers that fail."""
    for problem in problems:
        grader.grade(problem, Answer(files={"rtl/design.v": "module nothing; endmodule\n"}))
    work = [
        (problem, kind, answer)
        for problem in problems
        for kind, answer in answers(problem, each)
    ][:count]
    start = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        verdicts = list(pool.map(lambda item: grader.grade(item[0], item[2]), work))
    wall_s = time.monotonic() - start
    rows = []
    for kind in CASES:
        chosen = [v for (_, case, _), v in zip(work, verdicts, strict=True) if case == kind]
        times = sorted(v.cpu_s for v in chosen)
        spots = [times[min(len(times) - 1, len(times) * p // 100)] for p in PERCENTILES]
        passed = sum(v.passed for v in chosen)
        rows.append([kind, len(chosen), passed, *(f"{spot:.3f}" for spot in spots)])
    columns = ["answers", "number", "passed", *(f"CPU s, {p} %" for p in PERCENTILES)]
    show(f"{len(work) / wall_s:.1f} answers a second, {workers} at a time", columns, rows)
    return sum(
        report(problem, verdict)
        for (problem, kind, _), verdict in zip(work, verdicts, strict=True)
        if kind == CASES[0] and not verdict.passed
    )


def report(problem: Problem, verdict: Verdict) -> int:
    """Print why a golden answer fails. Returns 1 if it is different from itself, else 0."""
    print(f"{problem.id}: {verdict.outcome}: {'; '.join(verdict.reasons)[:300]}")
    return int(verdict.outcome is not Outcome.INFRASTRUCTURE_ERROR)


def sharpness(
    grader: Grader, problems: list[Problem], each: int, longest: Effort, workers: int, log: Log
) -> int:
    """Grade mutants of each design with the default and, if they pass, with the longest effort; print what the
    default misses. Returns 1 if it refuses less than 99 % of what the longest tells apart."""
    long = grader.but(judge_effort=longest, cache=None)

    def graded(problem: Problem) -> list[tuple[str, str, str]]:
        results = []
        for _, answer in answers(problem, -each):
            results.append((problem.id, *both(grader, long, problem, answer)))
        return results

    done = {name for name, *_ in log.rows}
    with ThreadPoolExecutor(workers) as pool:
        for rows in pool.map(graded, [one for one in problems if one.id not in done]):
            log.add(rows)
    for name, result, reasons in log.rows:
        if result == MISSED:
            print(f"{name}: missed: {reasons}")
    counts = Counter(result for _, result, _ in log.rows)
    share = counts[REFUSED] / max(1, counts[REFUSED] + counts[MISSED])
    rows = [[kind, number] for kind, number in counts.most_common()]
    show(f"default effort: {share:.2%} of what the longest tells apart", ["mutants", ""], rows)
    return int(share < 0.99)


def both(grader: Grader, long: Grader, problem: Problem, answer: Answer) -> tuple[str, str]:
    """(what two graders say of an answer, the second one only if it passes the first; reasons)."""
    verdict = grader.grade(problem, answer)
    result = REFUSED
    if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
        result = "the golden answer cannot judge"
    elif verdict.passed:
        verdict = long.grade(problem, answer)
        result = "passes both" if verdict.passed else MISSED
    return result, "; ".join(verdict.reasons)[:200]


def main() -> int:
    arguments = options(
        __doc__,
        designs=(["designs.jsonl"], "JSON Lines files of designs"),
        number=(300, "designs, spread over the files"),
        count=(1000, "answers whose speed is measured"),
        each=(3, "mutants of each design"),
        mutants=(0, "designs whose mutants are graded with both efforts"),
        longest=(20_000, "clock cycles of the longest effort"),
        workers=(2, "gradings at a time"),
        proof=("never", "or passes: also prove what the simulation passes"),
        executor="bubblewrap",
        log=(Path, "file of results about mutants"),
    ).parse_args()
    judging = Judging(proof=arguments.proof)
    everything = list(designs([Path(path) for path in arguments.designs], judging))
    problems = [problem for _, problem in everything if isinstance(problem, Problem)]
    print(f"{len(everything)} designs, of {len(problems)} the ports can be read")
    number = arguments.mutants or arguments.number
    step = max(1, len(problems) // number)
    problems = list(islice(problems[::step], number))
    with (
        make_executor(arguments.executor) as executor,
        closing(Grader(executor)) as grader,
    ):
        if arguments.mutants:
            longest = Effort.of_cycles(arguments.longest)
            log = Log(arguments.log)
            return sharpness(grader, problems, arguments.each, longest, arguments.workers, log)
        return int(
            speed(grader, problems, arguments.count, arguments.each, arguments.workers) > 0
        )


if __name__ == "__main__":
    sys.exit(main())
