"""Folders with cocotb tests: a pytest file or a Makefile, sets of parameters, generated tests, and libraries."""

import pytest
from folders import INVERTER, MAKEFILE, PLAIN, TEST, WITH_TEST, problem_of, reading

from rtl_grader.grading import evidence
from rtl_grader.grading.requirements import missing_requirements
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome

FACTORY = (
    TEST.replace("@cocotb.test()\n", "").replace("every_value(dut)", "every_value(dut, step)")
    + """
from cocotb.regression import TestFactory
import cocotb_test.simulator

if cocotb.SIM_NAME:
    factory = TestFactory(every_value)
    factory.add_option("step", [1, 2])
    factory.generate_tests()

def test_inv():
    cocotb_test.simulator.run(toplevel="inv", module="test_inv")
"""
)
WITH_MAKEFILE = {**PLAIN, "tb/test_inv.py": TEST, "tb/Makefile": MAKEFILE, "problem.toml": ""}


def graded(grader, problem, old="", new=""):
    """The verdict on the golden answer with `new` in place of `old`."""
    ((path, right),) = problem.golden.items()
    return grader.grade(
        problem, Answer(files={path: right.replace(old, new) if old else right})
    )


def test_a_python_file_is_run_with_each_set_of_parameters(tmp_path, grader):
    toml = "[bench]\nparameters = [{W = 2}, {W = 3}]\n"
    problem = problem_of(tmp_path, {**WITH_TEST, "problem.toml": toml})
    verdict = graded(grader, problem)
    assert (verdict.outcome, verdict.tests_passed) == (Outcome.PASSED, 2), verdict.reasons
    wrong = graded(grader, problem, "~a", "W == 3 ? a : ~a")
    assert wrong.outcome is Outcome.TESTS_FAILED
    assert (wrong.tests_passed, wrong.tests_total) == (1, 2)


def test_the_variables_of_a_makefile_are_read(tmp_path, grader):
    problem = problem_of(tmp_path, WITH_MAKEFILE)
    script = problem.harness["src/run_cocotb.py"]
    assert "RUNS = ({'W': '3'},)" in script
    assert "DEFINES = {'FAST': '1'}" in script
    assert "plusargs=['+SEED=5']" in script
    assert graded(grader, problem).passed
    assert not graded(grader, problem, "~a", "a").passed


def test_another_unit_of_time_is_refused_by_name(tmp_path):
    make = f"{MAKEFILE}COCOTB_HDL_TIMEUNIT = 10ns\n"
    understood = reading(tmp_path, {**WITH_MAKEFILE, "tb/Makefile": make})
    assert "COCOTB_HDL_TIMEUNIT is 10ns: only 1ns can be graded" in str(understood.error)


def test_a_value_that_needs_a_shell_is_asked_for(tmp_path):
    make = MAKEFILE.replace("PARAM_W ?= 3", "PARAM_W := $(shell expr 2 + 1)")
    understood = reading(tmp_path, {**WITH_MAKEFILE, "tb/Makefile": make})
    assert (
        str(understood.error)
        == "bench.parameters.0.W: <needs-a-shell> is neither a number nor a word: state one"
    )
    toml = '[bench]\nmakefile = "tb"\nparameters = [{W = 3}]\n'
    assert problem_of(tmp_path, {**WITH_MAKEFILE, "tb/Makefile": make, "problem.toml": toml})


def test_tests_of_a_factory_count_and_a_library_that_only_starts_them_is_not_needed(
    tmp_path, grader
):
    problem = problem_of(tmp_path, {**WITH_TEST, "tb/test_inv.py": FACTORY})
    verdict = graded(grader, problem)
    assert (verdict.outcome, verdict.tests_passed) == (Outcome.PASSED, 2), verdict.reasons


def test_tests_of_an_installed_library_count_as_the_harness_own(tmp_path, grader):
    """`find_libpython` stands for a library with tests: it is installed beside cocotb."""
    library = "import find_libpython\n\nevery_value.module = 'find_libpython'\n"
    problem = problem_of(tmp_path, {**WITH_TEST, "tb/test_inv.py": TEST + library})
    verdict = graded(grader, problem)
    assert verdict.passed, verdict.reasons


@pytest.mark.parametrize(
    "file", ["/code/rtl/test_inv.py", "/code/rundir/x.py", "/tmp/x.py", ""]
)
def test_other_tests_do_not_count(file, monkeypatch):
    from types import SimpleNamespace

    test = {"status": "passed", "file": file}
    session = SimpleNamespace(tests=[test], complete=True, forged=False)
    result = SimpleNamespace(name="s", exit_code=0, sessions=[session], is_attested=True)
    assert evidence.cheating([result], {}) == ("s: a test did not come from the harness",)


def test_a_missing_library_is_named(tmp_path):
    problem = problem_of(
        tmp_path, {**WITH_TEST, "tb/test_inv.py": f"import cocotbext.axi\n{TEST}"}
    )
    (need,) = missing_requirements(
        problem.harness, {"iverilog": "13.0"}, lambda name: not name.startswith("cocotbext")
    )
    assert need.startswith("the Python module cocotbext.axi (pip install")


def test_modules_beside_the_tests_and_data_belong_to_the_harness(tmp_path, grader):
    test = TEST.replace("import cocotb\n", "import cocotb\nfrom helpers.text import FIRST\n", 1)
    test += "    assert open('expected.txt').read().strip() == FIRST\n"
    design = INVERTER.replace(
        "  assign",
        '  reg [3:0] x [0:0];\n  initial $readmemh("tables/start.hex", x);\n  assign',
    )
    files = {
        **WITH_TEST,
        "rtl/inv.v": design.replace("~a;", "~a ^ x[0] ^ 4'd1;"),
        "rtl/tables/start.hex": "1\n",
        "tb/test_inv.py": test,
        "tb/helpers/__init__.py": "",
        "tb/helpers/text.py": "FIRST = 'first'\n",
        "tb/expected.txt": "first\n",
        "problem.toml": 'data = ["tb/expected.txt", "rtl/tables/start.hex"]\n[bench]\nparameters = [{W = 4}]\n',
    }
    problem = problem_of(tmp_path, files)
    assert list(problem.context) == ["rtl/tables/start.hex"]
    verdict = graded(grader, problem)
    assert verdict.passed, verdict.reasons
