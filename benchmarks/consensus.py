"""How well the passes of a problem tell which of them are wrong, with the golden answer hidden.

    python -m benchmarks.consensus [--answers 2,4,16] [--problems 24] [--wrong .25] [--cut 8] [--shared] [--sets starter,VerilogEval,RTLLM]

For each problem a harness whose checks were cut is imagined: whatever compiles passes. Of so many answers each is wrong with the chance
`--wrong`, a mutant that the golden answer tells apart, and else a rewrite of the golden answer (benchmarks/equivalence.py), every text
another. With --cut N a mutant must also pass a harness that compares N random vectors or clock cycles alone. With --shared all wrong answers to a problem are the same mutant in other words. Printed are precision and recall of `doubtful`
against the golden answer with Wilson's 95 % intervals, and how many answers had no majority.
"""

import os
import random
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from benchmarks.common import options, show
from benchmarks.equivalence import LIMITS, SETS, problems_of, procedural, renamed, reordered
from rtl_core.equivalence.consensus import by_consensus
from rtl_core.equivalence.differential import compare
from rtl_core.equivalence.side_by_side import Effort
from rtl_core.grading.executors import Executor, make_executor
from rtl_core.learning.intervals import wilson
from rtl_core.problems.tree import SourceTree
from rtl_core.types.problem import Problem
from rtl_core.validation.doubts import EFFORT
from rtl_core.validation.mutants import mutants

Files = Mapping[str, str]


def in_other_words(files: Files, number: int, rng: random.Random, *, plain: bool = False) -> dict[str, str]:
    """The same design as another text; `plain` where Icarus does not take a rewrite."""
    changed = {}
    for path, text in files.items():
        for change in () if plain else rng.sample((renamed, reordered, procedural), rng.randrange(3)):
            if SourceTree(again := change(SourceTree(text))).errors == 0:
                text = again
        changed[path] = text.replace("endmodule", f"  wire unused_{number};\nendmodule", 1)
    return changed


def answers(
    executor: Executor, problem: Problem, wrong: list[Files], count: int, share: float, shared: bool, rng: random.Random
) -> list[tuple[bool, Files]]:
    """(whether it is right, files) of `count` answers."""
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
    """Mutants that the golden answer tells apart, though a harness of `cut` vectors or cycles does not; 0 means no harness."""
    golden, found = problem.golden or {}, []
    assert problem.interface is not None
    weak = Effort(exhaustive_bits=0, vectors=cut, cycles=1, stretch=1, run=cut, parameter_sets=0)
    for mutant in mutants(golden, problem.interface.module, 48 if cut else 12, 1):
        passes = not cut or compare(executor, problem, golden, mutant.files, LIMITS, effort=weak).agrees
        if passes and compare(executor, problem, golden, mutant.files, LIMITS, effort=EFFORT).result == "different":
            found.append(mutant.files)
    return found


def measure(
    executor: Executor, problem: Problem, counts: list[int], share: float, shared: bool, cut: int
) -> dict[int, Counter[str]]:
    """Answers of the problem -> how many are right or wrong and doubtful, or neither."""
    rng = random.Random(f"{problem.id}/{share}/{shared}")
    wrong = wrong_answers(executor, problem, cut)
    tallies: dict[int, Counter[str]] = {count: Counter() for count in counts}
    if not wrong:
        return tallies

    def of(files: Files) -> Problem:
        return problem.model_copy(update={"golden": dict(files)})

    for count in counts:
        drawn = answers(executor, problem, wrong, count, share, shared, rng)
        truth = [right for right, _ in drawn]
        found = by_consensus(executor, of, [files for _, files in drawn], LIMITS, EFFORT)
        for right, one in zip(truth, found, strict=True):
            tallies[count][f"{'right' if right else 'wrong'} {one.result}"] += 1
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
        return measure(executor, problem, counts, arguments.wrong, arguments.shared, arguments.cut)

    with make_executor("bubblewrap") as executor, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for name in arguments.sets:
            problems = problems_of(name, arguments.data, 78)
            chosen = random.Random(0).sample(problems, min(arguments.problems, len(problems)))
            done = list(pool.map(of_problem, chosen))
            for count in counts:
                tally = sum((one[count] for one in done), Counter[str]())
                whole[count] += tally
                lines.append((name, count, *_row(tally)))
    lines += [None, *(("all", count, *_row(whole[count])) for count in counts)]
    columns = ("set", "answers", "right", "wrong", "doubtful", "precision", "95 %", "recall", "95 %", "no majority")
    show(None, columns, lines, width=140)


def _row(tally: Counter[str]) -> list[str]:
    right = sum(n for name, n in tally.items() if name.startswith("right"))
    wrong = tally.total() - right
    hit, false = tally["wrong different"], tally["right different"]
    return [
        str(right), str(wrong), str(hit + false), *_share(hit, hit + false), *_share(hit, wrong),
        str(tally["right unknown"] + tally["wrong unknown"]),
    ]  # fmt: skip


def _share(part: int, of: int) -> tuple[str, str]:
    if not of:
        return "–", "–"
    low, high = wilson(part, of)
    return f"{part / of:.3f}", f"{low:.3f} to {high:.3f}"


if __name__ == "__main__":
    main()
