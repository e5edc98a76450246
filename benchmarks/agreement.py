"""Compare the verdicts of the executors on right and wrong answers, and print every difference.

    python -m benchmarks.agreement [--data ../shared/data] [--starter 54] [--executors bubblewrap,docker]

For each starter problem and published example: the golden answer, a mutant, one with an extra port, one with a renamed port, one that does not
compile, and a constant. Verdicts agree if outcome and numbers of tests are the same. With the toolchain installed (`rtl-distill toolchain
install`) both executors run the same tools, and no difference is expected; the exit code is 1 if there is one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from benchmarks.answers import grade_all, right_and_wrong, summary
from benchmarks.common import options, show
from benchmarks.grading import examples
from rtl_core.grading.executors import Executor, make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.problems.starter import starter_problems
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome, Verdict


@dataclass(frozen=True)
class Pair:
    """An answer of some kind to a problem, with each executor's verdict by name."""

    problem: Problem
    kind: str
    verdicts: dict[str, Verdict]

    @property
    def agreed(self) -> bool:
        broken = any(v.outcome is Outcome.INFRASTRUCTURE_ERROR for v in self.verdicts.values())
        return len({summary(v) for v in self.verdicts.values()}) == 1 and not broken


def agreement(
    pairs: Sequence[tuple[Problem, str, Mapping[str, str]]], executors: Mapping[str, Executor], limits: Limits
) -> list[Pair]:
    """Grade (problem, kind, files) with every executor, on all cores."""
    verdicts: dict[str, list[Verdict]] = {}
    for name, executor in executors.items():
        with closing(Grader(executor, limits=limits)) as grader:
            verdicts[name] = grade_all(grader, [(problem, Answer(files=dict(files))) for problem, _, files in pairs])
    return [
        Pair(problem, kind, dict(zip(verdicts, each, strict=True)))
        for (problem, kind, _), *each in zip(pairs, *verdicts.values(), strict=True)
    ]


def main() -> None:
    arguments = options(__doc__, data=True, starter=54, timeout=30.0, executors=["bubblewrap", "docker"]).parse_args()
    pairs = [
        (p, kind, files)
        for p in (*starter_problems("heldout", arguments.starter, 1), *examples(arguments.data))
        for kind, files in right_and_wrong(p)
    ]
    with ExitStack() as stack:
        executors = {name: stack.enter_context(make_executor(name)) for name in arguments.executors}
        for name, executor in executors.items():
            print(f"{name}: {executor.tools()}")
        found = agreement(pairs, executors, Limits(wall_s=arguments.timeout, cpu_s=arguments.timeout))
    last = [*executors][-1]
    counts = Counter(f"{pair.kind}: {pair.verdicts[last].outcome.value}" for pair in found)
    show(f"{len(found)} pairs", (f"answer: verdict of {last}", "pairs"), sorted(counts.items()))
    different = [pair for pair in found if not pair.agreed]
    if different:
        rows = []
        for pair in different:
            cells = [f"{v.outcome.value} {v.tests_passed}/{v.tests_total}" for v in pair.verdicts.values()]
            reasons = "; ".join(next(iter(v.reasons), "")[:60] for v in pair.verdicts.values())
            rows.append((pair.problem.id, pair.kind, *cells, reasons))
        show("differences", ("problem", "answer", *executors, "reasons"), rows, width=150)
    print(f"{len(found)} pairs, {len(different)} differences")
    raise SystemExit(1 if different else 0)


if __name__ == "__main__":
    main()
