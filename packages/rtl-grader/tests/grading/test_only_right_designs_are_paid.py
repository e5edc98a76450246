"""Facts that decide a verdict: effective parameters, changing outputs, the cause of a failure, the cost of an answer, seeds."""

import re
from contextlib import closing

import pytest

from rtl_grader.grading.evidence import CONSTANT, refused_parameters
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.inside.lib import compiled
from rtl_grader.grading.jobs import witness_environment
from rtl_grader.grading.limits import Limits
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Interface, InterfaceSource, Parameter
from rtl_grader.types.verdict import MismatchKind, Outcome
from tests.nouns import COMPOSE, read_problem

GRAY = COMPOSE.format("pytest -s -o cache_dir=/code/rundir/.cache /src/test_runner.py -v")
RUNNER = """import os
import pytest
from cocotb_tools.runner import get_runner

@pytest.mark.parametrize("width", [4, 8])
def test_it(width):
    runner = get_runner("icarus")
    runner.build(sources=["/code/rtl/gray.sv"], hdl_toplevel="gray", always=True, parameters={"WIDTH": width}, timescale=("1ns", "1ns"))
    runner.test(hdl_toplevel="gray", test_module="test_gray")
"""
GRAY_TEST = """import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def converts(dut):
    width = int(dut.WIDTH.value)
    for value in range(1 << width):
        dut.binary.value = value
        await Timer(1, "ns")
        assert int(dut.code.value) == value ^ (value >> 1)
"""
IDLE_TEST = """import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def stays(dut):
    for value in range(40):
        dut.binary.value = (value & 1) << 7
        await Timer(1, "ns")
        assert int(dut.code.value) in (0, 1)
"""
RIGHT = """module gray #(parameter WIDTH = 4)(input [WIDTH-1:0] binary, output [WIDTH-1:0] code);
  assign code = binary ^ (binary >> 1);
endmodule
"""


def gray_problem(
    test=GRAY_TEST,
    runner=RUNNER,
    golden="",
    prompt="Convert binary to Gray code of WIDTH bits.",
    context=None,
):
    harness = {
        "docker-compose.yml": GRAY,
        "src/.env": "SIM = icarus\nTOPLEVEL = gray\nVERILOG_SOURCES = /code/rtl/gray.sv\n",
        "src/test_runner.py": runner,
        "src/test_gray.py": test,
    }
    known = {"rtl/gray.sv": golden} if golden else None
    return read_problem(
        prompt=prompt,
        context=context or {},
        targets=("rtl/gray.sv",),
        harness=harness,
        golden=known,
    )


def grade(grader, text, **changes):
    return grader.grade(gray_problem(**changes), Answer(files={"rtl/gray.sv": text}))


# Parameters that the runner sets


@pytest.mark.parametrize(
    "text",
    [
        RIGHT,
        "module gray #(parameter [0:0] WIDTH = 0)(input [7:0] binary, output [7:0] code); assign code = binary; endmodule\n",
        "module gray(input binary, output code); localparam WIDTH = 1; assign code = binary; endmodule\n",
        "module gray(input binary, output code); reg [3:0] WIDTH = 1; assign code = binary; endmodule\n",
    ],
)
def test_only_a_design_that_takes_the_parameter_is_paid(grader, text):
    verdict = grade(grader, text)
    assert verdict.outcome is (
        Outcome.PASSED if text is RIGHT else Outcome.INTERFACE_MISMATCH
    ), verdict.reasons
    wrong = {m.name for m in verdict.mismatches if m.kind is MismatchKind.WRONG_PARAMETER}
    assert wrong == (set() if text is RIGHT else {"WIDTH"})


@pytest.mark.parametrize(
    ("declared", "wanted", "arrives"),
    [
        ("parameter WIDTH = 1", "8", True),
        ("parameter WIDTH = 1", "-3", True),
        ("parameter [3:0] WIDTH = 1", "15", True),
        ("parameter [3:0] WIDTH = 1", "16", False),
        ("parameter signed [3:0] WIDTH = 1", "-8", True),
        ("parameter integer WIDTH = 1", "70000", True),
        ('parameter WIDTH = "abc"', '"xyz"', True),
        ("parameter real WIDTH = 1.5", "2.5", True),
        ("parameter OTHER = 1", "8", True),
        ("localparam WIDTH = 1", "8", False),
        ("reg [7:0] WIDTH = 1", "8", False),
        ("if (1) begin : WIDTH localparam value = 1; end reg x", "8", False),
    ],
)
def test_the_compiled_program_shows_whether_a_parameter_has_its_value(
    shell, declared, wanted, arrives
):
    text = f"module top; {declared}; endmodule\n"
    done = shell(
        f"iverilog -g2012 -s top '-Ptop.WIDTH={wanted}' -o x /code/rtl/t.sv && cat x",
        files={"rtl/t.sv": text},
    )
    if done.exit_code != 0:  # Icarus 13 rejects a name that is not a parameter
        (refused,) = refused_parameters(
            {"argv": [f"-Ptop.WIDTH={wanted}"], "output": done.output}
        )
        assert (refused.name, refused.expected) == ("WIDTH", wanted)
        assert not re.match(r"parameter\b.*\bWIDTH", declared)
        return
    assert (
        bool(compiled.changed_parameters(done.output, "top", {"WIDTH": wanted})) is not arrives
    )


@pytest.mark.parametrize(
    ("said", "names"),
    [
        (
            ":0: error: parameter `WIDTH` not found in `top`.\n1 error(s) during elaboration.",
            ["WIDTH"],
        ),
        (":0: error: Cannot override localparam `WIDTH` in `top`.\n", ["WIDTH"]),
        ("t.sv:1: warning: parameter `WIDTH` not found in `top`.\n", []),
        ("t.sv:2: error: Unable to bind wire/reg/memory `x' in `top'\n", []),
    ],
)
def test_errors_of_icarus_13_about_parameters_are_parsed(said, names):
    found = refused_parameters({"argv": ["iverilog", "-Ptop.WIDTH=8"], "output": said})
    assert [(one.name, one.expected, one.got) for one in found] == [
        (name, "8", "none") for name in names
    ]


UNSET = RUNNER.replace(', parameters={"WIDTH": width}', "")
GIVEN = RIGHT.replace("binary ^ (binary >> 1)", "binary")


@pytest.mark.parametrize(
    ("width", "prompt", "dut", "paid"),
    [
        (4, "Mend it.", "dut", True),
        (1, "Mend it.", "dut", False),
        (1, "The output is WIDTH-1 down to 0.", "dut", False),
        (6, "Mend it.", "dut", False),
        (6, "Mend it and let WIDTH be 6.", "dut", True),
        (4, "Mend it.", "device", True),
        (1, "Mend it.", "device", False),
    ],
)
def test_a_parameter_that_the_harness_only_reads_keeps_its_default(
    grader, width, prompt, dut, paid
):
    test = GRAY_TEST.replace("dut", dut)
    problem = gray_problem(test, runner=UNSET, prompt=prompt, context={"rtl/gray.sv": GIVEN})
    verdict = grader.grade(
        problem, Answer(files={"rtl/gray.sv": RIGHT.replace("WIDTH = 4", f"WIDTH = {width}")})
    )
    assert verdict.passed is paid, verdict.reasons


DERIVED = RIGHT.replace("WIDTH = 4", "BYTES = 1, parameter WIDTH = 8 * BYTES")


@pytest.mark.parametrize(
    ("text", "paid"),
    [
        (DERIVED, True),
        (DERIVED.replace("8 * BYTES", "2"), False),
        (DERIVED.replace("8 * BYTES", "BYTES"), False),
    ],
)
@pytest.mark.parametrize("given", ["context", "prompt"])
def test_a_computed_default_follows_the_parameters_that_the_harness_sets(
    grader, text, paid, given
):
    sets = RUNNER.replace("[4, 8]", "[2, 1]").replace('"WIDTH": width', '"BYTES": width')
    sampled = GRAY_TEST.replace(
        "range(1 << width)", "range(0, 1 << width, 1 + (1 << width >> 6))"
    )
    right = DERIVED.replace("binary ^", "binary &")
    told = (
        {"context": {"rtl/gray.sv": right}}
        if given == "context"
        else {"prompt": f"```verilog\n{right}```\n"}
    )
    verdict = grade(grader, text, runner=sets, test=sampled, **told)
    assert verdict.passed is paid, verdict.reasons


# Outputs that change


def test_a_constant_that_passes_its_harness_is_not_paid(grader):
    text = "module gray #(parameter WIDTH = 8)(input [7:0] binary, output reg [7:0] code); initial code = 0; endmodule"
    assert grade(grader, text, test=IDLE_TEST).reasons == (CONSTANT,)


def test_a_design_that_is_idle_only_under_its_harness_is_paid(grader):
    text = """module gray #(parameter WIDTH = 8)(input [7:0] binary, output [7:0] code);
  assign code = binary & (binary >> 1);
endmodule
"""
    verdict = grade(grader, text, test=IDLE_TEST)
    assert verdict.passed, verdict.reasons


def test_an_output_that_changes_once_has_changed(grader):
    once = "for value in range(40):\n        dut.binary.value = 255 if value > 20 else 0"
    test = IDLE_TEST.replace(
        "for value in range(40):\n        dut.binary.value = (value & 1) << 7", once
    )
    test = test.replace("in (0, 1)", "in (0, 255)")
    text = "module gray #(parameter WIDTH=8)(input [7:0] binary, output [7:0] code); assign code = binary; endmodule\n"
    verdict = grade(grader, text, test=test)
    assert verdict.passed, verdict.reasons


# The cause of a failure


def test_a_harness_that_never_runs_is_an_infrastructure_error(grader):
    verdict = grade(
        grader,
        RIGHT,
        runner=RUNNER.replace("import os", "import os\nraise OSError('no such licence')"),
    )
    assert verdict.outcome is Outcome.INFRASTRUCTURE_ERROR


def test_a_harness_that_fails_for_one_text_only_gives_a_verdict(grader):
    picky = RUNNER.replace(
        "    runner = ",
        '    assert "casex" not in open("/code/rtl/gray.sv").read()\n    runner = ',
    )
    assert grade(grader, RIGHT, runner=picky).passed
    verdict = grade(grader, RIGHT + "// casex\n", runner=picky)
    assert verdict.outcome is Outcome.TESTS_FAILED, verdict.reasons


# The cost of an answer


@pytest.mark.corpus
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            RIGHT.replace("endmodule", "integer i; initial while (1) i = i + 1;\nendmodule"),
            id="a loop in simulation",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            RIGHT.replace(
                "endmodule",
                "function automatic integer f(input integer n); begin f = 0; while (n > 0) f = f + 1; end endfunction\n"
                "localparam L = f(3);\nendmodule",
            ),
            id="a loop in elaboration",
        ),
    ],
)
def test_an_answer_that_never_ends_uses_its_limit_in_one_service_only(counting, text):
    second = GRAY.partition("services:\n")[2].replace("direct", "again")
    problem = replace_harness(gray_problem(), {"docker-compose.yml": GRAY + second})
    with closing(Grader(counting, limits=Limits(wall_s=3, cpu_s=20))) as grader:
        verdict = grader.grade(problem, Answer(files={"rtl/gray.sv": text}))
    assert verdict.outcome is Outcome.TIMEOUT, verdict.reasons
    assert len([step for job in counting.jobs for step in job.steps]) == 1


@pytest.mark.slow
def test_the_time_of_a_killed_simulator_is_counted(shell):
    busy = "module top; integer i; initial while (1) i = i + 1; endmodule\n"
    command = "iverilog -o /tmp/x /code/rtl/t.v && (vvp /tmp/x & vvp /tmp/x & wait)"
    done = shell(command, files={"rtl/t.v": busy}, limits=Limits(wall_s=4, cpu_s=60))
    assert done.overrun == "wall"
    assert done.cpu_s > 0.3


def replace_harness(problem, files):
    return problem.model_copy(update={"harness": {**problem.harness, **files}})


# Seeds

LUCK = """import os
import random
import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def lucky(dut):
    dut.binary.value = 3
    await Timer(1, "ns")
    assert int(dut.code.value) == 2
    assert int(os.environ["COCOTB_RANDOM_SEED"]) not in (SEEDS)
"""


@pytest.mark.parametrize(
    ("unlucky", "golden", "passes"),
    [("0, 9", "", True), ("0, 1, 9", "", False), ("2, 9", "", True), ("0, 9", RIGHT, False)],
)
def test_a_majority_of_seeds_decides_without_a_golden_answer(grader, unlucky, golden, passes):
    verdict = grade(grader, RIGHT, test=LUCK.replace("SEEDS", unlucky), golden=golden)
    assert verdict.passed is passes, verdict.reasons
    if unlucky == "0, 9" and not golden:
        assert verdict.reasons == ("the tests pass under 2 of 3 seeds",)


def test_a_wrong_design_is_simulated_twice_at_most(counting):
    wrong = RIGHT.replace(">> 1", ">> 2")
    with closing(Grader(counting)) as grader:
        assert not grade(grader, wrong, test=LUCK.replace("SEEDS", "9,")).passed
    assert len(counting.jobs) == 2


def test_a_golden_answer_found_later_invalidates_cached_facts_about_a_problem(grader):
    """A teacher's sample may become the golden answer after the problem was graded."""
    problem = gray_problem(runner=UNSET)
    assert grader.demanded_values(problem) == {}
    width = Parameter(name="WIDTH", default=4)
    interface = Interface(
        module="gray", parameters=(width,), source=InterfaceSource.CONTEXT, exact=False
    )
    found = problem.model_copy(
        update={"golden": {"rtl/gray.sv": RIGHT}, "interface": interface}
    )
    assert grader.demanded_values(found) == {"WIDTH": [4]}
    answer = Answer(files={"rtl/gray.sv": RIGHT})
    assert grader.key(problem, answer) != grader.key(found, answer)


def test_a_service_without_simulation_counts_as_one_test(grader):
    lint = """  lint:
    image: __OSS_SIM_IMAGE__
    env_file: ./src/.env
    command: iverilog -t null /code/rtl/gray.sv
"""
    problem = replace_harness(gray_problem(), {"docker-compose.yml": GRAY + lint})
    verdicts = [
        grader.grade(problem, Answer(files={"rtl/gray.sv": text}))
        for text in (RIGHT, RIGHT.replace(">> 1", ">> 2"))
    ]
    assert [(verdict.tests_passed, verdict.tests_total) for verdict in verdicts] == [
        (3, 3),
        (1, 3),
    ]


def test_a_task_in_a_given_header_is_allowed():
    context = {"rtl/gray.sv": "", "rtl/dump.vh": 'initial f = $fopen("x");\n'}
    assert witness_environment(gray_problem(context=context), (), {})["RTL_TASKS"] == "fopen"
