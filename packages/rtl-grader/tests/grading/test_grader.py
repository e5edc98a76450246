"""Verdicts on real answers: the published golden answers, the textbook arbiter, and every kind of failure."""

import asyncio
import contextlib
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from rtl_core.config.reward import RewardSection
from rtl_core.learning.reward import Graded, reward
from rtl_grader.extraction.response import extract_answer
from rtl_grader.grading.cache import Conditions, MemoryCache, cache_key, normalised
from rtl_grader.grading.executors.bubblewrap import BubblewrapExecutor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import Limits
from rtl_grader.grading.pool import GraderPool
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import MismatchKind, Outcome, Stage
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


def test_the_textbook_arbiter_gets_every_wrong_missing_and_extra_port_named(grader, examples):
    problem = examples[ARBITER]
    verdict = grader.grade(
        problem, extract_answer(f"```verilog\n{TEXTBOOK}```", problem.targets)
    )
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert status(verdict) == {
        "format": "passed",
        "interface": "failed",
        "syntax": "passed",
        "tests": "skipped",
    }
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
    assert any(
        "priority_override" in r and "expected 8 bits, got 1 bit" in r for r in verdict.reasons
    )
    got = earned(problem, verdict)
    assert {term for term, (weight, value) in got.terms.items() if weight * value} == {
        "format",
        "syntax",
    }
    assert got.total == pytest.approx(0.4)


def test_a_wrong_design_fails_tests_with_their_names_and_messages(grader, examples):
    verdict = grader.grade(
        examples[LFSR], changed(examples[LFSR], "lfsr_out[6] ^", "lfsr_out[5] ^")
    )
    assert verdict.outcome is Outcome.TESTS_FAILED
    assert status(verdict) == {
        "format": "passed",
        "interface": "passed",
        "syntax": "passed",
        "tests": "failed",
    }
    assert verdict.tests_total == 3 > verdict.tests_passed
    assert any(
        "test_non_zero" in reason and "not matching" in reason for reason in verdict.reasons
    )


def test_a_compile_error_has_file_and_line(grader, examples):
    verdict = grader.grade(
        examples[LFSR], changed(examples[LFSR], "endmodule", "oops endmodule")
    )
    assert verdict.outcome is Outcome.COMPILE_FAILED
    assert status(verdict)["syntax"] == "failed"
    assert any(reason.startswith("rtl/lfsr_8bit.sv:17") for reason in verdict.reasons)


def test_warnings_about_a_file_named_error_do_not_hide_the_error(grader):
    narrow = "".join(f"part p{i}(.error_in(a));\n" for i in range(9))
    design = f"module error_count(input [7:0] a);\n{narrow}assign y = oops;\nendmodule\n"
    part = "module part(input [3:0] error_in);\nendmodule\n"
    problem = a_problem(
        targets=("rtl/error_count.sv",), harness={"src/.env": "TOPLEVEL = error_count\n"}
    )
    verdict = grader.grade(
        problem, Answer(files={"rtl/error_count.sv": design + part}), Stage.SYNTAX
    )
    reasons = verdict.stages[2].reasons
    assert "oops" in reasons[0]
    assert not any("warning" in reason or "Pruning" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("old", "new", "kind", "name", "got"),
    [
        ("module lfsr_8bit", "module lfsr", MismatchKind.WRONG_MODULE, "lfsr_8bit", "lfsr"),
        (
            "input [7:0] lfsr_seed",
            "input [6:0] lfsr_seed",
            MismatchKind.WRONG_WIDTH,
            "lfsr_seed",
            "7 bits",
        ),
        (
            "output reg [7:0] lfsr_out",
            "inout [7:0] lfsr_out",
            MismatchKind.WRONG_DIRECTION,
            "lfsr_out",
            "inout",
        ),
        (
            "input clock,reset,",
            "input clock,rst,",
            MismatchKind.MISSING_PORT,
            "reset",
            "nothing",
        ),
    ],
)
def test_each_kind_of_interface_mismatch_is_named(grader, examples, old, new, kind, name, got):
    verdict = grader.grade(examples[LFSR], changed(examples[LFSR], old, new))
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH
    assert (kind, name, got) in {(m.kind, m.name, m.got) for m in verdict.mismatches}
    assert kind is not MismatchKind.WRONG_MODULE or status(verdict)["syntax"] == "passed"


def test_an_extra_port_that_the_harness_accepts_is_listed_but_passes(grader, examples):
    answer = changed(
        examples[LFSR], "output reg [7:0] lfsr_out", "output parity, output reg [7:0] lfsr_out"
    )
    verdict = grader.grade(examples[LFSR], answer)
    assert verdict.outcome is Outcome.PASSED
    assert set(status(verdict).values()) == {"passed"}
    assert [(m.kind, m.name) for m in verdict.mismatches] == [
        (MismatchKind.EXTRA_PORT, "parity")
    ]
    assert "`parity`" in verdict.stage(Stage.INTERFACE).reasons[0]


def test_an_extra_parameter_with_a_default_is_accepted(grader, examples):
    answer = changed(
        examples[LFSR], "module lfsr_8bit(", "module lfsr_8bit #(parameter DEBUG = 0)("
    )
    verdict = grader.grade(examples[LFSR], answer)
    assert (verdict.outcome, verdict.mismatches) == (Outcome.PASSED, ())


@pytest.mark.parametrize("answer", [Answer(error="no fenced block"), Answer()])
def test_no_answer(grader, examples, answer):
    verdict = grader.grade(examples[LFSR], answer)
    assert verdict.outcome is Outcome.NO_ANSWER
    assert status(verdict) == {
        "format": "failed",
        "interface": "skipped",
        "syntax": "skipped",
        "tests": "skipped",
    }
    assert verdict.reasons


@pytest.mark.slow
def test_designs_that_never_end_are_timeouts_however_many_share_the_cores(executor, examples):
    """Output that a killed runner had not read is not a failure of the sandbox."""
    endless = changed(
        examples[LFSR],
        "logic q1,q2,q3;",
        "logic q1,q2,q3; reg r; always @(lfsr_seed) while (1) r = ~r;",
    )
    limits = Limits(wall_s=300, cpu_s=1)
    with (
        contextlib.closing(Grader(executor, limits=limits)) as grader,
        ThreadPoolExecutor(8) as pool,
    ):
        verdicts = list(pool.map(lambda _: grader.grade(examples[LFSR], endless), range(8)))
    assert {verdict.outcome for verdict in verdicts} == {Outcome.TIMEOUT}, [
        verdict.reasons for verdict in verdicts
    ]
    assert all(
        "CPU" in verdict.reasons[0] and status(verdict)["syntax"] == "passed"
        for verdict in verdicts
    )


def test_a_service_that_did_not_run_is_named(executor):
    services = "services:\n" + "".join(
        f"  {name}:\n    image: x\n    command: {command}\n"
        for name, command in {
            "lint": "'true'",
            "synthesis": "sh -c 'while true; do :; done'",
            "tests": "'true'",
        }.items()
    )
    problem = a_problem(harness={"docker-compose.yml": services})
    with contextlib.closing(Grader(executor, limits=Limits(wall_s=300, cpu_s=0.5))) as grader:
        verdict = grader.grade(problem, Answer(files={"rtl/m.sv": "module m; endmodule\n"}))
    assert verdict.outcome is Outcome.TIMEOUT
    assert verdict.reasons[0].startswith("synthesis ")
    assert verdict.reasons[-1] == "the service tests was not run"


def test_a_memory_file_that_is_missing_is_named(grader, examples):
    answer = changed(
        examples[LFSR],
        "logic q1,q2,q3;",
        'logic q1,q2,q3; reg [7:0] m [0:3]; initial $readmemh("sbox.hex", m);',
    )
    assert grader.grade(examples[LFSR], answer).passed
    path, text = next(iter(answer.files.items()))
    wrong = Answer(
        files={path: text.replace("lfsr_out[7:1]", "m[0][7:1]").replace("lfsr_seed;", "m[1];")}
    )
    verdict = grader.grade(examples[LFSR], wrong)
    assert verdict.outcome is Outcome.TESTS_FAILED
    assert "$readmemh: Unable to open sbox.hex" in verdict.reasons


def test_text_that_crashes_the_parser_is_rejected_and_the_next_grading_works(grader, examples):
    doubling = "`define A0 x x x x x x x x x x\n" + "".join(
        f"`define A{i} " + f"`A{i - 1} " * 10 + "\n" for i in range(1, 12)
    )
    path = examples[LFSR].targets[0]
    verdict = grader.grade(
        examples[LFSR], Answer(files={path: doubling + "module lfsr_8bit; `A11 endmodule\n"})
    )
    assert verdict.outcome is Outcome.REJECTED
    assert grader.grade(examples[LFSR], Answer(files=examples[LFSR].golden)).passed


def test_grading_can_stop_before_the_tests(executor, examples):
    for until, reached in ((Stage.FORMAT, 1), (Stage.INTERFACE, 2), (Stage.SYNTAX, 3)):
        with contextlib.closing(Grader(executor, until=until)) as grader:
            verdict = grader.grade(examples[LFSR], Answer(files=examples[LFSR].golden))
        assert list(status(verdict).values()) == ["passed"] * reached + ["skipped"] * (
            4 - reached
        )
        assert (verdict.outcome, verdict.reasons) == (
            Outcome.NOT_TESTED,
            (f"graded until {until.value} only",),
        )
        assert not verdict.passed


def test_a_harness_with_missing_requirements_is_an_infrastructure_error(grader, examples):
    harness = {**examples[LFSR].harness, "src/test_runner.py": "import no_such_module\n"}
    problem = examples[LFSR].model_copy(update={"harness": harness, "fingerprint": "another"})
    verdict = grader.grade(problem, Answer(files=problem.golden))
    assert verdict.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert "no_such_module" in verdict.reasons[0]


def test_the_same_answer_gets_the_same_verdict_in_any_thread(grader, examples):
    good, bad = (
        examples[LFSR].golden,
        changed(examples[LFSR], "lfsr_out[6] ^", "lfsr_out[5] ^").files,
    )
    with ThreadPoolExecutor(3) as pool:
        verdicts = list(
            pool.map(lambda f: grader.grade(examples[LFSR], Answer(files=f)), [good, bad] * 4)
        )
    assert [v.passed for v in verdicts] == [True, False] * 4
    assert len({(v.tests_passed, v.reasons) for v in verdicts[1::2]}) == 1


def test_a_cached_verdict_is_equal_but_marked_and_runs_no_job(counting, examples):
    cache = MemoryCache()
    answer = Answer(files=examples[LFSR].golden)
    spaced = Answer(
        files={path: text.replace("\n", " \t\r\n") for path, text in answer.files.items()}
    )
    with contextlib.closing(Grader(counting, cache=cache)) as grader:
        first, second, third = (
            grader.grade(examples[LFSR], given) for given in (answer, answer, spaced)
        )
    assert (first.cached, second.cached, third.cached) == (False, True, True)
    assert second.model_copy(update={"cached": False, "wall_s": first.wall_s}) == first
    assert len(counting.jobs) == 1
    assert len(cache.drain()) == 1


def test_a_verdict_says_which_block_its_own_answer_was_taken_from(counting, examples):
    problem = examples[LFSR]
    ((_, code),) = problem.golden.items()
    block = f"```verilog\n{code}```\n"
    with contextlib.closing(Grader(counting, cache=MemoryCache())) as grader:
        one, two = (
            grader.grade(problem, extract_answer(text, problem.targets))
            for text in (f"Draft:\n{block}Final:\n{block}", block)
        )
    assert one.stage(Stage.FORMAT).reasons == ("rtl/lfsr_8bit.sv: block 2 of 2",)
    assert (two.cached, two.stage(Stage.FORMAT).reasons) == (True, ())


def test_the_cache_key_depends_on_everything_that_decides_a_verdict(examples):
    files = examples[LFSR].golden
    usual = Conditions(seed=0, seeds=3, limits=Limits(), until=Stage.TESTS)
    given = {"problem": examples[LFSR], "files": files, "conditions": usual, "executor": "bubblewrap", "tools": {"iverilog": "11.0"}}  # fmt: skip
    changes = [
        {},
        {"problem": examples[ARBITER]},
        {"files": {"rtl/lfsr_8bit.sv": "x"}},
        {"executor": "docker"},
        {"tools": {"iverilog": "12.0"}},
        *(
            {"conditions": usual.model_copy(update=change)}
            for change in (
                {"seed": 1},
                {"seeds": 1},
                {"limits": Limits(wall_s=1)},
                {"limits": Limits(cpu_floor_s=1)},
                {"limits": Limits(cpu_factor=5)},
                {"until": Stage.SYNTAX},
            )
        ),
    ]
    assert len({cache_key(**{**given, **change}) for change in changes}) == len(changes)


def test_only_what_compilers_ignore_is_normalised():
    assert normalised("a \t\r\nb\n\n\n") == normalised("a\nb")
    assert normalised("a\n\nb") != normalised("a\nb")
    assert normalised("`define A x \\ \n") != normalised("`define A x \\\n")
    for space in ("\N{NO-BREAK SPACE}", "\v", "\x1c", "\x85", "\N{LINE SEPARATOR}", "\f"):
        assert normalised(f"module m;{space}\nendmodule") != normalised(
            "module m;\nendmodule"
        ), repr(space)


def test_an_infrastructure_error_is_never_cached(counting, examples):
    cache = MemoryCache()
    counting.run = Mock(side_effect=OSError("no space left on device"))
    with contextlib.closing(Grader(counting, cache=cache)) as grader:
        verdict = grader.grade(examples[LFSR], Answer(files=examples[LFSR].golden))
    assert verdict.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert "no space left" in verdict.reasons[0]
    assert len(cache) == 0


def test_a_lone_surrogate_in_any_file_gets_a_verdict(grader, examples):
    problem = examples[LFSR].model_copy(
        update={"targets": (*examples[LFSR].targets, "docs/notes.md")}
    )
    beside = Answer(files={**problem.golden, "docs/notes.md": "\ud800"})
    within = Answer(files={path: text + "// \ud800\n" for path, text in problem.golden.items()})
    graded = asyncio.run(GraderPool(grader).grade(problem, [beside, within, beside]))
    assert [(v.outcome, v.cached) for v in graded] == [
        (Outcome.PASSED, False),
        (Outcome.REJECTED, False),
        (Outcome.PASSED, True),
    ]


def test_context_files_of_equal_name_in_two_folders_do_not_fail_an_answer(grader, examples):
    problem = examples[LFSR]
    twice = {f"rtl/{place}/part.sv": f"module {place}; endmodule\n" for place in ("a", "b")}
    verdict = grader.grade(
        problem.model_copy(update={"context": {**problem.context, **twice}}),
        Answer(files=problem.golden),
    )
    assert verdict.outcome is Outcome.PASSED, verdict.reasons


def test_a_process_with_more_than_1024_open_files_grades(examples):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        grader = stack.enter_context(
            contextlib.closing(Grader(stack.enter_context(BubblewrapExecutor())))
        )
        verdict = grader.grade(examples[LFSR], Answer(files=examples[LFSR].golden))
    assert verdict.outcome is Outcome.PASSED, verdict.reasons
