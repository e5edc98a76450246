"""Warm starts are faster than cold ones and otherwise equal."""

import re
from contextlib import closing
from dataclasses import replace

import pytest

from rtl_core.starter import starter_problems
from rtl_grader.grading.compose import read_services
from rtl_grader.grading.evidence import cheating
from rtl_grader.grading.executors.base import Job, Step
from rtl_grader.grading.executors.bubblewrap import BubblewrapExecutor
from rtl_grader.grading.grader import Grader
from rtl_grader.types.answer import Answer

LFSR = "cvdp_copilot_lfsr_0001"


@pytest.fixture(scope="module")
def cold():
    with BubblewrapExecutor(warm=False) as started:
        yield started


def without_times(verdict):
    stages = [(result.stage, result.status, result.reasons) for result in verdict.stages]
    return verdict.outcome, stages, verdict.tests_passed, verdict.tests_total, verdict.reasons


@pytest.mark.slow
def test_verdicts_are_the_same_for_right_wrong_and_broken_answers(executor, cold, examples):
    lfsr, arbiter = examples[LFSR], examples["cvdp_agentic_fixed_arbiter_0001"]
    ((path, code),) = lfsr.golden.items()
    given = [
        (lfsr, {path: text})
        for text in (
            code,
            code.replace("lfsr_out[6] ^", "lfsr_out[5] ^"),
            code.replace(";", "", 1),
        )
    ]
    given.append((arbiter, arbiter.golden))
    for problem in starter_problems("train", 3, 3):
        wrong = {
            path: text.replace("~", "").replace("+", "-")
            for path, text in problem.golden.items()
        }
        given += [(problem, problem.golden), (problem, wrong)]
    for problem, files in given:
        verdicts = []
        for one in (executor, cold):
            with closing(Grader(one)) as grader:
                verdicts.append(without_times(grader.grade(problem, Answer(files=files))))
        assert verdicts[0] == verdicts[1]


def test_pytest_is_configured_once_unless_a_file_configures_it(executor, cold, examples):
    problem = examples[LFSR]
    services, mounts = read_services(problem.harness)
    made = "\nimport sys\nprint('configured in', [f.config.invocation_params.dir for f in sys.meta_path if hasattr(f, 'fnpats')])\n"
    own = {**problem.harness, "src/test_lfsr.py": problem.harness["src/test_lfsr.py"] + made}
    refused = {**own, "rundir/pytest.ini": "[pytest]\nrequired_plugins = none-has-it\n"}
    for one, where in ((executor, "/"), (cold, "/code/rundir/sim_build")):
        said, refusing = (
            one.run(Job(dict(problem.golden), files, services, mounts)).steps[0].output
            for files in (own, refused)
        )
        assert f"configured in [PosixPath('{where}')" in said
        assert "Missing required plugins: none-has-it" in refusing


def test_files_that_a_harness_left_open_are_flushed_when_its_simulator_ends(
    executor, cold, examples
):
    problem = examples[LFSR]
    services, mounts = read_services(problem.harness)
    left = {"src/test_lfsr.py": "\nLEFT = open('left.txt', 'w')\nLEFT.write('the end')\n"}
    left["src/test_runner.py"] = (
        "\ndef test_zz():\n    import glob\n    print([open(f).read() for f in glob.glob('**/left.txt', recursive=True)])\n"
    )
    harness = {path: text + left.get(path, "") for path, text in problem.harness.items()}
    for one in (executor, cold):
        assert (
            "['the end']"
            in one.run(Job(dict(problem.golden), harness, services, mounts)).steps[0].output
        )


def test_a_cold_start_attests_results_too(cold, examples):
    """A `final` block overwrites the results of a failing design; this fools the runner but not the attestation."""
    problem = examples[LFSR]
    text = (
        "module lfsr_8bit(input clock,reset,input [7:0] lfsr_seed, output reg [7:0] lfsr_out); integer f;\n"
        "always @(posedge clock) lfsr_out <= lfsr_out + 1;\n"
        'final begin f = $fopen("/code/rundir/sim_build/test_runner.result.xml", "w");\n'
        '$fwrite(f, "<testsuites><testsuite><testcase name=\\"a\\"/></testsuite></testsuites>"); $fclose(f); end\nendmodule\n'
    )
    services, mounts = read_services(problem.harness)
    services = tuple(
        replace(step, env={**step.env, "RTL_TASKS": "fopen,fwrite,fclose"}) for step in services
    )
    results = cold.run(
        Job({problem.targets[0]: text}, dict(problem.harness), services, mounts)
    ).steps
    assert [result.exit_code for result in results] == [0]
    assert "not the one that cocotb wrote" in cheating(results, problem.harness)[0]


@pytest.mark.parametrize(
    "argv",
    [
        ("python3", "/src/show.py", "one", "two"),
        ("pytest", "-q", "-s", "-p", "no:cacheprovider", "/src/test_show.py"),
        ("python3", "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "/src/test_show.py"),
        ("sh", "-c", "pytest -q -s -p no:cacheprovider /src/test_show.py"),
        ("python", "/src/fails.py"),
        ("python3", "/src/leaves.py"),
        ("python3", "/src/missing.py"),
        ("pytest", "-q", "-p", "no:cacheprovider", "/src/test_fails.py"),
    ],
)
def test_a_program_has_the_same_environment(executor, cold, argv):
    show = (
        "import os, random, sys\n"
        "hidden = {'PYTEST_CURRENT_TEST', 'PWD', 'SHLVL', '_', 'OLDPWD'}\n"
        "def tell():\n"
        "    import mine\n"
        "    print(sys.argv[1:], sys.path, os.getcwd(), sorted(i for i in os.environ.items() if i[0] not in hidden))\n"
        "    print(random.random(), hash('x'), mine.NAME, sys.flags.dont_write_bytecode, os.path.basename(sys.argv[0]))\n"
        "    print(os.getuid() == 0, sorted(os.listdir('/code')), os.sched_getaffinity(0) == set(range(os.cpu_count())))\n"
        "    print([type(finder).__name__ for finder in sys.meta_path if not isinstance(finder, type)])\n"
    )
    harness = {
        "src/mine.py": "NAME = __file__\n",
        "src/common.py": show,
        "src/show.py": "import common\nif __name__ == '__main__':\n    common.tell()\n",
        "src/test_show.py": "import common\ndef test_it():\n    common.tell()\n",
        "src/fails.py": "def f():\n    raise ValueError('no')\nf()\n",
        "src/leaves.py": "import atexit, sys\natexit.register(print, 'bye')\nsys.exit('a reason')\n",
        "src/test_fails.py": "def test_it():\n    assert 1 == 2\n",
    }
    job = Job({}, harness, (Step("direct", argv, {"PYTHONPATH": "/src", "X": "y"}),), seed=5)
    warm_step, cold_step = executor.run(job).steps[0], cold.run(job).steps[0]
    assert warm_step.exit_code == cold_step.exit_code

    def plain(text):
        """Without times, and without the stack frames of a warm start."""
        text = re.sub(r" in \d+\.\d+s", "", text)
        lines = [line for line in text.splitlines() if "/guard/warm.py" not in line]
        return [
            line
            for line in lines
            if not line.startswith(("    runpy.", '  File "<frozen runpy>', "    ^"))
        ]

    if argv[1] not in ("/src/fails.py", "/src/missing.py"):
        assert plain(warm_step.output) == plain(cold_step.output)
    else:
        assert (
            plain(warm_step.output)[-1].partition(":")[0]
            in plain(cold_step.output)[-1] + "FileNotFoundError"
        )


@pytest.mark.parametrize(
    "names",
    [("agent", "cocotb_tools", "steps", "calendar"), ("agent", "cocotb_tools", "steps")],
)
def test_a_module_of_the_harness_that_shadows_another_is_imported(executor, cold, names):
    files = {f"src/{name}.py": f"NAME = '{name}'\n" for name in names}
    files["src/cocotb_tools/__init__.py"] = files.pop("src/cocotb_tools.py")
    files["src/show.py"] = "".join(f"import {name}\nprint({name}.NAME)\n" for name in names)
    job = Job({}, files, (Step("direct", ("python3", "/src/show.py"), {"PYTHONPATH": "/src"}),))
    for started in (executor, cold):
        done = started.run(job).steps[0]
        assert (done.exit_code, done.output.split()) == (0, list(names))


@pytest.mark.parametrize(
    ("path", "is_warm"),
    [("trace.json", True), ("queue.sv", True), ("trace.py", False), ("trace/a.txt", False)],
)
def test_only_a_file_that_could_be_imported_makes_a_start_cold(executor, path, is_warm):
    show = "import sys\nprint('cocotb_tools.runner' in sys.modules)\n"
    files = {"src/show.py": show, f"src/{path}": ""}
    job = Job({}, files, (Step("direct", ("python3", "/src/show.py")),))
    assert executor.run(job).steps[0].output.split() == [str(is_warm)]
