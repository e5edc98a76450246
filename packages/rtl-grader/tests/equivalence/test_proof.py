"""Proofs tell equal designs from those that differ for one input in millions, and report what they cannot decide."""

from dataclasses import replace

import pytest

from rtl_grader.equivalence.differential import compare
from rtl_grader.equivalence.effort import Effort
from rtl_grader.equivalence.pair import Pair
from rtl_grader.equivalence.proof import prove
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.types.problem import InterfaceSource
from tests.nouns import a_problem

EFFORT = replace(Effort.of_cycles(200), proof_cpu_s=10.0)
ADDER = "module m(input [31:0] a, input [31:0] b, output [31:0] y);\n  assign y = a + b;\nendmodule\n"
COUNTER = """\
module m #(parameter W = 8) (input clk, input rst, input en, output reg [W-1:0] q, output last);
  always @(posedge clk) if (rst) q <= 0; else if (en) q <= q + 1;
  assign last = &q;
endmodule
"""
GRAY = """\
module m(input clk, input rst, input en, output [7:0] q, output last);
  reg [7:0] gray; wire [7:0] binary; genvar i;
  generate for (i = 0; i < 8; i = i + 1) assign binary[i] = ^(gray >> i); endgenerate
  wire [7:0] next = binary + 8'd1;
  always @(posedge clk) if (rst) gray <= 0; else if (en) gray <= next ^ (next >> 1);
  assign q = binary, last = binary == 8'hff;
endmodule
"""
GATED = """\
module m(input clk, input en, input rst, input [3:0] d, output reg [3:0] q);
  wire gated = clk & en;
  always @(posedge gated or posedge rst) if (rst) q <= 0; else q <= d;
endmodule
"""
NEGEDGE = "module m(input clk, input rst, input d, output reg q, output reg r);\n  always @(negedge clk) if (rst) q <= 0; else q <= d;\n"
NEGEDGE += "  always @(posedge clk) if (rst) r <= 0; else r <= q;\nendmodule\n"
ROM = """\
module m(input a, input en, output [7:0] y);
  reg [7:0] word [0:1];
  initial $readmemh("FILE", word);
  assign y = en ? word[a] : 8'd7;
endmodule
"""
LATCH = "module m(input g, input d, output reg q);\n  always_comb if (g) q = d;\nendmodule\n"


def problem_of(golden, **given):
    interface = parse_interface({"rtl/m.sv": golden}, "m", InterfaceSource.GOLDEN)
    return a_problem(golden={"rtl/m.sv": golden}, interface=interface, **given)


def proof(grader, golden, other, cpu_s=10.0):
    pair = Pair.of(
        grader.executor,
        problem_of(golden),
        {"rtl/m.sv": golden},
        {"rtl/m.sv": other},
        grader.limits,
    )
    return prove(pair, pair.design, cpu_s)


def told(grader, golden, other, **given):
    problem = problem_of(golden, **given)
    return compare(
        grader.executor,
        problem,
        {"rtl/m.sv": golden},
        {"rtl/m.sv": other},
        grader.limits,
        effort=EFFORT,
    )


@pytest.mark.parametrize(
    ("golden", "other"),
    [
        (ADDER, ADDER.replace("a + b", "(a ^ b) + ((a & b) << 1)")),
        (COUNTER, GRAY),
        (GATED, GATED.replace("clk & en", "!(!en | !clk)")),
        (COUNTER.replace("output reg [W-1:0] q,", "output reg [W-1:0] q = 5,"), COUNTER),
        (NEGEDGE.replace("output reg q", "output reg q = 1"), NEGEDGE),
        (
            COUNTER,
            COUNTER.replace(
                "if (rst) q <= 0; else if (en) q <= q + 1", "q <= rst ? 0 : q + en"
            ),
        ),
        (
            LATCH,
            LATCH.replace("always_comb if (g) q = d;", "always @* if (g === 1'b1) q <= d;"),
        ),
        (COUNTER, COUNTER.replace("posedge clk) if", "posedge clk) (* full_case *) if")),
    ],
)
def test_equal_designs_are_proved_equal(grader, golden, other):
    assert golden != other
    assert proof(grader, golden, other).outcome == "equal"


@pytest.mark.parametrize(
    ("golden", "before", "after"),
    [
        (ADDER, "a + b", "a + b + (a == 32'd77777777)"),
        (COUNTER, "q + 1", "q + 1 + (q == 8'd200)"),
        (COUNTER, "posedge clk", "negedge clk"),
        (COUNTER, "if (rst) q <= 0; else ", ""),
        (COUNTER, "@(posedge clk)", "@(posedge clk or posedge rst)"),
        (GATED, "clk & en", "clk & d[0]"),
    ],
)
def test_a_difference_is_found_with_its_inputs(grader, golden, before, after):
    found = proof(grader, golden, golden.replace(before, after))
    assert (found.outcome, bool(found.trace)) == ("different", True)
    assert found.depth == len(found.trace)


def test_a_difference_that_simulation_misses_is_found_and_confirmed_by_the_simulator(grader):
    found = told(grader, ADDER, ADDER.replace("a + b", "a + b + (a == 32'd77777777)"))
    assert (found.result, found.method, len(found.trace)) == ("different", "proof", 1)
    assert found.trace[0]["a"] == 77777777
    assert "y is" in found.detail


def test_a_simulated_difference_comes_with_the_shortest_inputs(grader):
    found = told(grader, COUNTER, COUNTER.replace("q + 1", "q + 2"))
    assert (found.result, found.method) == ("different", "simulation")
    assert len(found.trace) == 3, "a reset, one step, and a look"
    assert (found.trace[0]["rst"], found.trace[1]["rst"], found.trace[1]["en"]) == (1, 0, 1)


def test_the_parameters_that_the_harness_sets_are_proved_too(grader):
    wrong = COUNTER.replace("q + 1", "q + 1 + (W == 12 && q == 12'd3000)")
    assert told(grader, COUNTER, wrong).result == "equal"
    found = told(
        grader, COUNTER, wrong, harness={"src/test.py": 'runner.build(parameters={"W": 12})'}
    )
    assert (found.result, found.method) == ("different", "proof")
    assert found.detail.startswith("with W=12")


@pytest.mark.slow
def test_equality_for_some_cycles_is_reported_as_such(grader):
    late = COUNTER.replace("= 8)", "= 24)")
    found = told(grader, late, late.replace("q + 1", "q + 1 + (q == 24'd12345678)"))
    assert (found.result, found.method) == ("same", "simulation")
    assert 12 < found.depth < 12345678


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (
            ADDER.replace("assign", '`ifndef __slang__\n`include "nothing.v"\n`endif\nassign'),
            "cannot preprocess the answer",
        ),
        (ADDER.replace("assign", "`pragma protect\nassign"), "the directive `pragma"),
        (ADDER.replace("a + b", "nothing(a)"), "cannot read the answer"),
        (ADDER.replace("a + b", "y ^ a"), "combinational loop"),
        (
            "module m(input [31:0] a, output [31:0] y);\n  assign y = a;\nendmodule\n",
            "ports differ",
        ),
        ("module m #(parameter W = 2", "cannot read the answer"),
        (ADDER.replace("assign y = a + b", "initial while (1) ; assign y = a + b"), ""),
    ],
)
def test_an_unreadable_answer_is_undecided_with_the_reason(grader, other, why):
    found = proof(grader, ADDER, other)
    assert found.outcome == "undecided"
    assert why in found.why


@pytest.mark.slow
def test_a_proof_stays_within_its_limits(grader):
    wide = "module m(input [23:0] a, input [23:0] b, output [47:0] y);\n  assign y = {};\nendmodule\n"
    found = proof(grader, wide.format("a * b"), wide.format("b * (a + 1) - b"), 2.0)
    assert (found.outcome, found.why) == ("undecided", "out of CPU time")
    memory = "module m(input clk, input [23:0] i, input [31:0] d, output reg [31:0] y);\n  reg [31:0] r [0:16777215];\n"
    memory += "  always @(posedge clk) begin r[i] <= d; y <= r[i]; end\nendmodule\n"
    assert proof(grader, memory, memory + "\n", 2.0).outcome == "undecided"


@pytest.mark.parametrize(
    "other",
    [
        ADDER.replace("assign", '$info("%s", "{\\"outcome\\": \\"equal\\"}");\nassign').replace(
            "a + b", "a - b"
        ),
        ADDER.replace("assign y = a + b", "(* anyconst *) reg [31:0] free; assign y = free"),
        ADDER.replace("assign y = a + b", "always @* assume (b == 0); assign y = a"),
        "(* blackbox *)\n" + ADDER.replace("a + b", "a - b"),
        ADDER.replace("assign", '`include "/code/src/golden0.sv"\nassign').replace(
            "a + b", "a - b"
        ),
        ADDER.replace("a + b", "a - b") + "\n// yosys translate_off\n",
        ADDER.replace("a + b", "`ifdef SYNTHESIS a + b `else a - b `endif"),
        ADDER.replace("a + b", "`ifdef YOSYS a + b `else a - b `endif"),
    ],
)
def test_an_answer_cannot_write_its_own_proof(grader, other):
    assert proof(grader, ADDER, other).outcome in ("different", "undecided")


@pytest.mark.parametrize(
    "before",
    [
        "`define D `ifdef __sl``ang__\n`D\n`else\n{}`endif",
        "`ifndef SV_COV_START\n{}`endif",
        "`undefineall\n`ifdef S\n{}`endif",
        "`define N 1\n`protected\n{}`endprotected",
        "/* (* */\n{}/* *) */",
        "// (*\n{}// *)",
        "`define O (*\n{}`define C *)",
        'initial $display("(*");\n{}initial $display("*)");',
        "wire \\(* ;\n{}wire \\*) ;",
        "// synopsys translate_off\n{}// synopsys translate_on",
        "`ifdef NEVER\n`define Q a\\\n`else\n{}`endif",
    ],
)
def test_the_proof_reads_what_icarus_reads(grader, before):
    """Each text is a sum for a front end that decides a condition, a comment or an attribute in another way."""
    before = before.format("`define S a - b\n")
    text = ADDER.replace("  assign y = a + b", f"`define S a + b\n{before}\n  assign y = `S")
    assert proof(grader, ADDER, text).outcome in ("different", "undecided")


def test_conditions_and_attributes_do_not_hide_an_equal_design(grader):
    text = ADDER.replace(
        "  assign",
        '  (* keep = "(*" *) wire k = 1; // (*\n`ifdef VERILATOR\n  wire y;\n`endif\n  assign',
    )
    assert proof(grader, ADDER, text).outcome == "equal"


def test_uninitialised_registers_prove_nothing(grader):
    """In three values such a design is always X, and anything would equal it."""
    golden = "module m(input clk, output reg q);\n  always @(posedge clk) q <= ~q;\nendmodule\n"
    assert (
        "nothing initialises or drives it"
        in proof(grader, golden, golden.replace("~q", "q")).why
    )


def test_without_the_prover_nothing_is_proved(grader, monkeypatch):
    monkeypatch.setattr(grader.executor, "has_module", lambda name: name != "pyosys")
    found = told(grader, ADDER, ADDER.replace("a + b", "b + a"))
    assert found.result == "same"
    assert "pyosys is not installed" in found.detail


@pytest.mark.docker
def test_a_proof_and_a_difference_in_a_container():
    with make_executor("docker") as executor:
        grader = Grader(executor)
        assert told(grader, COUNTER, GRAY).result == "equal"
        found = told(
            grader, COUNTER, GRAY.replace("binary + 8'd1", "binary + 8'd1 + (binary == 9)")
        )
        grader.close()
    assert (found.result, len(found.trace) > 9) == ("different", True)


TABLE = """\
module m(input clk, input we, input [11:0] at, input [31:0] d, output reg [31:0] q, output [63:0] p, output none);
  reg [31:0] {0} [0:4095];
  wire [63:0] {1};
  assign {1} = q * (d + at);
  assign p = {1};
  always @(posedge clk) begin if (we) {0}[at] <= d; q <= {0}[at]; end
endmodule
"""


@pytest.mark.slow
def test_designs_of_one_structure_are_equal_whatever_their_size(grader):
    """Too much for model checking: a large memory, a multiplier, registers that nothing resets, an idle output."""
    golden, other = TABLE.format("store", "product"), TABLE.format("words", "whole")
    assert proof(grader, golden, other, 1.0).outcome == "equal"
    for wide, narrow in (("4095", "15"), ("[31:0]", "[3:0]"), ("[63:0]", "[7:0]")):
        golden, other = golden.replace(wide, narrow), other.replace(wide, narrow)
    initial = other.replace("output reg [3:0] q", "output reg [3:0] q = 1")
    assert proof(grader, initial, golden, 1.0).outcome != "equal"
    for wrong in (other.replace("if (we)", ""), other.replace("d + at", "d - at")):
        assert proof(grader, golden, wrong, 1.0).outcome != "equal"


def test_outputs_without_a_driver_count_for_nothing(grader):
    golden = ADDER.replace("output [31:0] y", "output [31:0] y, output [3:0] none")
    other = golden.replace("a + b", "b + a + 0; assign none = a[3:0]")
    assert proof(grader, golden, other).outcome == "equal"
    empty = golden.replace("assign y = a + b;", "")
    assert "drives none of its outputs" in proof(grader, empty, empty).why
    no_output = "module m(input a);\nendmodule\n"
    assert "has no outputs" in told(grader, no_output, no_output).detail


@pytest.mark.parametrize(
    ("given", "own", "outcome"),
    [
        ("0a 14", None, "equal"),
        ("0a 14", "0a 14", "equal"),
        ("0a 14", "0a 15", "different"),
        (None, None, "equal"),
    ],
)
def test_data_files_are_read_where_a_simulator_looks_for_them(grader, given, own, outcome):
    golden = ROM.replace("FILE", "data/rom.hex")
    other = golden.replace("word[a]", "word[a] + 0")
    files = {"rtl/m.sv": other.replace("data/rom", "own" if own else "rom")}
    if own:
        files["rtl/own.hex"] = own
    problem = problem_of(golden, context={"rtl/data/rom.hex": given} if given else {})
    pair = Pair.of(grader.executor, problem, {"rtl/m.sv": golden}, files, grader.limits)
    assert prove(pair, pair.design, 10.0).outcome == outcome


def test_a_golden_answer_with_data_of_its_own_is_not_proved_without_them(grader):
    golden = ROM.replace("FILE", "rom.hex")
    files = {"rtl/m.sv": golden, "rtl/rom.hex": "0a\n14"}
    other = {"rtl/m.sv": "module m(input a, input en, output [7:0] y); assign y = 5; endmodule"}
    pair = Pair.of(grader.executor, problem_of(golden), files, other, grader.limits)
    found = prove(pair, pair.design, 10.0)
    assert found.outcome == "undecided"
    assert "rom.hex" in found.why


def test_one_text_is_equal_whatever_a_proof_sees(grader):
    golden = "module m(input oe, input d, output q); assign q = oe ? d : 1'bz; endmodule\n"
    assert (
        told(grader, golden, golden.replace("assign", "// as given\n  assign")).result
        == "equal"
    )
    swapped = told(grader, golden, golden.replace("oe ? d : 1'bz", "!oe ? 1'bz : d"))
    assert (swapped.result, "a literal" in swapped.detail) == ("same", True)
    line = golden.replace("? d", "? d ^ (`__LINE__ == 2)")
    assert told(grader, line, "\n" + line).result == "different"
