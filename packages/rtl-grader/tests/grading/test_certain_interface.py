"""Differences of the interface that fail an answer although it passes its harness, and those that do not.

The harness reads names of the design, so a register, a wire or a parameter in an output's place satisfies it.
"""

import pytest

from rtl_core.starter import starter_problems
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import InterfaceSource
from rtl_grader.types.verdict import MismatchKind, Outcome, Stage
from tests.nouns import COMPOSE, read_problem

RUNNER = """from cocotb_tools.runner import get_runner

def test_it():
    runner = get_runner("icarus")
    runner.build(sources=["/code/rtl/m.sv"], hdl_toplevel="m", always=True, parameters=SETTINGS, timescale=("1ns", "1ns"))
    runner.test(hdl_toplevel="m", test_module="test_m")
"""
TEST = """import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def t(dut):
    SIZE = len(dut.a)
    for value in range(40):
        dut.a.value = value % 2**SIZE
        await Timer(1, "ns")
        assert int(dut.y.value) == value % 2**SIZE
"""
RIGHT = "module m #(parameter SIZE = 8)(input [SIZE-1:0] a, output [SIZE-1:0] y); assign y = a; endmodule\n"
FIXED = "module m(input [7:0] a, output [7:0] y); assign y = a; endmodule\n"


def weak_problem(golden=None, prompt="Copy a to y.", settings="{}", test=TEST, **given):
    harness = {
        "docker-compose.yml": COMPOSE.format(
            "pytest -s -o cache_dir=/code/rundir/.cache /src/test_runner.py -v"
        ),
        "src/.env": "SIM = icarus\nTOPLEVEL = m\nVERILOG_SOURCES = /code/rtl/m.sv\n",
        "src/test_runner.py": RUNNER.replace("SETTINGS", settings),
        "src/test_m.py": test,
    }
    return read_problem(
        prompt=prompt,
        targets=("rtl/m.sv",),
        harness=harness,
        golden=golden and {"rtl/m.sv": golden},
        **given,
    )


def graded(grader, problem, text):
    return grader.grade(problem, Answer(files={"rtl/m.sv": text}))


WITHOUT_OUTPUT = {
    "a wire": "module m(input [7:0] a); wire [7:0] y = a; endmodule\n",
    "a register": "module m(input [7:0] a); reg [7:0] y; always @* y = a; endmodule\n",
    "an inout": "module m(input [7:0] a, inout [7:0] y); assign y = a; endmodule\n",
    "an output of another name": "module m(input [7:0] a, output [7:0] z); wire [7:0] y = a; assign z = y; endmodule\n",
}
HEADER = "```verilog\nmodule m(input [7:0] a, output [7:0] y);\n```\n"
EVIDENCE = {
    "the golden answer": {"golden": FIXED},
    "a header in the prompt": {"prompt": HEADER},
    "an older version": {"context": {"rtl/m.sv": FIXED.replace("= a", "= ~a")}},
    "a list in the prompt": {"prompt": "Copy it.\n- `a` (input)\n- `y` (output)\n"},
    "the harness": {},
}


@pytest.mark.parametrize("known_by", EVIDENCE)
@pytest.mark.parametrize("place", WITHOUT_OUTPUT)
def test_an_output_that_is_no_output_port_is_not_paid(grader, place, known_by):
    verdict = graded(grader, weak_problem(**EVIDENCE[known_by]), WITHOUT_OUTPUT[place])
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH, verdict.reasons
    assert "`y`" in verdict.reasons[0]


@pytest.mark.parametrize("known_by", EVIDENCE)
def test_the_right_answer_is_paid_whatever_the_interface_is_known_by(grader, known_by):
    verdict = graded(grader, weak_problem(**EVIDENCE[known_by]), FIXED)
    assert verdict.passed, verdict.reasons


INNER = TEST.replace(
    "        assert", "        assert int(dut.seen.value) == value % 2**SIZE\n        assert"
)
SEEN = (
    "module m(input [7:0] a, output [7:0] y); wire [7:0] seen = a; assign y = seen; endmodule\n"
)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"test": INNER}, SEEN),
        ({"prompt": "A bidirectional buffer copies a to y."}, WITHOUT_OUTPUT["an inout"]),
        ({"golden": FIXED.replace("y)", "y, output parity)")}, FIXED),
        ({"prompt": HEADER.replace("input [7:0] a", "input [7:0] data")}, FIXED),
        ({"prompt": HEADER.replace("y)", "y, output done)").replace("a,", "b,")}, FIXED),
    ],
    ids=[
        "the harness reads an inner object too",
        "the documents tell of both directions",
        "an output of the golden answer that nobody names",
        "the header contradicts the harness",
        "an output of such a header",
    ],
)
def test_what_is_not_certain_does_not_fail_an_answer(grader, given, text):
    verdict = graded(grader, weak_problem(**given), text)
    assert verdict.passed, verdict.reasons


def test_a_wrong_answer_is_blamed_although_it_lacks_a_port_that_nobody_names(grader):
    golden = FIXED.replace(
        "output [7:0] y);", "output [7:0] y, output odd); assign odd = a[0];"
    )
    problem = weak_problem(golden, prompt="Copy a to y.")
    assert graded(grader, problem, FIXED).passed
    assert (
        graded(grader, problem, FIXED.replace("= a", "= ~a")).outcome
        is Outcome.INTERFACE_MISMATCH
    )


def test_an_answer_of_inputs_alone_is_not_paid_if_no_name_of_an_output_is_known(grader):
    test = TEST.replace("dut.y", 'getattr(dut, "".join("y"))')
    assert not graded(grader, weak_problem(test=test), WITHOUT_OUTPUT["a wire"]).passed
    assert graded(grader, weak_problem(test=test), FIXED).passed


# Widths

NARROW = {
    "one bit": RIGHT.replace("[SIZE-1:0] a", "a").replace("[SIZE-1:0] y", "y"),
    "fixed": RIGHT.replace("SIZE-1", "7"),
    "half": RIGHT.replace("SIZE-1", "SIZE/2-1"),
}


@pytest.mark.parametrize("text", NARROW)
@pytest.mark.parametrize(
    "given",
    [{}, {"golden": RIGHT}, {"prompt": f"```verilog\n{RIGHT.partition(' assign')[0]}\n```"}],
    ids=["a variable of the harness", "the golden answer", "a header in the prompt"],
)
def test_a_port_that_ignores_the_parameter_of_its_width_is_not_paid(grader, given, text):
    problem = weak_problem(settings='{"SIZE": 16}', **given)
    verdict = graded(grader, problem, NARROW[text])
    assert verdict.outcome is Outcome.INTERFACE_MISMATCH, verdict.reasons
    assert ("a", "16 bits") in {
        (m.name, m.expected) for m in verdict.mismatches if m.kind is MismatchKind.WRONG_WIDTH
    }
    assert graded(grader, problem, RIGHT.replace("= 8", "= 5")).passed


def test_a_port_is_measured_in_a_build_without_parameters_too(grader):
    problem = weak_problem(golden=FIXED)
    assert (
        graded(grader, problem, FIXED.replace("[7:0]", "")).reasons[0]
        == "wrong width `a`: expected 8 bits, got 1 bit"
    )
    assert graded(grader, problem, FIXED.replace("[7:0]", "[15:0]")).passed


# Types

PACKAGE = {
    "rtl/p.sv": "package p; typedef struct packed {logic v; logic [7:0] addr;} req_t; endpackage\n"
}
BUS = {
    "rtl/bus.sv": "interface bus; logic d, q; modport slave(input d, output q); modport master(output d, input q); endinterface\n"
}
STRUCT = "struct packed{logic v;logic[7:0] addr;}"


@pytest.mark.parametrize(
    ("declared", "form", "context"),
    [
        ("input logic [3:0][7:0] x", "vector", {}),
        ("input logic [7:0] x [0:3]", "array [0:3]", {}),
        ("input logic [7:0] x [4]", "array [0:3]", {}),
        ("input logic [7:0] x [3:0]", "array [3:0]", {}),
        ("input int x", "vector", {}),
        ("output int x", "signed vector", {}),
        ("output logic [7:0] x", "vector", {}),
        ("input real x", "real", {}),
        ("input p::req_t x", STRUCT, PACKAGE),
        ("input struct packed {logic v; logic [7:0] addr;} x", STRUCT, {}),
        ("bus.slave x", "bus.slave", BUS),
        ("bus x", "bus.", BUS),
        ("input missing::t x", None, {}),
    ],
)
def test_the_form_of_a_port_is_what_connects_differently(declared, form, context):
    read = parse_interface(
        {**context, "m.sv": f"module m({declared}); endmodule\n"}, "m", InterfaceSource.GOLDEN
    )
    assert [port.form for port in read.ports] == [form]


ARRAY = "module m(input [7:0] a [0:1], output [7:0] y); assign y = a[0]; endmodule\n"
TYPED = "module m #(parameter type T = logic [7:0])(input T a, output T y); assign y = a; endmodule\n"


@pytest.mark.parametrize(
    ("golden", "text", "is_right"),
    [
        (ARRAY, ARRAY.replace("[0:1]", "[2]"), True),
        (ARRAY, ARRAY.replace("[0:1]", "[1:0]"), False),
        (ARRAY, FIXED.replace("[7:0] a", "[15:0] a"), False),
        (FIXED, FIXED.replace("input [7:0] a", "input byte unsigned a"), True),
        (TYPED, TYPED.replace("logic [7:0])", "byte unsigned)"), True),
        (TYPED, FIXED.replace("m(", "m #(parameter T = 8)("), False),
        (RIGHT, FIXED.replace("m(", "m #(parameter type SIZE = byte)("), False),
    ],
    ids=[
        "equal",
        "another order",
        "a vector",
        "a byte",
        "a type",
        "a value for a type",
        "a type for a value",
    ],
)
def test_another_type_of_a_port_or_parameter_is_a_difference(grader, golden, text, is_right):
    problem = weak_problem(golden, prompt="Copy a to y. Parameters: T, SIZE.")
    stage = grader.grade(problem, Answer(files={"rtl/m.sv": text}), Stage.INTERFACE).stage(
        Stage.INTERFACE
    )
    assert (stage.status == "passed") is is_right, stage.reasons
    assert is_right or any(reason.startswith("wrong type") for reason in stage.reasons)


STRUCTURED = "module m(input struct packed {logic [3:0] h, l;} a, output [7:0] y); assign y = {a.h, a.l}; endmodule\n"


@pytest.mark.parametrize(
    ("text", "paid"),
    [
        (STRUCTURED.replace("logic [3:0] h, l;", "logic [3:0] h; logic [3:0] l;"), True),
        (FIXED, False),
    ],
)
def test_a_vector_for_a_struct_is_not_paid(grader, text, paid):
    verdict = graded(grader, weak_problem(STRUCTURED), text)
    assert verdict.passed is paid, verdict.reasons


@pytest.mark.parametrize(
    ("kind", "paid"), [("struct packed", True), ("struct packed signed", False)]
)
def test_a_packed_struct_is_a_vector_of_its_width_unless_it_is_signed(grader, kind, paid):
    text = f"package p; typedef {kind} {{logic [3:0] h; logic [3:0] l;}} t; endpackage\n{FIXED}"
    text = text.replace("m(", "m import p::*; (").replace("output [7:0]", "output t")
    assert graded(grader, weak_problem(FIXED), text).passed is paid


@pytest.mark.parametrize(
    ("golden", "answer", "prompt", "paid"),
    [
        ("output", "output signed", "Copy a to y.", False),
        ("output signed", "output", "Copy a to y.", True),
        ("output signed", "output signed", "Copy a to y.", True),
        ("output", "output signed", "Copy a to y, in two's complement.", True),
        ("output", "output signed", "Copy the signed a to y.", True),
    ],
)
def test_a_signed_output_needs_a_reason(grader, golden, answer, prompt, paid):
    problem = weak_problem(FIXED.replace("output", golden), prompt=prompt)
    assert graded(grader, problem, FIXED.replace("output", answer)).passed is paid
    assert graded(
        grader, problem, FIXED.replace("output", golden).replace("input", "input signed")
    ).passed


HELD = (
    "module m(input [7:0] a, DECLARED, output reg [7:0] y); always @* READ y = a; endmodule\n"
)


@pytest.mark.parametrize(
    ("declared", "read", "paid"),
    [
        ("input hold", "if (hold !== 1'b1)", False),
        ("input tri1 other, input hold", "if (hold !== 1'b1)", False),
        ("input hold", "if (unused !== 1'b1) y = a; wire unused = hold; always @*", False),
        ("input hold", "if (unused !== 1'b1) y = a; wire \\unused = hold; always @*", False),
        ("input hold", "/* hold */", True),
        ("input hold", "; wire _unused_ok = &{1'b0, hold}; always @*", True),
        ("input tri0 hold", "if (!hold)", True),
        ("input tri0 first, hold", "if (!hold)", True),
        ("input hold", ";\npulldown (hold);\nalways @* if (!hold)", True),
    ],
    ids=[
        "read",
        "read beside a pulled one",
        "read as unused",
        "read as unused by another name",
        "not read",
        "shown to a linter",
        "pulled",
        "pulled in a list",
        "pulled in the body",
    ],
)
def test_an_input_that_nobody_connects_may_not_be_read_unless_it_is_pulled(
    grader, declared, read, paid
):
    text = HELD.replace("DECLARED", declared).replace("READ", read)
    verdict = graded(grader, weak_problem(FIXED), text)
    assert verdict.passed is paid, verdict.reasons


def test_methods_of_a_class_around_the_design_are_no_ports(grader):
    """The starter set's harnesses use the design through an object of their own; without a golden answer they tell no ports."""
    known = starter_problems("train", 1, seed=0)[0]
    problem = read_problem(prompt="As specified.", targets=known.targets, harness=known.harness)
    assert problem.interface.source is InterfaceSource.HARNESS
    assert grader.grade(problem, Answer(files=known.golden)).passed
