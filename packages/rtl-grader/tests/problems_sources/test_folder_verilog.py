"""Folders with a Verilog test bench: what is given and shown, and the forms of a verdict."""

import re

import pytest
from folders import BENCH, WITH_BENCH, problem_of, reading
from scaler_folder import FILES as SCALER

from rtl_grader.problems.harness_use import macro_file
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome
from rtl_grader.validation.level import quick_level
from rtl_grader.validation.validate import validate_problem

REPORT = 'if (bad == 0) $display("TEST PASSED"); else $display("%0d errors", bad);'
FORMS = {
    "the only line with a word of success": ("", REPORT),
    "a line, among others with the word": ('pass = "TEST PASSED$"', f'$display("checks passed"); {REPORT}'),
    "a line that may not be printed": ('pass = "done"\nfail = "[1-9] errors"', f'$display("done"); {REPORT}'),
    "$error": ('pass = "no error"', 'if (bad != 0) $error("%0d wrong", bad);'),
    "$fatal, guessed": ("", 'if (bad != 0) $fatal(1, "%0d wrong", bad);'),
    "an assertion": ('pass = "no error"', 'assert (bad == 0);'),
    "an assertion with both branches": ("", 'if (bad < 99) assert (bad == 0) $display("fine"); else $display("not"); else ;'),
    "an exit code": ("", "if (bad != 0) $finish_and_return(3);"),
    "an error in a macro": ("", "`define CHECK(x) if (!(x)) $error(\"no\")\n`CHECK(bad == 0);"),
}  # fmt: skip


@pytest.fixture
def scaler(tmp_path):
    return problem_of(tmp_path, SCALER)


@pytest.mark.parametrize("form", FORMS)
def test_a_bench_may_tell_its_verdict_by(form, tmp_path, grader):
    keys, report = FORMS[form]
    files = {
        **WITH_BENCH,
        "tb/tb.v": BENCH.replace(REPORT, report),
        "problem.toml": f"[bench]\n{keys}\n",
    }
    problem = problem_of(tmp_path, files)
    (path, right), *_ = problem.golden.items()
    assert grader.grade(problem, Answer(files={path: right})).passed
    wrong = right.replace("~a", "~a ^ 1")
    cheats = (
        'initial $display("TEST PASSED done");',
        "initial #3 $finish;",
        "final $fatal;",
        'initial #3 $error("TEST PASSED");',
    )
    for cheat in ("", *cheats):
        text = wrong.replace("endmodule", f"{cheat}\nendmodule")
        verdict = grader.grade(problem, Answer(files={path: text}))
        assert verdict.outcome is Outcome.TESTS_FAILED, (cheat, verdict.reasons)


def test_the_message_of_a_bench_is_the_first_reason(tmp_path, grader):
    bench = BENCH.replace("bad = bad + 1", '$error("step %0d", i)')
    problem = problem_of(tmp_path, {**WITH_BENCH, "tb/tb.v": bench})
    wrong = {path: text.replace("~a", "a") for path, text in problem.golden.items()}
    first, *others = grader.grade(problem, Answer(files=wrong)).reasons
    assert re.search(r"bench\.sv:\d+: step 0$", first)
    assert not [line for line in others if line.startswith("Time:")]


def test_errors_of_the_answer_do_not_count(tmp_path, grader):
    problem = problem_of(
        tmp_path, {**WITH_BENCH, "problem.toml": '[bench]\npass = "no error"\n'}
    )
    (path, right), *_ = problem.golden.items()
    text = right.replace("endmodule", 'initial #2 $error("of the design");\nendmodule')
    assert grader.grade(problem, Answer(files={path: text})).passed


def test_a_bench_that_has_no_end_is_named(tmp_path):
    files = {
        **WITH_BENCH,
        "tb/tb.v": BENCH.replace("$finish;", ""),
        "problem.toml": '[bench]\npass = "no error"\n',
    }
    assert "does not end itself" in str(reading(tmp_path, files).error)


@pytest.mark.slow
def test_a_bench_that_never_ends_is_named_when_the_golden_answer_runs(tmp_path, grader):
    files = {**WITH_BENCH, "tb/tb.v": BENCH.replace("$finish;", "forever #1;")}
    problem = problem_of(tmp_path, files)
    limits = grader.limits.model_copy(update={"cpu_s": 2, "wall_s": 20})
    record = validate_problem(problem, grader.but(limits=limits), level=quick_level(0, 1))
    assert record.status == "broken"
    assert "used more than 2 s of CPU time" in record.evidence["reason"]


def test_given_files_includes_macros_data_and_several_answer_files_are_used(scaler, grader):
    assert scaler.targets == ("rtl/scaler.sv", "rtl/doubler.v")
    assert list(scaler.context) == [
        "rtl/defs.vh",
        "rtl/consts.sv",
        "rtl/clamp.v",
        "rtl/rom.hex",
    ]
    assert macro_file(scaler.harness) == {"macros.sv": "`define FAST 1\n`define WIDTH 8\n"}
    assert [port.width for port in scaler.interface.ports] == [8, 8]
    assert grader.grade(scaler, Answer(files=scaler.golden)).passed


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        ("rtl/doubler.v", "a + a", "a", "the test bench reported an error: ERROR: "),
        ("rtl/doubler.v", "a + a", "a +", "syntax error"),
        ("rtl/doubler.v", "endmodule", "endmodule\nmodule clamp(input a); endmodule", "already been declared"),
        ("rtl/scaler.sv", '"defs.vh"', '"tb.sv"', "an include of what was not given"),
        ("rtl/scaler.sv", '"rom.hex"', '"vectors.hex"', "$readmemh of a file that was not given"),
        ("rtl/doubler.v", "a + a", "a\n`undef OFFSET\n`define CHECK(x, y)\n", "reported an error"),
    ],
)  # fmt: skip
def test_an_answer_of_several_files_fails(path, old, new, reason, scaler, grader):
    files = {**scaler.golden, path: scaler.golden[path].replace(old, new)}
    verdict = grader.grade(scaler, Answer(files=files))
    assert not verdict.passed
    assert any(reason in line for line in verdict.reasons), verdict.reasons


def test_an_answer_without_one_of_its_files_fails(scaler, grader):
    files = {"rtl/scaler.sv": scaler.golden["rtl/scaler.sv"]}
    verdict = grader.grade(scaler, Answer(files=files))
    assert not verdict.passed


def test_names_that_the_bench_reads_inside_the_design_are_in_the_prompt(tmp_path):
    bench = BENCH.replace("$finish;", '$display("%0d", dut.state); $finish;')
    problem = problem_of(tmp_path, {**WITH_BENCH, "tb/tb.v": bench})
    assert problem.prompt.endswith(
        "The test bench also reads these names inside the module: state.\n"
    )
