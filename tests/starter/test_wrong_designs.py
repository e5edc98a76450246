"""Starter benches pass every right design, and none that is wrong in few states, few input patterns or for other parameters."""

import itertools
import re
from contextlib import closing
from dataclasses import replace

import pytest

from benchmarks.redteam.attack import UNPAID
from benchmarks.redteam.catalogue import GROUPS
from benchmarks.redteam.problems import find
from rtl_core.starter import BY_NAME, Spec, problem_of
from rtl_core.starter.record import target_of
from rtl_grader.grading.grader import Grader
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome
from tests.nouns import golden_answer

WEAK = [attack for attack in GROUPS["weak_harness"] if attack.problem.startswith("starter/")]
COUNTER = Spec(
    "counter",
    "pix_unit",
    ("go", "val"),
    14,
    "up",
    "ck",
    "clr",
    active_low=False,
    asynchronous=False,
)
SCALED = Spec("scaled", "dsp_node", ("a", "b", "y", "SIZE"), 6, "sum")
REGISTER = replace(COUNTER, family="register", ports=("go", "d", "q"), option="", width=9)


def graded(grader, spec, code):
    return grader.grade(problem_of(spec), Answer(files={target_of(spec): code}))


def edited(spec, old, new):
    golden = golden_answer(spec)
    assert old in golden, golden
    return golden.replace(old, new)


def assert_fails(grader, spec, code):
    verdict = graded(grader, spec, code)
    assert verdict.outcome is Outcome.TESTS_FAILED, (verdict.outcome, verdict.reasons)
    return verdict


@pytest.mark.corpus
@pytest.mark.parametrize("attack", WEAK, ids=lambda attack: attack.name)
def test_no_wrong_design_of_the_red_team_passes(grader, attack):
    verdict = grader.grade(
        problem := find(attack.problem), Answer(files={problem.targets[0]: attack.text})
    )
    assert verdict.outcome in UNPAID, verdict.reasons


@pytest.mark.parametrize("width", [3, 8, 14])
@pytest.mark.parametrize(
    ("option", "end", "sign"), [("up", "&val", "+"), ("down", "val == 0", "-")]
)
def test_a_counter_that_saturates_fails(grader, width, option, end, sign):
    spec = replace(COUNTER, width=width, option=option)
    assert_fails(
        grader,
        spec,
        edited(spec, f"val <= val {sign} 1", f"val <= ({end}) ? val : val {sign} 1"),
    )


def test_a_counter_that_goes_wrong_in_one_state_fails(grader):
    for state in (77, 5000, 16383):
        code = edited(COUNTER, "val <= val + 1", f"val <= val == {state} ? 1 : val + 1")
        assert_fails(grader, COUNTER, code)


@pytest.mark.parametrize("option", BY_NAME["scaled"].options)
def test_a_parameter_without_effect_fails(grader, option):
    spec = replace(SCALED, option=option)
    golden = golden_answer(spec)
    names, ports = golden.split("(input", 1)
    assert_fails(grader, spec, names + "(input" + re.sub(r"\bSIZE\b", "6", ports))
    value = golden.partition("assign y = ")[2].partition(";")[0]
    inside = "wire [5:0] s = a, t = b;\n  assign y = " + re.sub(
        r"\bb\b", "t", re.sub(r"\ba\b", "s", value)
    )
    assert_fails(grader, spec, golden.replace(f"assign y = {value}", inside))


def test_the_message_names_the_parameter_that_was_set(grader):
    verdict = assert_fails(grader, SCALED, edited(SCALED, "a + b", "(SIZE == 6) ? a + b : 0"))
    assert any(re.search(r"SIZE=\d+, .*expected", reason) for reason in verdict.reasons), (
        verdict.reasons
    )
    assert verdict.tests_total == 4
    assert verdict.tests_passed == 2


def test_even_a_rare_unknown_bit_fails(grader):
    spec = replace(SCALED, family="adder", ports=("a", "b", "y", "c"), option="plain", width=8)
    assert_fails(grader, spec, edited(spec, "a + b", "a + b + (a == 8'h5a ? 8'b0x : 0)"))


def test_the_stimuli_depend_only_on_seed_and_problem(grader, other_seed):
    def reasons(grader, word):
        spec = replace(REGISTER, ports=("go", word, "q"))
        code = edited(
            spec, f"if (go) q <= {word}", f"if (go) q <= {word} == (q ^ 3) ? 0 : {word}"
        )
        return [
            reason.replace(f" {word}=", " ")
            for reason in assert_fails(grader, spec, code).reasons
        ]

    first = reasons(grader, "d")
    assert reasons(grader, "d") == first
    assert reasons(other_seed, "d") != first
    assert reasons(grader, "x") != first


HONEST = {
    "delayed assignments": "  always @(posedge ck) if (clr) val <= #1 0; else if (go) val <= #1 val + 1;\n",
    "a register behind a wire": (
        "  reg [13:0] count = 14'h123;\n  wire [13:0] following = go ? count + 14'd1 : count;\n"
        "  always_ff @(posedge ck) count <= clr ? '0 : following;\n  always_comb val = count;\n"
    ),
    "two processes": (
        "  logic [13:0] n;\n  always @* begin n = val; if (go) n = val + 1; end\n"
        "  always @(posedge ck) begin val <= n; if (clr) val <= 0; end\n"
    ),
}


@pytest.mark.parametrize("idiom", HONEST)
def test_right_designs_in_another_style_pass(grader, idiom):
    header = golden_answer(COUNTER).split("\n", 1)[0]
    verdict = graded(grader, COUNTER, f"{header}\n{HONEST[idiom]}endmodule\n")
    assert verdict.passed, verdict.reasons


def golden_specs():
    """Every family and option with its smallest, largest or another width, and with reset kinds and seeds 0 to 4 in turn."""
    kinds = itertools.cycle(itertools.product((False, True), (False, True)))
    seeds = itertools.cycle(range(5))
    for family in BY_NAME.values():
        for number, option in enumerate(family.options):
            widths = {family.widths[(0, -1, len(family.widths) // 2)[number % 3]]}
            if number == 0:
                widths |= {family.widths[0], family.widths[-1]}
            for width in sorted(widths):
                active_low, asynchronous = next(kinds)
                ports = (
                    (*family.roles[:-1], "SIZE") if family.name == "scaled" else family.roles
                )
                spec = Spec(
                    family.name,
                    "io_blk",
                    ports,
                    width,
                    option,
                    "ck",
                    "clr",
                    active_low,
                    asynchronous,
                )
                yield pytest.param(spec, next(seeds), id=f"{family.name}-{option}-{width}")


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "seed"), golden_specs())
def test_golden_answers_pass(executor, spec, seed):
    with closing(Grader(executor, seed=seed)) as grader:
        verdict = graded(grader, spec, golden_answer(spec))
    assert verdict.passed, verdict.reasons
