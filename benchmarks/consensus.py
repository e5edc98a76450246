"""How well the passes of a problem tell which of them are wrong, when the golden answer is hidden.

    python -m benchmarks.consensus [--answers 2,4,16] [--problems 24] [--wrong .25] [--cut 8] [--shared]
    [--sets starter,VerilogEval,RTLLM]

Imagines a harness without checks: whatever compiles passes. Each answer is wrong with probability
`--wrong`: a mutant that the golden answer tells apart; otherwise it is a rewrite of the golden answer
(benchmarks/equivalence.py). No two texts are the same. With --cut N a mutant must also pass a harness that
compares only N random vectors or clock cycles. With --shared all wrong answers to a problem are one mutant
in different texts. Prints precision and recall of `doubtful` with Wilson's 95 % intervals, and the answers
without a majority.
"""

import os
import random
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from benchmarks.common import options, show
from benchmarks.equivalence import LIMITS, SETS, problems_of, procedural, renamed
from rtl_core.learning.intervals import wilson
from rtl_grader.equivalence.consensus import by_consensus
from rtl_grader.equivalence.differential import compare
from rtl_grader.equivalence.effort import Effort
from rtl_grader.grading.executors import Executor, make_executor
from rtl_grader.hdl.tree import SourceTree
from rtl_grader.traces.races import reordered
from rtl_grader.types.problem import Problem
from rtl_grader.validation.doubts import EFFORT
from rtl_grader.validation.mutants import mutants

Files = Mapping[str, str]


def in_other_words(
    files: Files, number: int, rng: random.Random, *, plain: bool = False
) -> dict[str, str]:
    """The same design as another text; `plain` applies no rewrites, for designs whose rewrites Icarus does
    not accept."""
    changed = {}
    for path, text in files.items():
        for change in (
            () if plain else rng.sample((renamed, reordered, procedural), rng.randrange(3))
        ):
            if SourceTree(again := change(SourceTree(text))).errors == 0:
                text = again
        changed[path] = text.replace("endmodule", f"  wire unused_{number};\nendmodule", 1)
    return changed


def answers(
    executor: Executor,
    problem: Problem,
    wrong: list[Files],
    count: int,
    share: float,
    shared: bool,
    rng: random.Random,
) -> list[tuple[bool, Files]]:
    """`count` answers: (whether it is right, files)."""
    assert problem.golden is not None
    found: list[tuple[bool, Files]] = []
    one = rng.choice(wrong)
    for number in range(count):
        right = rng.random() >= share
        files = problem.golden if right else one if shared else rng.choice(wrong)
        text = in_other_words(files, number, rng)
        told = compare(executor, problem, problem.golden, text, LIMITS, effort=EFFORT)
        if not (told.agrees if right else told.result == "different"):
            text = in_other_words(files, number, random.Random(number), plain=True)
        found.append((right, text))
    return found


def wrong_answers(executor: Executor, problem: Problem, cut: int) -> list[Files]:
    """Mutants that the golden answer tells apart, and that a harness of `cut` vectors or cycles does not; 0
    means no harness."""
    golden, found = problem.golden or {}, []
    assert problem.interface is not None
    weak = Effort(
        exhaustive_bits=0, vectors=cut, cycles=1, stretch=1, run=cut, parameter_sets=0
    )
    for mutant in mutants(golden, problem.interface.module, 48 if cut else 12, 1):
        passes = (
            not cut
            or compare(executor, problem, golden, mutant.files, LIMITS, effort=weak).agrees
        )
        if (
            passes
            and compare(executor, problem, golden, mutant.files, LIMITS, effort=EFFORT).result
            == "different"
        ):
            found.append(mutant.files)
    return found


def measure(
    executor: Executor,
    problem: Problem,
    counts: list[int],
    share: float,
    shared: bool,
    cut: int,
) -> dict[int, Counter[str]]:
    """Number of answers -> counts of `right` or `wrong`, followed by the result of consensus."""
    rng = random.Random(f"{problem.id}/{share}/{shared}")
    wrong = wrong_answers(executor, problem, cut)
    tallies: dict[int, Counter[str]] = {count: Counter() for count in counts}
    if not wrong:
        return tallies

    for count in counts:
        right, files = zip(
            *answers(executor, problem, wrong, count, share, shared, rng), strict=True
        )
        found = by_consensus(
            executor,
            lambda golden: problem.model_copy(update={"golden": dict(golden)}),
            files,
            LIMITS,
            EFFORT,
        )
        tallies[count].update(
            f"{'right' if r else 'wrong'} {c.result}" for r, c in zip(right, found, strict=True)
        )
    return tallies


def main() -> None:
    arguments = options(
        __doc__,
        data=True,
        sets=[*SETS],
        answers=[2, 4, 16],
        problems=(24, "of each set"),
        wrong=0.25,
        cut=0,
        shared=False,
    ).parse_args()
    counts, lines = arguments.answers, []
    whole = {count: Counter[str]() for count in counts}

    def of_problem(problem: Problem) -> dict[int, Counter[str]]:
        return measure(
            executor, problem, counts, arguments.wrong, arguments.shared, arguments.cut
        )

    with (
        make_executor("bubblewrap") as executor,
        ThreadPoolExecutor(os.cpu_count() or 1) as pool,
    ):
        for name in arguments.sets:
            problems = problems_of(name, arguments.data, 78)
            chosen = random.Random(0).sample(problems, min(arguments.problems, len(problems)))
            done = list(pool.map(of_problem, chosen))
            for count in counts:
                tally = sum((one[count] for one in done), Counter[str]())
                whole[count] += tally
                lines.append((name, count, *_row(tally)))
    lines += [None, *(("all", count, *_row(whole[count])) for count in counts)]
    columns = (
        "set",
        "answers",
        "right",
        "wrong",
        "doubtful",
        "precision",
        "95 %",
        "recall",
        "95 %",
        "no majority",
    )
    show(None, columns, lines, width=140)


def _row(tally: Counter[str]) -> list[str]:
    right = sum(n for name, n in tally.items() if name.startswith("right"))
    wrong = tally.total() - right
    hit, false = tally["wrong different"], tally["right different"]
    return [
        str(right),
        str(wrong),
        str(hit + false),
        *_share(hit, hit + false),
        *_share(hit, wrong),
        str(tally["right unknown"] + tally["wrong unknown"]),
    ]


def _share(part: int, of: int) -> tuple[str, str]:
    if not of:
        return "–", "–"
    low, high = wilson(part, of)
    return f"{part / of:.3f}", f"{low:.3f} to {high:.3f}"


if __name__ == "__main__":
    main()
