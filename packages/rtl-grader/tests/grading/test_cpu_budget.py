"""The CPU budget of an answer is a multiple of a known-good answer's, and verdicts do not depend on the machine's load."""

import re
from contextlib import closing
from types import SimpleNamespace

import pytest

from benchmarks.answers import golden
from benchmarks.redteam.problems import own
from rtl_core.starter import starter_problems
from rtl_grader.grading.cache import MemoryCache
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import NO_BUDGET, Budget, KnownGood, Limits
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome

LIMITS = Limits(wall_s=600, cpu_s=600, cpu_floor_s=0.5)
"""Without a budget, hanging answers would take ten minutes under these."""
HANGING = {
    "always without delay": (
        "",
        "reg hang = 0; always begin if (hang === 1'bz) #1; hang = ~hang; end",
    ),
    "loop of zero delays": (
        "",
        "reg hang = 0; always @(hang) hang <= ~hang; initial #0 hang = 1;",
    ),
    "forever with #1": (
        "`timescale 1fs/1fs\n",
        "reg hang = 0; initial forever #1 hang = ~hang;",
    ),
    "huge loop in initial": (
        "",
        "integer hang; initial for (hang = 0; hang < 2000000000; hang = hang + 1) ;",
    ),
    "sleeping": ('`ifdef __ICARUS__\n`include "/dev/ptmx"\n`endif\n', ""),
    "loop in elaboration": (
        "",
        "function automatic integer f(input integer n); begin f = 0; while (n > 0) f = f + 1; end endfunction\n"
        "localparam HANG = f(3);",
    ),
    "huge generate loop": (
        "",
        "genvar g; for (g = 0; g < 900000; g = g + 1) begin : many wire [7:0] w = g; end",
    ),
}
"""Text before the design, and text inside its first module."""


def changed(problem, before, inside):
    """The golden answer with text before it and more text inside its first module."""
    (path, text), *others = problem.golden.items()
    return Answer(
        files={
            path: before + text.replace("endmodule", inside + "\nendmodule", 1),
            **dict(others),
        }
    )


@pytest.fixture(
    scope="module", params=["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)]
)
def executor(request):
    with make_executor(request.param) as started:
        yield started


@pytest.fixture(scope="module")
def problem():
    return starter_problems("train", 1, 0)[0]


@pytest.fixture
def grader(executor):
    with closing(Grader(executor, limits=LIMITS)) as made:
        yield made


@pytest.mark.corpus
@pytest.mark.parametrize("name", [name for name in HANGING if name != "sleeping"])
def test_an_answer_that_hangs_ends_after_the_budget_and_the_reason_names_both_times(
    grader, problem, name
):
    assert grader.grade(problem, golden(problem)).passed
    verdict = grader.grade(problem, changed(problem, *HANGING[name]))
    assert verdict.outcome is Outcome.TIMEOUT, verdict.reasons
    assert re.search(
        r"used more than [\d.]+ s of CPU time; the known-good answer takes [\d.]+ s",
        verdict.reasons[0],
    )
    assert verdict.cpu_s > verdict.cpu_limit_s == grader.budget(problem, Answer()).cpu_s


def test_an_answer_that_sleeps_ends_after_the_budget(grader, problem):
    assert grader.grade(problem, golden(problem)).passed
    verdict = grader.grade(problem, changed(problem, *HANGING["sleeping"]))
    assert verdict.outcome is Outcome.TIMEOUT, verdict.reasons
    assert "slept for more than" in verdict.reasons[0]


def test_without_a_golden_answer_passing_answers_set_the_budget(grader, problem):
    unknown = problem.model_copy(update={"golden": None})
    assert grader.grade(unknown, golden(problem)).passed
    verdict = grader.grade(unknown, changed(problem, *HANGING["huge loop in initial"]))
    assert "answers that pass take at most" in verdict.reasons[0]


@pytest.mark.slow
def test_the_golden_answer_is_graded_when_an_answer_uses_more_than_the_smallest_budget(
    grader, problem
):
    for text in ("", "// again\n"):
        endless = grader.grade(
            problem, changed(problem, text, HANGING["huge loop in initial"][1])
        )
        assert endless.outcome is Outcome.TIMEOUT, endless.reasons
        assert re.search(r"; the known-good answer takes [\d.]+ s", endless.reasons[0])
        assert endless.cpu_limit_s < 60
    assert list(grader.known_good.golden) == [problem.fingerprint]


def test_a_quick_answer_does_not_wait_for_the_golden_one(executor, problem):
    with closing(Grader(executor, limits=Limits(cpu_floor_s=60))) as grader:
        assert grader.grade(problem, changed(problem, "// another text\n", "")).passed
    assert grader.known_good.golden == {}


def test_a_slow_right_answer_gets_the_budget_of_a_slow_golden_answer(executor, problem):
    slow = "integer slow; initial for (slow = 0; slow < 700000; slow = slow + 1) ;"
    late = problem.model_copy(update={"golden": changed(problem, "", slow).files})
    with closing(Grader(executor, limits=Limits(cpu_floor_s=0.3))) as grader:
        verdict = grader.grade(late, changed(problem, "// another text\n", slow))
    assert verdict.passed, verdict.reasons


@pytest.mark.slow
def test_a_golden_answer_that_fails_sets_no_budget_and_is_graded_once(
    executor, problem, monkeypatch
):
    broken = problem.model_copy(
        update={"golden": dict.fromkeys(problem.targets, "module no; endmodule")}
    )
    with closing(Grader(executor, limits=Limits(cpu_s=0.8, cpu_floor_s=0.3))) as grader:
        seen = []
        monkeypatch.setattr(
            grader,
            "cache",
            SimpleNamespace(get=lambda key: None, put=lambda key, v: seen.append(v)),
        )
        for text in ("", "// again\n"):
            endless = grader.grade(
                broken, changed(problem, text, HANGING["huge loop in initial"][1])
            )
            assert (endless.outcome, endless.cpu_limit_s) == (Outcome.TIMEOUT, 0.8)
    assert [verdict.outcome for verdict in seen] == [
        Outcome.INTERFACE_MISMATCH, Outcome.TIMEOUT, Outcome.TIMEOUT,
    ]  # fmt: skip


@pytest.mark.parametrize("cpu_s", [2, pytest.param(2.9, marks=pytest.mark.slow)])
def test_a_simulator_that_a_bench_started_and_that_runs_out_of_cpu_time_is_a_timeout(
    executor, cpu_s
):
    bench = own()["own/bench"]
    with closing(Grader(executor, limits=Limits(cpu_s=cpu_s, cpu_floor_s=cpu_s))) as grader:
        verdict = grader.grade(bench, changed(bench, *HANGING["huge loop in initial"]))
    assert verdict.outcome is Outcome.TIMEOUT, verdict.reasons
    assert f"used more than {cpu_s} s of CPU time" in verdict.reasons[0]
    assert "known-good" not in verdict.reasons[0], "no budget is smaller than the limit"
    assert verdict.cpu_s > verdict.cpu_limit_s == cpu_s


@pytest.mark.parametrize(
    ("golden_s", "passing_s", "allowed_s"),
    [
        (0.01, None, 2.0),
        (0.5, None, 5.0),
        (100.0, None, 60.0),
        (0.5, 3.0, 5.0),
        (None, 3.0, 30.0),
    ],
)
def test_the_budget_is_a_multiple_between_floor_and_ceiling(
    problem, golden_s, passing_s, allowed_s
):
    known, limits = KnownGood(), Limits(cpu_s=60, cpu_floor_s=2, cpu_factor=10)
    other = changed(problem, "", "// another text")
    assert known.budget(problem, other, limits) == Budget(2.0, 0.0, golden=True), (
        "until the golden answer is graded"
    )
    known.golden[problem.fingerprint] = NO_BUDGET
    assert known.budget(problem, other, limits) is None
    known.golden.clear()
    if golden_s is not None:
        known.learn(problem, golden(problem), golden_s)
    for slower in () if passing_s is None else (passing_s, passing_s / 2):
        known.learn(problem, other, slower)
    if golden_s is None:
        known.golden[problem.fingerprint] = NO_BUDGET
    good_s = passing_s if golden_s is None else golden_s
    assert known.budget(problem, other, limits) == Budget(
        allowed_s, good_s, golden_s is not None
    )
    assert known.budget(problem, golden(problem), limits) is None, (
        "the golden answer has no budget"
    )


@pytest.mark.slow
def test_a_cached_timeout_is_valid_until_the_budget_is_much_larger(executor, problem):
    endless, cached = changed(problem, *HANGING["huge loop in initial"]), []
    problem = problem.model_copy(update={"golden": None})
    with closing(Grader(executor, limits=LIMITS, cache=MemoryCache())) as grader:
        for good_s in (0.01, 0.05, 0.09, 0.2):  # budgets of .5, .5, .9 and 2 s
            grader.known_good.passing[problem.fingerprint] = good_s
            cached.append(grader.grade(problem, endless).cached)
    assert cached == [False, True, True, False]


def test_a_cached_pass_is_valid_under_any_budget_and_sets_the_budget_of_others(
    executor, problem
):
    cache = MemoryCache()
    for _ in range(2):
        with closing(Grader(executor, limits=LIMITS, cache=cache)) as grader:
            verdict = grader.grade(problem, golden(problem))
        assert grader.known_good.golden == {problem.fingerprint: verdict.cpu_s}
    assert verdict.cached
    assert verdict.cpu_s > 0


def test_a_slow_right_answer_stays_within_the_budget(grader, problem):
    assert grader.grade(problem, golden(problem)).passed
    slow = "integer slow; initial for (slow = 0; slow < 100000; slow = slow + 1) ;"
    verdict = grader.grade(problem, changed(problem, "", slow))
    assert verdict.passed, verdict.reasons
