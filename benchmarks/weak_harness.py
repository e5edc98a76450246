"""Starter problems whose harnesses pay for wrong answers, as a source:
`problems.sources.0.kind=benchmarks.weak_harness:WeakStarter`.

docs/results.md trains the demo on them with `learning.doubtful` set to keep, mask and zero.
"""

from rtl_core.starter import Split
from rtl_core.starter.source import StarterSource
from rtl_grader.types.problem import Problem

CHECKS = 1
"""Number of outputs of each test that are compared."""
_COMPARED = "            if get() != format(value, form):"
BENCH = "src/starter_bench.py"


class WeakStarter(StarterSource):
    """The starter set with weak harnesses for training problems."""

    def make(self, split: Split, count: int, seed: int) -> list[Problem]:
        problems = super().make(split, count, seed)
        return [weakened(problem) for problem in problems] if split == "train" else problems


def weakened(problem: Problem) -> Problem:
    """The problem with a harness that makes only the first `CHECKS` comparisons."""
    bench = problem.harness[BENCH]
    assert bench.count(_COMPARED) == 1
    bench = bench.replace(
        _COMPARED, _COMPARED.replace("if ", f"if self.checks <= {CHECKS} and ")
    )
    return Problem(**(dict(problem) | {"harness": {**problem.harness, BENCH: bench}}))
