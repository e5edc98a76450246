"""Docker, and bubblewrap with the tools of Docker's image, say the same of right and wrong answers."""

import pytest

from benchmarks.agreement import agreement
from benchmarks.answers import right_and_wrong
from rtl_core.grading.executors import make_executor
from rtl_core.grading.executors.bubblewrap import BubblewrapExecutor
from rtl_core.grading.limits import Limits
from rtl_core.problems.starter import starter_problems

pytestmark = pytest.mark.docker


def test_executors_with_the_same_tools_agree_on_right_and_wrong_answers(installed, examples):
    problems = [*starter_problems("heldout", 9, 3), *examples.values()]
    pairs = [(problem, kind, files) for problem in problems for kind, files in right_and_wrong(problem)]
    with BubblewrapExecutor(installed) as one, make_executor("docker") as other:
        tools = [{name: version for name, version in e.tools().items() if name != "toolchain"} for e in (one, other)]
        assert tools[0] == {name: version for name, version in tools[1].items() if name != "image"}
        assert one.tools()["toolchain"] == other.tools()["image"]
        found = agreement(pairs, {"bubblewrap": one, "docker": other}, Limits(wall_s=30, cpu_s=10))
    assert [(p.problem.id, p.kind, {n: v.outcome for n, v in p.verdicts.items()}) for p in found if not p.agreed] == []
    assert {"passed", "tests_failed", "compile_failed", "interface_mismatch"} <= {
        p.verdicts["docker"].outcome.value for p in found
    }
