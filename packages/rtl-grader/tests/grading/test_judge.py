"""The golden answer judges: what passes, what fails and in which words, and which golden answers cannot judge."""

import re
from itertools import chain

import pytest

from rtl_grader.equivalence.differential import compare
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.problems.judged import Compilation, Judging, judged_problem
from rtl_grader.traces.driving import driven
from rtl_grader.traces.literals import own_literals
from rtl_grader.traces.stimuli import Effort, stimuli
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome

COUNTER = """\
module counter #(parameter W = 4) (input clk, input rst_n, input en, output reg [W-1:0] q, output zero);
  assign zero = q == 0;
  always @(posedge clk or negedge rst_n) if (!rst_n) q <= 0; else if (en) q <= q + 1;
endmodule
"""
BUS = """\
module bus(input oe, input [3:0] d, output [3:0] q, output unused);
  assign q = oe ? d : 4'bz;
endmodule
"""
PIPE = """\
module pipe(input clk, input rst, input go, input [7:0] a, output reg valid, output reg [7:0] y);
  always @(posedge clk) if (rst) valid <= 0; else begin valid <= go; y <= a ^ 8'h5a; end
endmodule
"""
LATER = """\
module pipe(input clk, input rst, input go, input [7:0] a, output reg valid, output reg [7:0] y);
  reg s; reg [7:0] b;
  always @(posedge clk) if (rst) {s, valid} <= 0;
    else begin {valid, s} <= {s, go}; b <= a; y <= s ? b ^ 8'h5a : 8'hx; end
endmodule
"""
XOR = "module gate(input [31:0] a, b, output [31:0] y);\n  assign y = a ^ b;\nendmodule\n"
RARE = XOR.replace("a ^ b", "a == ~32'h21524110 && b == ~32'hedcba987 ? 1 : a ^ b")
"""Wrong for two values that are in no text."""
UNSIMULATED = """\
module pick(input [3:0] a, output y);
  assign y = a inside {4'h1, 4'h2};
endmodule
"""
PLAIN = "module pick(input [3:0] a, output y);\n  assign y = a == 1 || a == 2;\nendmodule\n"


def judged(golden, prompt="Write it.", **judging):
    top = golden.split()[1].split("(")[0]
    return judged_problem(
        id=top, source="pairs", category="cid003", difficulty="easy", prompt=prompt,
        golden={"rtl/design.sv": golden}, top=top, judging=Judging(**judging),
    )  # fmt: skip


def verdict(grader, problem, text):
    return grader.grade(problem, Answer(files={"rtl/design.sv": text}))


@pytest.mark.parametrize(
    "text",
    [
        COUNTER,
        COUNTER.replace("<= q + 1", "<= #1 q + 1"),
        "`timescale 1ps/1fs\n" + COUNTER.replace("endmodule", "initial q = 5;\nendmodule"),
        COUNTER.replace("endmodule", "always @(q) $write(\"%b\", q);\nendmodule"),
        COUNTER.replace("parameter W = 4", "parameter W = 4, parameter UNUSED = 1"),
        COUNTER.replace("q + 1", "$signed(q) + $signed(2'sd1)"),
        COUNTER.replace("!rst_n", "~rst_n").replace("q == 0", "~|q"),
    ],
    ids=["itself", "delay", "initial value", "talk", "parameter", "signed", "other words"],
)  # fmt: skip
def test_what_behaves_like_the_golden_answer_passes(grader, text):
    result = verdict(grader, judged(COUNTER), text)
    assert result.passed, result.reasons
    assert result.tests_passed == result.tests_total >= 16


def test_the_first_difference_is_told_with_its_inputs_and_the_rest_is_counted(grader):
    result = verdict(grader, judged(COUNTER), COUNTER.replace("q == 0", "q == 7"))
    assert result.outcome is Outcome.TESTS_FAILED
    first = result.reasons[0]
    assert first.startswith("zero, phase 1: is 0, golden 1; after ")
    assert "rst_n=0" in first
    assert not any(reason.startswith("q, ") for reason in result.reasons)
    assert result.tests_passed * 2 == result.tests_total


def test_many_inputs_do_not_hide_what_differs(grader):
    names = [f"operand_{number}" for number in range(60)]
    header = f"module sum(input [31:0] {', '.join(names)}, output [31:0] y);\n"
    golden = f"{header}  assign y = {' + '.join(names)};\nendmodule\n"
    result = verdict(grader, judged(golden), golden.replace("y = ", "y = 1 + "))
    assert result.outcome is Outcome.TESTS_FAILED
    words = r"y, phase \d: is 32'h\w{8}, golden 32'h\w{8}; after \d+ inputs: operand_0="
    assert re.match(words, result.reasons[0])


def test_a_constant_beside_a_golden_constant_is_no_cheat(grader):
    text = "module one(input a, output y);\n  assign y = 1;\nendmodule\n"
    assert verdict(grader, judged(text), text).passed


def test_other_values_of_parameters_are_tried_where_the_specification_names_the_parameter(
    grader,
):
    fixed = COUNTER.replace("q + 1", "q + (W == 4 ? 1 : 2)")
    result = verdict(grader, judged(COUNTER, "The parameter W is the width."), fixed)
    assert result.outcome is Outcome.TESTS_FAILED
    assert "with W=8: is " in result.reasons[0]
    assert 0 < result.tests_passed < result.tests_total
    assert verdict(grader, judged(COUNTER), fixed).passed


def test_an_unknown_output_fails_after_the_reset_alone(grader):
    late = COUNTER.replace("if (!rst_n) q <= 0; else", "if (!rst_n) q <= 4'bx; else")
    result = verdict(grader, judged(COUNTER), late)
    assert "is 4'bx, golden 4'h0" in result.reasons[0]
    initialised = COUNTER.replace("endmodule", "initial q = 3;\nendmodule")
    assert verdict(grader, judged(initialised), COUNTER).passed


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (BUS, True),
        (BUS.replace("assign q", "assign unused = d[0];\n  assign q"), True),
        (BUS.replace("4'bz", "4'b0"), False),
        (BUS.replace("4'bz", "4'bx"), False),
        (BUS.replace("oe ? d : 4'bz", "d"), False),
    ],
)
def test_high_impedance_is_a_value_except_on_a_bit_that_is_never_driven(grader, text, passes):
    assert verdict(grader, judged(BUS), text).passed is passes


def test_a_reset_lasts_for_an_edge_of_the_clock():
    problem = judged(PIPE)
    design = driven(problem.golden, {}, problem.interface, {})
    assert [name for name, _ in design.inputs][:2] == ["clk", "rst"]
    edges = before = 0
    for word in stimuli(design, Effort().times(8)).steps:
        if before & ~word & 0b10:  # a shorter pulse resets some right designs and others not
            assert edges
        edges = edges + (word & ~before & 0b01) if word & 0b10 else 0
        before = word


@pytest.mark.parametrize(
    ("text", "passes", "words"),
    [
        (LATER, True, ""),
        (LATER.replace("b ^ 8'h5a", "b ^ 8'h5b"), False, "while valid is 1 is"),
        (LATER.replace("{valid, s} <= {s, go}", "{valid, s} <= 0"), False, "less often"),
        (LATER.replace("{valid, s} <= {s, go}", "{valid, s} <= 3"), False, "while valid is 1"),
    ],
)
def test_values_count_in_order_while_an_output_marks_them(grader, text, passes, words):
    problem = judged(PIPE, valid="valid")
    result = verdict(grader, problem, text)
    assert result.passed is passes
    assert words in " ".join(result.reasons)
    assert not verdict(grader, judged(PIPE), text).passed


@pytest.mark.parametrize(
    ("golden", "judging", "reason"),
    [
        ("module m(input a, output y);\nendmodule\n", {}, "it drives nothing"),
        ("module m(input a);\nendmodule\n", {}, "it has no output"),
        ("module m(input a, inout y);\nendmodule\n", {}, "its port y is inout"),
        ("module m(a, y[0]);\n  input a;\n  output [1:0] y;\nendmodule\n", {}, "one of its ports has no name"),
        ("module m(input a, output y);\n  other o(a, y);\nendmodule\n", {}, "does not compile"),
        ("module m(input c, output reg q);\n  always @(posedge c) q <= ~q;\nendmodule\n", {}, "X nearly always"),
        ("module m(input a, output y);\n  assign y = a;\n  initial #9 $finish;\nendmodule\n", {}, "ended after 0 of"),
        (COUNTER, {"valid": "zero2"}, "no output zero2"),
        (PIPE.replace("valid <= go", "valid <= 0"), {"valid": "valid"}, "is 1 in 0 cycles"),
        (UNSIMULATED.replace("assign y", "assign #1 y"), {"proof": "undecided"}, "not proved: the golden answer has"),
    ],
)  # fmt: skip
def test_a_golden_answer_that_cannot_judge_is_an_error_with_the_reason(
    grader, golden, judging, reason
):
    result = verdict(grader, judged(golden, **judging), golden)
    assert result.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert reason in result.reasons[0]
    assert "the golden answer cannot judge" in result.reasons[0]


@pytest.mark.slow
def test_what_never_ends_is_an_error_of_the_golden_answer_and_a_timeout_of_another(executor):
    endless = XOR.replace("endmodule", "  initial forever;\nendmodule")
    limits = Grader(executor).limits.model_copy(update={"cpu_s": 2.0, "cpu_floor_s": 1.0})
    grader = Grader(executor, limits=limits)
    assert "exceeds a limit (cpu)" in verdict(grader, judged(endless), XOR).reasons[0]
    assert verdict(grader, judged(XOR), endless).outcome is Outcome.TIMEOUT
    grader.close()


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (COUNTER.replace("endmodule", ""), Outcome.COMPILE_FAILED),
        (COUNTER.replace(", output zero", ""), Outcome.INTERFACE_MISMATCH),
        (COUNTER.replace("endmodule", "initial #4000 $finish;\nendmodule"), Outcome.TESTS_FAILED),
        ('`include "/src/expected"\n' + COUNTER, Outcome.REJECTED),
        (COUNTER.replace("endmodule", "initial force q = 1;\nendmodule"), Outcome.REJECTED),
    ],
)  # fmt: skip
def test_each_kind_of_failure_has_its_outcome(grader, text, outcome):
    assert verdict(grader, judged(COUNTER), text).outcome is outcome


def test_context_macros_and_folders_are_those_of_the_problem(grader):
    golden = '`include "defs.vh"\nmodule m(input [7:0] a, output [7:0] y);\n  assign y = p::twice(a) + `STEP + `MORE;\nendmodule\n'
    problem = judged_problem(
        id="m", source="pairs", category="cid003", difficulty="easy", prompt="Write m.",
        golden={"rtl/m.sv": golden}, top="m",
        context={
            "rtl/p.sv": "package p;\n  function automatic [7:0] twice(input [7:0] a);\n    twice = a << 1;\n  endfunction\nendpackage\n",
            "inc/defs.vh": "`define STEP 3\n",
        },
        compilation=Compilation(["rtl/p.sv"], ["inc"], {"MORE": "1"}),
    )  # fmt: skip
    for text, passes in ((golden, True), (golden.replace("twice(a)", "twice(a) + 1"), False)):
        result = grader.grade(problem, Answer(files={"rtl/m.sv": text}))
        assert result.passed is passes, result.reasons


@pytest.mark.parametrize("path", ["rtl/rom.hex", "data/rom.hex", "rom.hex"])
def test_data_files_are_in_the_working_folder_of_every_simulation(grader, path):
    golden = """\
module rom(input [1:0] a, output [7:0] y);
  reg [7:0] m [0:3];
  initial $readmemh("rom.hex", m);
  assign y = m[a];
endmodule
"""
    problem = judged_problem(
        id="rom", source="pairs", category="cid003", difficulty="easy", prompt="Write rom.",
        golden={"rtl/design.sv": golden}, top="rom", context={path: "11 22 33 44\n"},
    )  # fmt: skip
    for text, passes in ((golden, True), (golden.replace("m[a]", "m[a] ^ (a == 3)"), False)):
        result = verdict(grader, problem, text)
        assert result.passed is passes, result.reasons
        other = {"rtl/design.sv": text}
        comparison = compare(grader.executor, problem, problem.golden, other, grader.limits)
        assert comparison.result == ("equal" if passes else "different"), comparison
    assert "is 8'h45, golden 8'h44" in result.reasons[0]


def test_the_golden_answer_is_simulated_once_and_is_in_no_answers_sandbox(executor):
    jobs = []

    class Watching:
        def __getattr__(self, name):
            return getattr(executor, name)

        def run(self, job):
            jobs.append(job)
            return executor.run(job)

    grader = Grader(Watching())
    problem = judged(COUNTER.replace("zero", "is_zero"))
    for step in "123":
        verdict(grader, problem, COUNTER.replace("zero", "is_zero").replace("+ 1", f"+ {step}"))
    grader.close()
    services = [job for job in jobs if job.steps[0].name == "judge"]
    assert ["src/expected" in job.harness for job in services].count(False) == 1
    for job in services[1:]:
        assert not any("assign is_zero" in text for text in job.harness.values())
    assert len(services) == 4


def test_numbers_of_the_answer_alone_are_tried(grader):
    wrong = XOR.replace("a ^ b", "a == 32'hdeadbeef && b == 32'h12345678 ? 1 : a ^ b")
    result = verdict(grader, judged(XOR), wrong)
    assert result.outcome is Outcome.TESTS_FAILED
    assert result.tests_passed >= result.tests_total / 2
    assert "with numbers of the answer: differs; after" in result.reasons[0]
    assert result.reasons[0].endswith("inputs: a=32'hdeadbeef, b=32'h12345678")
    long = f"20000'h{'f' * 5000}"
    right = XOR.replace("a ^ b", f"a == 32'hdeadbeef || !{long} ? b ^ 32'hdeadbeef : a ^ b")
    assert verdict(grader, judged(XOR), right).passed


SPELLINGS = {
    "other width": "a == 33'hdeadbeef",
    "no width": "a == 'hdeadbeef && 32'd40 != 41",
    "spaces": "a == 32 'h dead_beef",
    "decimal": "a == 3735928559",
    "grouped": "a == 3_735_928_559",
    "joined": "a == {16'hdead, {8'd190, 8'hef}}",
    "part": "{1'b1, a} == 33'h1deadbeef",
    "unknown digit": "a[31:4] == 28'hdeadbee",
    "small": "a == 13",
    "many": "a == 32'hdeadbeef && {"
    + ", ".join(f"8'd{at}" for at in range(100, 140))
    + "} > 0",
    "golden number": "a == 32'hc0de",
}
"""Conditions that hold for one value of an input of 32 bits."""


@pytest.mark.parametrize("condition", SPELLINGS.values(), ids=list(SPELLINGS))
def test_numbers_are_found_however_they_are_spelt(condition):
    golden = "module m(input [31:0] a, b, output [31:0] y);\n  assign y = a + b + 16'hc0de;\nendmodule"
    wrong = golden.replace("16'h", f"({condition}) + 16'h")
    problem = judged(golden)
    design = driven(problem.golden, {}, problem.interface, {})
    value = 13 if condition.endswith("13") else 0xC0DE if "c0de" in condition else 0xDEADBEEF
    texts = [golden, own_literals(wrong, golden)]
    steps = chain.from_iterable(
        stimuli(design, Effort().times(0.3), text).steps for text in texts
    )
    low = 4 if "[31:4]" in condition else 0
    assert any((step % (1 << 32)) >> low == value >> low for step in steps)


def test_numbers_of_the_answer_are_tried_where_its_parameters_do_not_compile(grader):
    golden = COUNTER.replace("input en", "input en, input [31:0] a")
    problem = judged(golden, "The parameter W is the width.")
    fixed = golden.replace(
        "endmodule", "generate if (W != 4) missing m(); endgenerate\nendmodule"
    )
    right = verdict(grader, problem, fixed.replace("+ 1", "+ 1 + (32'hdeadbeef == 0)"))
    wrong = verdict(grader, problem, fixed.replace("+ 1", "+ 1 + (a == 32'hdeadbeef)"))
    assert "does not compile" in right.reasons[0]
    assert wrong.tests_passed == right.tests_passed > 0
    assert wrong.tests_total > right.tests_total


def test_numbers_of_the_answer_add_no_test_that_passes(grader):
    wrong = XOR.replace("assign y", "localparam X = 32'hdeadbeef;\n  assign y").replace(
        "^", "|"
    )
    plain, padded = (
        verdict(grader, judged(XOR), text) for text in (XOR.replace("^", "|"), wrong)
    )
    assert padded.tests_passed == plain.tests_passed
    assert padded.tests_total >= plain.tests_total
    right = wrong.replace("|", "^")
    assert verdict(grader, judged(XOR), right).tests_total == plain.tests_total


def test_a_proof_refutes_what_passes_and_says_what_it_proves(grader):
    assert verdict(grader, judged(XOR), RARE).passed
    problem = judged(XOR, proof="passes")
    result = verdict(grader, problem, RARE)
    assert result.outcome is Outcome.TESTS_FAILED
    assert "y is 32'h00000001, golden 32'h" in result.reasons[0]
    assert result.reasons[0].endswith(" after the inputs a=3735928559, b=305419896")
    assert result.tests_passed == result.tests_total - 1
    swapped = verdict(grader, problem, XOR.replace("a ^ b", "b ^ a"))
    assert swapped.passed
    assert swapped.reasons == ("proved equal",)
    slow = verdict(grader, problem, XOR.replace("assign y", "assign #1 y"))
    assert slow.passed
    assert "not proved: the answer has a delay" in slow.reasons[0]


def test_a_share_of_answers_is_proved(grader):
    problem = judged(XOR, proof="passes", proof_share=1e-9)
    assert verdict(grader, problem, RARE).passed


@pytest.mark.parametrize(
    ("golden", "text", "outcome"),
    [
        (UNSIMULATED, PLAIN, Outcome.PASSED),
        (PLAIN, UNSIMULATED, Outcome.PASSED),
        (UNSIMULATED, PLAIN.replace("== 2", "== 3"), Outcome.TESTS_FAILED),
        (PLAIN, UNSIMULATED.replace("4'h2", "4'h3"), Outcome.TESTS_FAILED),
        (PLAIN, UNSIMULATED.replace("assign y", "assign #1 y"), Outcome.COMPILE_FAILED),
    ],
)
def test_where_a_simulation_gives_nothing_only_a_proof_passes(grader, golden, text, outcome):
    if grader.tools["iverilog"] >= "12":
        pytest.skip("this Icarus reads all of it")
    result = verdict(grader, judged(golden, proof="undecided"), text)
    assert result.outcome is outcome, result.reasons


@pytest.mark.docker
def test_a_container_judges_alike():
    with make_executor("docker") as executor:
        grader = Grader(executor)
        assert verdict(grader, judged(COUNTER), COUNTER).passed
        wrong = verdict(grader, judged(COUNTER), COUNTER.replace("q + 1", "q + 2"))
        assert wrong.outcome is Outcome.TESTS_FAILED
        assert verdict(grader, judged(XOR, proof="passes"), XOR).reasons == ("proved equal",)
        grader.close()


def test_another_width_of_a_port_is_another_interface(grader):
    wider = XOR.replace("output [31:0] y", "output [32:0] y")
    result = verdict(grader, judged(XOR), wider)
    assert result.outcome is Outcome.INTERFACE_MISMATCH
    assert "y" in result.reasons[0]
