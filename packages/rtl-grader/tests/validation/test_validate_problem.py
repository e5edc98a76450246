"""Fit problems are found fit, and each kind of unfit problem is found and named."""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from rtl_core.errors import InfrastructureError
from rtl_core.starter import problem_of, starter_problems, starter_specs
from rtl_grader.equivalence.differential import compare
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import Limits
from rtl_grader.validation import validate
from rtl_grader.validation.level import Level, full_level, golden_digest, quick_level, tools_key
from rtl_grader.validation.stubs import STUBS, WITHOUT_DESIGN
from rtl_grader.validation.validate import validate_problem
from tests.validation.conftest import BENCH, HONEST, inverter

SHORT = Level("full", 4, (1, 2, 1), STUBS)
LFSR = "cvdp_copilot_lfsr_0001"
ARBITER = "cvdp_agentic_fixed_arbiter_0001"


def test_an_honest_harness_is_fit_with_its_mutation_score(grader, planted):
    found = validate_problem(planted(), grader, level=full_level(10, 2))
    assert found.status == "fit", found.evidence
    mutants = found.evidence["mutants"]
    assert mutants["score"] == 1.0
    assert mutants["killed"] >= 2
    assert found.evidence["stubs"] == dict.fromkeys(
        ("zeros", "ones", "unknown", "inputs", "blip", "one step"), "tests_failed"
    )
    assert found.evidence["empty"] == "no_answer"
    assert [v["seed"] for v in found.evidence["golden"]["verdicts"]] == [1, 2, 1]
    assert (
        0
        < found.evidence["golden"]["cpu_s"]
        <= grader.known_good.golden[planted().fingerprint] + 0.001
    )
    assert found.tools["iverilog"]
    json.dumps(found.evidence, allow_nan=False)


LENIENT = BENCH.replace("!==", "!=")
"""`!=` is x, and so false, if an output is x."""
FIRST_STEP = BENCH.replace("i < 16", "i < 1").replace("a = i;", "a = 0; #1 a = 5;")
BY_SEED = 'import os, sys\nsys.exit(int(os.environ["COCOTB_RANDOM_SEED"]) % 2)\n'
BY_CHANCE = "import os, sys\nsys.exit(os.urandom(1)[0] % 2)\n"
HOLDS = 'import sys\nsys.exit(0 if "{}" in open("/code/rtl/inv.sv").read() else 1)\n'
NO_IMPORT = "import sys\nsys.exit(\"E   ImportError: cannot import name 'sim_time_utils' from 'cocotb'\")\n"
NO_TEST = "import cocotb\n\n\n@cocotb.test()\nasync def t(dut): ...\n\n\nraise TypeError('this harness is for another cocotb')\n"
GIVEN = {"rtl/inv.sv": inverter("4'd3")}
OFTEN, MUTANTS = Level("full", 0, (1,) * 24, ()), Level("full", 4, (1,), ())
ONE_STEP = Level("full", 0, (1,), ("one step",))
UNFIT = {
    "it flips by seed": ({"run": BY_SEED}, SHORT, "flaky", "seed 2 passes, seed 1 fails"),
    "it flips by itself": ({"run": BY_CHANCE}, OFTEN, "flaky", "gradings"),
    "it always passes": ({"run": "pass\n"}, SHORT, "weak", "a stub is paid"),
    "it always passes, at a quick look": ({"run": "pass\n"}, quick_level(2, 1), "weak", "a stub is paid"),
    "it pays unknown outputs": ({"files": {"src/bench.sv": LENIENT}}, quick_level(0, 1), "weak", "paid: all outputs x"),
    "it sees the first step alone": ({"files": {"src/bench.sv": FIRST_STEP}}, ONE_STEP, "weak", "after one right step"),
    "it pays what holds a letter": ({"run": HOLDS.format("a")}, MUTANTS, "weak", "4 of 4 mutants are paid"),
    "it pays what is given": ({"run": HOLDS.format("end"), "context": GIVEN}, SHORT, "weak", "unmodified context"),
    "its simulator is missing": ({"command": "no-such-simulator x.sv"}, SHORT, "unsupported", "no-such-simulator"),
    "its tests cannot be imported": ({"run": NO_IMPORT, "golden": None}, SHORT, "unsupported", "sim_time_utils"),
    "its module is missing": ({"run": "import cocotbext.nowhere\n"}, SHORT, "unsupported", "the Python module cocotbext.nowhere"),
    "it fails before any test": ({"run": NO_TEST}, SHORT, "broken", "another cocotb"),
    "its golden answer fails": ({"golden": inverter("a")}, SHORT, "broken", "the golden answer fails: tests failed"),
    "it always passes, without a golden answer": ({"run": "pass\n", "golden": None}, SHORT, "weak", "a stub is paid"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "level", "status", "said"), UNFIT.values(), ids=UNFIT)
def test_an_unfit_harness_is_found_and_named(grader, planted, given, level, status, said):
    found = validate_problem(planted(**given), grader, level=level)
    assert found.status == status, found.evidence
    assert said in found.evidence["reason"]


@pytest.mark.parametrize(
    ("stub", "words"),
    [
        ("clock", "an echo of the clock"),
        ("blip", "all outputs 0 with one short pulse"),
        ("zeros", "all outputs 0"),
    ],
)
def test_the_published_lfsr_is_weak_because_a_stub_passes(grader, examples, stub, words):
    found = validate_problem(examples[LFSR], grader, level=Level("full", 0, (1,), (stub,)))
    assert found.status == "weak", found.evidence
    assert f"a stub is paid: {words}" in found.evidence["reason"]
    assert "differs from the golden answer" in found.evidence["reason"]
    assert found.evidence["stubs"][stub].startswith("passed")


def test_the_published_lfsr_is_fit_if_only_a_failing_stub_is_tried(grader, examples):
    found = validate_problem(examples[LFSR], grader, level=Level("full", 0, (1,), ("ones",)))
    assert found.evidence["stubs"] == {"ones": "tests_failed"}
    assert found.status == "fit"


TWO = "module inv(input [3:0] a, output [3:0] y, output odd);\n  assign y = ~a;\n  assign odd = {odd};\nendmodule\n"


def test_an_output_that_the_harness_ignores_is_found_by_a_stuck_stub(grader, planted):
    level = Level("full", 0, (1,), ("stuck",))
    found = validate_problem(planted(golden=TWO.replace("{odd}", "^a")), grader, level=level)
    assert found.status == "weak"
    assert "output odd at 0 for ever, the others right" in found.evidence["reason"]
    assert set(found.evidence["stubs"]) == {
        f"stuck {name} at {value}" for name in ("y", "odd") for value in (0, 1)
    }
    assert found.evidence["stubs"]["stuck y at 0"] == "tests_failed"


def test_a_constant_output_may_be_stuck_at_its_value(grader, planted):
    bench = BENCH.replace(".y(y)", ".y(y), .odd(o)").replace("y !== ~a", "y !== ~a || o !== 0")
    bench = bench.replace("wire [3:0] y;", "wire [3:0] y; wire o;")
    problem = planted(golden=TWO.replace("{odd}", "1'b0"), files={"src/bench.sv": bench})
    found = validate_problem(problem, grader, level=Level("full", 0, (1,), ("stuck",)))
    assert found.status == "fit", found.evidence
    assert found.evidence["stubs"]["stuck odd at 0"].startswith("passed (same")
    assert found.evidence["stubs"]["stuck odd at 1"] == "tests_failed"


@pytest.mark.slow
def test_a_single_survivor_makes_only_a_generated_problem_weak(grader, planted):
    # Some inputs are never tried, so that some mutants survive.
    half = BENCH.replace("i < 16", "i < 12")
    problem = planted(files={"src/bench.sv": half}, golden=INVERTER_OF_TWO)
    level = Level("full", 8, (1,), ())
    other = validate_problem(problem, grader, level=level)
    assert other.status == "fit", other.evidence
    assert 0.5 < other.evidence["mutants"]["score"] < 0.99
    starter = validate_problem(
        problem.model_copy(update={"generated": True}), grader, level=level
    )
    assert starter.status == "weak"
    assert "mutants are paid, for example" in starter.evidence["reason"]


INVERTER_OF_TWO = """\
module inv(input [3:0] a, output [3:0] y);
  wire top = a[3] & a[2];
  assign y = top ? ~a : ~a;
endmodule
"""


def test_a_register_that_is_too_short_for_a_counter_is_found(grader):
    spec = next(
        s for s in starter_specs("train", 400, 0) if s.family == "counter" and s.width >= 10
    )
    problem = problem_of(spec)
    ((path, text),) = problem.golden.items()
    name = spec.ports[1]
    short = text.replace(
        f"output reg [{spec.width - 1}:0] {name}", f"output [{spec.width - 1}:0] {name}"
    ).replace(");\n", f");\n  reg [7:0] r; assign {name} = r;\n", 1)
    head, body = short.split("= r;\n")
    short = head + "= r;\n" + re.sub(rf"\b{name}\b", "r", body)
    found = compare(grader.executor, problem, problem.golden, {path: short}, grader.limits)
    assert found.result == "different", (found, short)


@pytest.mark.slow
def test_the_published_arbiter_is_fit_and_its_survivors_are_shown(grader, examples):
    found = validate_problem(
        examples[ARBITER], grader, level=Level("full", 4, (1,), ("zeros",))
    )
    assert found.status == "fit", found.evidence
    assert found.evidence["mutants"]["survivors"]
    for survivor in found.evidence["mutants"]["survivors"]:
        assert survivor["told"], (
            "a survivor counts only with an input that distinguishes it from the golden answer"
        )


def test_a_harness_that_needs_a_missing_program_is_unsupported(grader, planted):
    program = "ghdl" if "yosys" in grader.executor.tools() else "yosys"
    run = f'import subprocess\nsubprocess.run(["{program}", "-V"], check=True)\n'
    found = validate_problem(planted(run), grader, level=SHORT)
    assert found.status == "unsupported"
    assert f"the program {program}" in found.evidence["reason"]


def test_a_harness_that_fails_before_any_test_is_broken_even_if_the_ports_are_unknown(
    grader, planted
):
    problem = planted(NO_TEST, golden=None).model_copy(update={"interface": None})
    found = validate_problem(problem, grader, level=SHORT)
    assert found.status == "broken", found.evidence
    assert "another cocotb" in found.evidence["reason"]


def test_a_golden_answer_that_does_not_compile_is_graded_once(grader, planted):
    found = validate_problem(
        planted(golden=inverter("a").replace("assign", "assing")), grader, level=SHORT
    )
    assert found.status == "broken"
    assert len(found.evidence["golden"]["verdicts"]) == 1, "seeds make no difference"


def test_a_harness_that_exceeds_its_timeout_is_broken(planted):
    with (
        make_executor("bubblewrap") as executor,
        closing(Grader(executor, limits=Limits(wall_s=1.0))) as grader,
    ):
        found = validate_problem(
            planted("import time\ntime.sleep(60)\n"), grader, level=Level("full", 1, (1,), ())
        )
    assert found.status == "broken"
    assert "timeout" in found.evidence["reason"]


@pytest.mark.slow
def test_a_harness_that_waits_forever_is_stopped(grader, planted, monkeypatch):
    """Without a golden answer, stubs have a shorter timeout than the harness. Here they would pass in the end."""
    monkeypatch.setattr(validate, "WRONG_S", 2.0)
    waiting = planted("import time\ntime.sleep(30)\n", golden=None)
    found = validate_problem(waiting, grader, level=Level("quick", 0, (1,), ("zeros", "ones")))
    assert found.status == "fit_without_golden", found.evidence
    assert found.evidence["stubs"] == {"zeros": "timeout", "ones": "timeout"}


@pytest.mark.slow
def test_the_golden_answers_time_limits_stubs_and_mutants_that_hang(grader, planted):
    """The harness computes forever if an output is wrong; the limits would allow two minutes per answer."""
    waits = HONEST.replace(
        "sys.exit(0", "while 'all good' not in done.stdout: pass\nsys.exit(0"
    )
    before_s = grader.executor.cpu_s
    found = validate_problem(
        planted(waits), grader, level=Level("full", 2, (1,), ("zeros", "ones"))
    )
    assert found.status == "fit", found.evidence
    assert found.evidence["stubs"] == {"zeros": "timeout", "ones": "timeout"}
    assert grader.executor.cpu_s - before_s < 60


def test_without_a_golden_answer_the_other_checks_are_made(grader, planted):
    honest = validate_problem(planted(golden=None), grader, level=SHORT)
    assert honest.status == "fit_without_golden", honest.evidence
    assert honest.evidence["golden"]["source"] is None
    assert set(honest.evidence["stubs"]) == set(WITHOUT_DESIGN) - {"clock", "counter"}
    assert honest.evidence["interface"]["source"] == "specification"
    assert honest.evidence["interface"]["confidence"] == "medium"


def test_equivalent_mutants_do_not_make_a_problem_weak(grader):
    minmax = next(p for p in starter_problems("train", 18, 0) if p.family == "minmax")
    found = validate_problem(minmax, grader, level=Level("full", 8, (1,), ()))
    assert found.status == "fit"
    assert found.evidence["mutants"]["equivalent"] >= 1
    assert found.evidence["mutants"]["score"] == 1.0


def test_a_stub_that_is_right_does_not_make_a_problem_weak(grader, planted):
    zero = inverter("4'd0")
    bench = {"src/bench.sv": BENCH.replace("~a", "4'd0")}
    found = validate_problem(planted(golden=zero, files=bench), grader, level=SHORT)
    assert found.status == "fit", found.evidence
    assert "same" in found.evidence["stubs"]["zeros"]


@pytest.mark.slow
def test_starter_problems_are_fit_before_a_training_run(grader):
    """Every third family; the slow test below has all."""
    for problem in starter_problems("heldout", 18, 0)[::3]:
        found = validate_problem(problem, grader, level=quick_level(2, 1))
        assert found.status == "fit", (problem.family, found.evidence)
        assert found.evidence["mutants"]["killed"] == 2, (problem.family, found.evidence)


def test_a_failing_executor_raises_an_error(planted):
    executor = make_executor("bubblewrap")
    executor.close()
    with (
        closing(Grader(executor)) as grader,
        pytest.raises(InfrastructureError, match="planted cannot be validated"),
    ):
        validate_problem(planted(), grader, level=SHORT)


def test_the_key_of_a_record_depends_on_problem_tools_level_and_golden_answer(grader, planted):
    tools = grader.executor.tools()
    keys = {
        tools_key("bubblewrap", tools, quick_level(2, 1)),
        tools_key("bubblewrap", tools, quick_level(3, 1)),
        tools_key("bubblewrap", tools, full_level()),
        tools_key("docker", tools, full_level()),
        tools_key("bubblewrap", {**tools, "iverilog": "99.0"}, full_level()),
    }
    assert len(keys) == 5
    assert tools_key("bubblewrap", dict(reversed(tools.items())), full_level()) in keys
    other = planted(golden=inverter("4'd15 - a"))
    assert planted().fingerprint == other.fingerprint
    assert golden_digest(planted()) != golden_digest(other)


@pytest.mark.slow
def test_every_sixteenth_starter_problem_is_fit_with_a_mutation_score_of_at_least_99_percent(
    grader,
):
    problems = (starter_problems("train", 160, 0) + starter_problems("heldout", 64, 0))[::16]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        records = list(
            pool.map(lambda p: validate_problem(p, grader, level=full_level()), problems)
        )
    for problem, record in zip(problems, records, strict=True):
        assert record.status == "fit", (problem.id, record.evidence)
        assert record.evidence["mutants"]["score"] >= 0.99, (
            problem.id,
            record.evidence["mutants"],
        )
