"""Verdicts on real answers: the published goldens, the textbook arbiter, and each way to fail."""

import asyncio
import contextlib
import os
import resource
from concurrent.futures import ThreadPoolExecutor

import pytest

from rtl_core.config.grading import RewardSection
from rtl_core.grading.cache import MemoryCache, cache_key, normalised
from rtl_core.grading.executors.bubblewrap import BubblewrapExecutor
from rtl_core.grading.grader import Grader, grade_all
from rtl_core.grading.limits import Limits
from rtl_core.learning.reward import Graded, reward
from rtl_core.prompting.extraction import extract_answer
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Interface, InterfaceSource, Port
from rtl_core.types.verdict import MismatchKind, Outcome, Stage
from tests.nouns import a_problem

ARBITER, LFSR = "cvdp_agentic_fixed_arbiter_0001", "cvdp_copilot_lfsr_0001"
TEXTBOOK = """module fixed_priority_arbiter #(parameter NUM_REQS = 4)(
    input clk, input rst_n, input [NUM_REQS-1:0] req, input priority_override,
    output reg [NUM_REQS-1:0] grant, output reg grant_valid);
    integer i;
    always @(posedge clk or negedge rst_n)
        if (!rst_n) begin grant <= 0; grant_valid <= 0; end
        else begin
            grant <= 0; grant_valid <= |req;
            for (i = 0; i < NUM_REQS; i = i + 1) if (req[i]) grant <= 1 << i;
        end
endmodule
"""


def changed(problem, old, new):
    """The golden answer with one place changed."""
    files = {path: text.replace(old, new) for path, text in problem.golden.items()}
    assert files != problem.golden
    return Answer(files=files)


def status(verdict):
    return {result.stage.value: result.status for result in verdict.stages}


def earned(problem, verdict):
    return reward(Graded(problem, verdict, "", (), "stop"), RewardSection().weights)


@pytest.mark.parametrize(("name", "tests"), [(ARBITER, 1), (LFSR, 3)])
def test_the_published_goldens_pass_all_stages(grader, examples, name, tests):
    verdict = grader.grade(examples[name], Answer(files=examples[name].golden))
    assert verdict.outcome is Outcome.PASSED, verdict.reasons
    assert (verdict.tests_passed, verdict.tests_total, verdict.reasons) == (tests, tests, ())
    assert set(status(verdict).values()) == {"passed"}
    assert {"iverilog", "cocotb", "pytest", "python"} <= set(verdict.tools)
    assert earned(examples[name], verdict).total == pytest.approx(1.6)


def test_the_textbook_arbiter_is_told_each_wrong_missing_and_extra_port(grader, examples):
    problem = examples[ARBITER]
    verdict = grader.grade(problem, extract_answer(f"```verilog\n{TEXTBOOK}```", problem.targets))
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert status(verdict) == {"format": "passed", "interface": "failed", "syntax": "passed", "tests": "skipped"}
    assert (verdict.tests_passed, verdict.tests_total) == (0, 0)
    named = {(m.kind, m.name) for m in verdict.mismatches}
    assert named == {
        (MismatchKind.MISSING_PORT, "reset"),
        (MismatchKind.MISSING_PORT, "valid"),
        (MismatchKind.MISSING_PORT, "grant_index"),
        (MismatchKind.EXTRA_PORT, "rst_n"),
        (MismatchKind.EXTRA_PORT, "grant_valid"),
        (MismatchKind.WRONG_WIDTH, "req"),
        (MismatchKind.WRONG_WIDTH, "grant"),
        (MismatchKind.WRONG_WIDTH, "priority_override"),
        (MismatchKind.EXTRA_PARAMETER, "NUM_REQS"),
    }
    assert any("priority_override" in r and "expected 8 bits, got 1 bit" in r for r in verdict.reasons)
    got = earned(problem, verdict)
    assert {term for term, (weight, value) in got.terms.items() if weight * value} == {"format", "syntax"}
    assert got.total == pytest.approx(0.4)


def test_a_wrong_design_fails_tests_and_is_told_which_and_why(grader, examples):
    verdict = grader.grade(examples[LFSR], changed(examples[LFSR], "lfsr_out[6] ^", "lfsr_out[5] ^"))
    assert verdict.outcome is Outcome.TESTS_FAILED
    assert status(verdict) == {"format": "passed", "interface": "passed", "syntax": "passed", "tests": "failed"}
    assert verdict.tests_total == 3 > verdict.tests_passed
    assert any("test_non_zero" in reason and "not matching" in reason for reason in verdict.reasons)


def test_what_does_not_compile_is_told_file_and_line(grader, examples):
    verdict = grader.grade(examples[LFSR], changed(examples[LFSR], "endmodule", "oops endmodule"))
    assert verdict.outcome is Outcome.COMPILE_FAILED
    assert status(verdict)["syntax"] == "failed"
    assert any(reason.startswith("rtl/lfsr_8bit.sv:17") for reason in verdict.reasons)


def test_warnings_of_a_file_that_is_named_after_errors_do_not_hide_the_error(grader):
    narrow = "".join(f"part p{i}(.error_in(a));\n" for i in range(9))
    design = f"module error_count(input [7:0] a);\n{narrow}assign y = oops;\nendmodule\n"
    part = "module part(input [3:0] error_in);\nendmodule\n"
    problem = a_problem(targets=("rtl/error_count.sv",), harness={"src/.env": "TOPLEVEL = error_count\n"})
    verdict = grader.grade(problem, Answer(files={"rtl/error_count.sv": design + part}), Stage.SYNTAX)
    reasons = verdict.stages[2].reasons
    assert "oops" in reasons[0]
    assert not any("warning" in reason or "Pruning" in reason for reason in reasons)


def test_a_module_of_another_name_is_an_interface_mismatch(grader, examples):
    verdict = grader.grade(examples[LFSR], changed(examples[LFSR], "module lfsr_8bit", "module lfsr"))
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert (verdict.mismatches[0].kind, verdict.mismatches[0].got) == (MismatchKind.WRONG_MODULE, "lfsr")
    assert status(verdict)["syntax"] == "passed"


@pytest.mark.parametrize(
    ("old", "new", "kind", "name"),
    [
        ("input [7:0] lfsr_seed", "input [6:0] lfsr_seed", MismatchKind.WRONG_WIDTH, "lfsr_seed"),
        ("output reg [7:0] lfsr_out", "inout [7:0] lfsr_out", MismatchKind.WRONG_DIRECTION, "lfsr_out"),
        ("input clock,reset,", "input clock,rst,", MismatchKind.MISSING_PORT, "reset"),
    ],
)
def test_each_kind_of_port_mistake_is_named(grader, examples, old, new, kind, name):
    verdict = grader.grade(examples[LFSR], changed(examples[LFSR], old, new))
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert (kind, name) in {(m.kind, m.name) for m in verdict.mismatches}


def test_a_further_port_that_the_harness_accepts_is_named_and_costs_nothing(grader, examples):
    answer = changed(examples[LFSR], "output reg [7:0] lfsr_out", "output parity, output reg [7:0] lfsr_out")
    verdict = grader.grade(examples[LFSR], answer)
    assert verdict.outcome is Outcome.PASSED
    assert set(status(verdict).values()) == {"passed"}
    assert [(m.kind, m.name) for m in verdict.mismatches] == [(MismatchKind.EXTRA_PORT, "parity")]
    assert "`parity`" in verdict.stage(Stage.INTERFACE).reasons[0]


def test_a_further_parameter_with_a_default_is_no_mistake(grader, examples):
    answer = changed(examples[LFSR], "module lfsr_8bit(", "module lfsr_8bit #(parameter DEBUG = 0)(")
    verdict = grader.grade(examples[LFSR], answer)
    assert (verdict.outcome, verdict.mismatches) == (Outcome.PASSED, ())


def test_the_harness_overrules_an_interface_that_was_only_derived(grader, examples):
    problem = examples[LFSR]
    wrong = Interface(module="lfsr_8bit", ports=(Port(name="lfsr_out", width=9),), source=InterfaceSource.SPECIFICATION)
    verdict = grader.grade(problem.model_copy(update={"interface": wrong}), Answer(files=problem.golden))
    assert verdict.outcome is Outcome.PASSED
    assert status(verdict)["interface"] == "passed"
    assert "the harness accepts it" in verdict.stage(Stage.INTERFACE).reasons[0]


@pytest.mark.parametrize("answer", [Answer(error="no fenced block"), Answer()])
def test_no_answer(grader, examples, answer):
    verdict = grader.grade(examples[LFSR], answer)
    assert verdict.outcome is Outcome.NO_ANSWER
    assert status(verdict) == {"format": "failed", "interface": "skipped", "syntax": "skipped", "tests": "skipped"}
    assert verdict.reasons


@pytest.mark.slow
def test_designs_that_never_end_are_timeouts_however_many_share_the_cores(executor, examples):
    """What a runner had not read yet when it was ended is no failure of the sandbox."""
    grader = Grader(executor, limits=Limits(wall_s=300, cpu_s=1))
    endless = changed(examples[LFSR], "logic q1,q2,q3;", "logic q1,q2,q3; reg r; always @(lfsr_seed) while (1) r = ~r;")
    try:
        with ThreadPoolExecutor(8) as pool:
            verdicts = list(pool.map(lambda _: grader.grade(examples[LFSR], endless), range(8)))
    finally:
        grader.close()
    assert {verdict.outcome for verdict in verdicts} == {Outcome.TIMEOUT}, [verdict.reasons for verdict in verdicts]
    assert all("CPU" in verdict.reasons[0] and status(verdict)["syntax"] == "passed" for verdict in verdicts)


def test_text_that_the_parser_cannot_bear_is_rejected_and_the_next_grade_is_unharmed(grader, examples):
    doubling = "`define A0 x x x x x x x x x x\n" + "".join(
        f"`define A{i} " + f"`A{i - 1} " * 10 + "\n" for i in range(1, 12)
    )
    path = examples[LFSR].targets[0]
    verdict = grader.grade(examples[LFSR], Answer(files={path: doubling + "module lfsr_8bit; `A11 endmodule\n"}))
    assert verdict.outcome is Outcome.REJECTED
    assert grader.grade(examples[LFSR], Answer(files=examples[LFSR].golden)).passed


def test_grading_can_stop_before_the_tests(executor, examples):
    for until, reached in ((Stage.FORMAT, 1), (Stage.INTERFACE, 2), (Stage.SYNTAX, 3)):
        grader = Grader(executor, until=until)
        verdict = grader.grade(examples[LFSR], Answer(files=examples[LFSR].golden))
        grader.close()
        assert list(status(verdict).values()) == ["passed"] * reached + ["skipped"] * (4 - reached)
        assert verdict.outcome is Outcome.NOT_TESTED
        assert not verdict.passed


def test_a_harness_that_needs_what_is_not_here_is_infrastructure_never_a_reward(grader, examples):
    harness = {**examples[LFSR].harness, "src/test_runner.py": "import no_such_module\n"}
    problem = examples[LFSR].model_copy(update={"harness": harness, "fingerprint": "another"})
    verdict = grader.grade(problem, Answer(files=problem.golden))
    assert verdict.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert "no_such_module" in verdict.reasons[0]


def test_the_same_answer_gets_the_same_verdict_in_any_thread(grader, examples):
    good, bad = examples[LFSR].golden, changed(examples[LFSR], "lfsr_out[6] ^", "lfsr_out[5] ^").files
    with ThreadPoolExecutor(3) as pool:
        verdicts = list(pool.map(lambda f: grader.grade(examples[LFSR], Answer(files=f)), [good, bad] * 4))
    assert [v.passed for v in verdicts] == [True, False] * 4
    assert len({(v.tests_passed, v.reasons) for v in verdicts[1::2]}) == 1


def test_a_cached_verdict_is_the_same_but_marked_and_costs_no_job(counting, examples):
    cache = MemoryCache()
    grader = Grader(counting, cache=cache)
    answer = Answer(files=examples[LFSR].golden)
    spaced = Answer(files={path: text.replace("\n", " \t\r\n") for path, text in answer.files.items()})
    first, second, third = (grader.grade(examples[LFSR], given) for given in (answer, answer, spaced))
    grader.close()
    assert (first.cached, second.cached, third.cached) == (False, True, True)
    assert second.model_copy(update={"cached": False, "wall_s": first.wall_s}) == first
    assert len(counting.jobs) == 1
    assert len(cache.drain()) == 1


def test_the_cache_key_follows_everything_that_decides_a_verdict(examples):
    problem = examples[LFSR]
    given = {
        "executor": "bubblewrap",
        "tools": {"iverilog": "11.0"},
        "seed": 0,
        "seeds": 3,
        "limits": Limits(),
        "until": Stage.TESTS,
    }
    files = problem.golden
    keys = {
        cache_key(problem, files, **given),
        cache_key(examples[ARBITER], files, **given),
        cache_key(problem, {"rtl/lfsr_8bit.sv": "x"}, **given),
        cache_key(problem, files, **{**given, "executor": "docker"}),
        cache_key(problem, files, **{**given, "tools": {"iverilog": "12.0"}}),
        cache_key(problem, files, **{**given, "seed": 1}),
        cache_key(problem, files, **{**given, "seeds": 1}),
        cache_key(problem, files, **{**given, "limits": Limits(wall_s=1)}),
        cache_key(problem, files, **{**given, "limits": Limits(cpu_floor_s=1)}),
        cache_key(problem, files, **{**given, "limits": Limits(cpu_factor=5)}),
        cache_key(problem, files, **{**given, "until": Stage.SYNTAX}),
    }
    assert len(keys) == 11


def test_only_what_no_compiler_sees_is_normalised():
    assert normalised("a \r\nb\n\n\n") == normalised("a\nb")
    assert normalised("a\n\nb") != normalised("a\nb")
    assert normalised("`define A x \\ \n") != normalised("`define A x \\\n")


def test_an_infrastructure_error_is_never_cached(examples):
    class Broken:
        name = "broken"
        derives_images = False

        def tools(self):
            return {}

        def has_module(self, name):
            return True

        def run(self, job):
            raise OSError("no space left on device")

        def close(self):
            pass

    cache = MemoryCache()
    grader = Grader(Broken(), cache=cache)
    verdict = grader.grade(examples[LFSR], Answer(files=examples[LFSR].golden))
    grader.close()
    assert verdict.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert "no space left" in verdict.reasons[0]
    assert len(cache) == 0


def test_half_a_character_gets_a_verdict_wherever_it_stands(grader, examples):
    problem = examples[LFSR].model_copy(update={"targets": (*examples[LFSR].targets, "docs/notes.md")})
    beside = Answer(files={**problem.golden, "docs/notes.md": "\ud800"})
    within = Answer(files={path: text + "// \ud800\n" for path, text in problem.golden.items()})
    with ThreadPoolExecutor() as pool:
        graded = asyncio.run(grade_all(grader, pool, problem, [beside, within, beside]))
    assert [(v.outcome, v.cached) for v in graded] == [
        (Outcome.PASSED, False),
        (Outcome.REJECTED, False),
        (Outcome.PASSED, True),
    ]


def test_files_of_one_name_in_two_folders_hold_nothing_against_an_answer(grader, examples):
    problem = examples[LFSR]
    twice = {f"rtl/{place}/part.sv": f"module {place}; endmodule\n" for place in ("a", "b")}
    verdict = grader.grade(
        problem.model_copy(update={"context": {**problem.context, **twice}}), Answer(files=problem.golden)
    )
    assert verdict.outcome is Outcome.PASSED, verdict.reasons


def test_a_process_with_more_than_1024_open_files_grades(examples):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        grader = Grader(stack.enter_context(BubblewrapExecutor()))
        stack.callback(grader.close)
        verdict = grader.grade(examples[LFSR], Answer(files=examples[LFSR].golden))
    assert verdict.outcome is Outcome.PASSED, verdict.reasons
