"""What a proof does not see is named, and nothing else is."""

import json
import time
from dataclasses import replace

import pytest

from rtl_core.starter import starter_problems
from rtl_grader.equivalence.differential import compare
from rtl_grader.equivalence.effort import Effort
from rtl_grader.hdl.directives import differences
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.problems.harness_use import macro_file
from rtl_grader.traces.unseen import unseen
from rtl_grader.types.problem import InterfaceSource
from rtl_grader.validation.doubts import EFFORT, DesignCache, audit_passes
from tests.equivalence.test_proof import problem_of
from tests.nouns import a_problem

FRAME = "module m(input [7:0] a, input [7:0] b, input clk, output [7:0] y);\n{}\nendmodule\n"
COPY = FRAME.format("assign y = a;")
QUICK = replace(Effort.of_cycles(400, 2, 5.0), proof_first=True)
RARE = "(a == 8'h5a && b == 8'hc3)"
SEEN = [
    "reg [7:0] q; always @(posedge clk) q <= #1 a; assign y = q;",
    "parameter TCQ = 1; reg [7:0] q; always @(posedge clk) q <= #(TCQ) a; assign y = q;",
    "reg [7:0] q; always @(a or b[0]) q = a + b[0]; assign y = q;",
    "reg [7:0] q; always @(a, b) begin : add integer i; for (i = 0; i < 8; i = i + 1) q[i] = a[i] ^ b[i]; end assign y = q;",
    "reg [7:0] q, t; always @* begin t = a; q = t + b; end assign y = q;",
    "reg [7:0] q; logic [$bits(q[3:0]) - 1:0] t = 0; always @(posedge clk) q <= a; assign y = q;",
    "reg [7:0] q; always @(posedge clk) q <= a; assign y = q;\nalways @(posedge clk) $display(\"%t: %h\", $time, b);",
    "reg [7:0] q; always @(posedge clk) begin q = a; q = q + b; end assign y = q;",
    "reg [7:0] r [0:3]; integer i; initial for (i = 0; i < 4; i = i + 1) r[i] = i; assign y = r[a[1:0]];",
    "reg [7:0] q, r; integer i; always @(posedge clk) for (i = 0; i < 8; i = i + 1) q[i] <= a[i];\n"
    "always @(posedge clk) for (i = 0; i < 8; i = i + 1) r[i] <= q[i]; assign y = r;",
    "reg c; reg [7:0] s; always @(a or b) begin {c, s} = a + b; end assign y = s;",
    "reg c; reg [7:0] s; always @(a or b) {c, s} <= a + b; assign y = s;",
    "wire [7:0] t; sub #(.W(100)) u (.p(a), .q(t)); assign y = t;\nendmodule\nmodule sub #(parameter W = 8) (input [7:0] p, output [7:0] q);\nassign q = p;",
    "struct packed {logic [3:0] hi, lo;} s; assign s = a; assign y = s.hi + s.lo;",
    "function [7:0] f(input [7:0] a); reg [7:0] t; begin t = a; f = t; end endfunction\nreg [7:0] q; always @* q = f(b); assign y = q;",
    "localparam IDLE = 1; reg [7:0] q; always @(a) case (a) IDLE: q = 3; default: q = 4; endcase assign y = q;",
    "reg [7:0] q; always @* casez (a) 8'b???????1: q = b; 8'b????????: q = a; endcase assign y = q;",
    "reg [7:0] q; always @* case (a[1:0]) 2'd0: q = b; default: q = 8'bx; endcase assign y = q;",
    "`define W 8\n`ifdef SYNTHESIS\nwire [`W-1:0] t = a;\n`else\nwire [`W-1:0] t = a;\n`endif\nassign y = t; initial $display(\"a: %d // b\", a);",
    "reg [7:0] q; always @* casez (a) 8'bzzzzzzz1: q = 1; 8'b??????10: q = 2; default: q = 8'bx; endcase assign y = q;",
    "reg [7:0] n; integer i; always @* begin n = 0; for (i = 0; i < 8; i = i + 1) n = n + a[i]; end assign y = n;",
    "timeunit 1ns; timeprecision 1ps;\nassign y = a;",
    "if (1) begin : part\nwire [7:0] q = a; end\nassign y = part.q;",
    "reg [7:0] q; always @* begin assert (a < b) else $error(\"not less\"); q = a; end assign y = q;",
    "reg [7:0] q; always @* begin : sum integer i; reg [7:0] t; t = a; for (i = 0; i < 3; i = i + 1) t = t + b; q = t; end assign y = q;",
    "function [7:0] f(input [7:0] x); integer i; begin for (i = 0; i < 3; i = i + 1) x = x >> 1; f = x; end endfunction assign y = f(a);",
    "reg [7:0] q; always_comb begin q = 0; for (int i = 0; i < 8; i++) if (a[i] && b[i]) q++; end assign y = q;",
    "reg [7:0] q; function void set(input [7:0] x); q = x; endfunction always @(a) set(a); assign y = q;",
    "sub #(3) u(a, y);\nendmodule\nmodule sub #(parameter W = 8) (input [7:0] p, output [7:0] q);\nassign q = p;",
    "reg [7:0] q; always @(negedge clk) q <= a; reg r = 0; always @(posedge clk) r <= ~r; assign y = r ? q : b;",
]  # fmt: skip
UNSEEN = [
    ("assign y = RARE ? tb.q : a; // begin : tb", "a name from outside,"),
    ("wire [7:0] h; assign #1000000 h = a; assign y = RARE ? h : a;", "a delay of"),
    ("wire #5 t; assign t = a[0]; assign y = {a[7:1], t};", "a delay of"),
    ("reg [7:0] q; always @(posedge clk) q <= #1000000 a; assign y = q;", "a delay of"),
    ("parameter D = 2000; reg [7:0] q; always @(posedge clk) q <= #D a; assign y = q;", "a delay of"),
    ("reg [7:0] q; always @(posedge clk) q <= #(1 + 999 * RARE) a; assign y = q;", "a delay of"),
    ("and #3 g(y[0], a[0], b[0]); assign y[7:1] = 0;", "a delay of"),
    ("`timescale 1us/1ns\nreg [7:0] q; always @(posedge clk) q <= #1 a; assign y = q;", "a delay of"),
    ("reg [7:0] h; always @(b[0]) h = a; assign y = RARE ? h : a;", "a sensitivity list without"),
    ("reg [7:0] h; always @(a) h = a & b; assign y = h;", "a sensitivity list without"),
    ("sub i (a); reg [7:0] h; always @(b[0]) h = i.p; assign y = h;\nendmodule\nmodule sub(input [7:0] p);", "a sensitivity list without"),
    ("if (1) begin : g wire [7:0] p = a; end\nreg [7:0] h; always @(b[0]) h = g.p; assign y = h;", "a sensitivity list without"),
    ("wire [7:0] \\p = a; reg [7:0] h; always @(b[0]) h = p; assign y = h;", "a sensitivity list without"),
    ("`define LIST (b[0])\nreg [7:0] h; always @`LIST h = a; assign y = h;", "a sensitivity list without"),
    ("parameter D = 1 + 999; reg [7:0] q; always @(posedge clk) q <= #D a; assign y = q;", "a delay of"),
    ("nmos #3 g(y[0], a[0], b[0]); assign y[7:1] = 0;", "a delay of"),
    ("function [7:0] f(input [7:0] p); f = p ^ b; endfunction\nreg [7:0] h; always @* h = f(a); assign y = h;", "a subroutine that reads"),
    ("reg [7:0] h; always @* h = 8'd3; assign y = RARE ? h : a;", "an empty sensitivity list"),
    ("reg [7:0] h, t; always @* begin h = t; t = a; end assign y = RARE ? h : a;", "a sensitivity list without"),
    ("reg [7:0] h; always @* h = ($time > 64'd5000000000) ? ~a : a; assign y = h;", "$time"),
    ("assign y = $realtime > 1e6 ? ~a : a;", "$realtime"),
    ("assign y = RARE ? $random : a;", "$random"),
    ("reg k = 0; initial begin #5000 k = 1; end assign y = k ? ~a : a;", "a delay of"),
    ("reg k = 0; initial begin wait (RARE) k = 1; end assign y = k ? ~a : a;", "wait"),
    ("reg k = 0; initial @(posedge clk) k = 1; assign y = k ? ~a : a;", "initial @"),
    ("reg [7:0] k; initial k = a; assign y = RARE ? k : a;", "an initial value of"),
    ("reg [7:0] k = a; assign y = RARE ? k : a;", "an initial value of"),
    ("reg [7:0] p = 0, q = 0; always @(posedge clk) p = a; always @(posedge clk) q = p; assign y = q;", "a race of"),
    ("reg [7:0] p = 0, q = 0; wire [7:0] n = p + 1; always @(posedge clk) p = a; always @(posedge clk) q <= n; assign y = q;", "a race of"),
    ("reg d = 0; reg [7:0] q; always @(posedge clk) d <= ~d; always @(posedge d) q <= a; assign y = q;", "a clock from the register"),
    ("reg [7:0] q; always @(posedge clk iff a[0]) q <= b; assign y = q;", "iff"),
    ("reg [7:0] q; always @(posedge clk) begin q <= a; @(negedge clk) q <= b; end assign y = q;", "; @"),
    ("wire t; pullup (t); assign y = RARE ? {8{t}} : a;", "pullup"),
    ("wire [7:0] t; assign (weak0, weak1) t = a; assign y = t;", "weak0"),
    ("assign y = RARE ? good.y : a;", "a name from outside,"),
    ("`define M `ifdef __sl``ang__\n`M\nassign y = a;\n`else\nassign y = RARE ? b : a;\n`endif", "the macro name RTL_NO_TOOL, which is pasted to another"),
    ("wire \\a\" ; assign y = a;", "an escaped name or a string that preprocessors read differently"),
    ("reg u; reg [7:0] q; always @* case (u) 1'bx: q = RARE ? ~a : a; default: q = a; endcase assign y = q;", "a literal"),
    ("reg u; reg [7:0] q; always @* case (u) 1'b1, 'z: q = ~a; default: q = a; endcase assign y = q;", "a literal"),
    ("reg u; reg [7:0] q; always @* casex (u) 1'b0: q = RARE ? ~a : a; default: q = a; endcase assign y = q;", "casex"),
    ("wire z = RARE ? 1'bx : 0; reg [7:0] q; always @* case (z) 1'bx: q = ~a; default: q = a; endcase assign y = q;", "a literal"),
    ("localparam X = {1'bx}; wire z = RARE ? 1'bx : 0; reg [7:0] q; always @* case (z) X: q = ~a; default: q = a; endcase assign y = q;", "a literal"),
    ("wire z = RARE ? 1'bx : 0; reg [7:0] q; always @* casez (z) 1'bx: q = ~a; default: q = a; endcase assign y = q;", "a literal"),
    ("wire z = RARE ? 1'bx : 0; assign y = z === (1'bx) ? ~a : a;", "a literal"),
    ("assign y = RARE ? 8'bz : a;", "a literal"),
    ("bufif0 t [7:0] (y, a, RARE);", "bufif0"),
    ("and_both u (y[0], a[0], b[0]);\nendmodule\nprimitive and_both(o, a, b); output o; input a, b; table 1 1 : 1; 0 ? : 0; ? 0 : 0; endtable endprimitive\nmodule other;", "primitive"),
    ("reg [7:0] n = 0; always @* n = n + RARE; assign y = a ^ n;", "a sensitivity list without"),
    ("reg k = 0; always @(posedge a[3]) if (RARE) k <= 1; assign y = k ? ~a : a;", "an edge of data,"),
    ("sub u (b[0], a, y);\nendmodule\nmodule sub(input c, input [7:0] p, output reg [7:0] q); always @(posedge c) q <= c ? p : 0;", "an edge of data,"),
    ("real r; always @* r = RARE ? 0.5 : 0.4; assign y = r > 0.45 ? ~a : a;", "real"),
    ("tri #(100000) t = a[0]; assign y = {a[7:1], t};", "a delay of"),
    ("wire logic #(100000) t = a[0]; assign y = {a[7:1], t};", "a delay of"),
    ("reg [7:0] q; always @* begin begin end #(100000) q = a; end assign y = q;", "a delay of"),
    ("reg [7:0] q; always @* fork : all #(100000) q = a; join assign y = q;", "a delay of"),
    ("reg [7:0] q; always @* case (a) default #(100000) q = a; endcase assign y = q;", "a delay of"),
    ("reg [7:0] q; always @(posedge clk) q = #1 a; assign y = q;", "a delay of"),
    ("default clocking c @(posedge clk); endclocking reg [7:0] q; always @(posedge clk) q <= ##3 a; assign y = q;", "a delay of"),
    ("reg [7:0] q; always @* begin q = a; assert (!RARE) else q = 0; end assign y = q;", "an action of an assertion,"),
    ("reg [7:0] q; always @* begin q = a; cover (RARE) q = 0; end assign y = q;", "an action of an assertion,"),
    ("reg [7:0] q; always @* begin q = a; assume (RARE) begin q = 0; end end assign y = q;", "an action of an assertion,"),
    ("reg [7:0] q; always @* q = a; assert property (@(posedge clk) !RARE) else q = 0; assign y = q;", "an action of an assertion,"),
    ("reg [7:0] q; always @* begin q = a; assert (q++ != 0); end assign y = q;", "an assignment within an expression,"),
    ("reg [7:0] q, t; always @* begin q = 1; t = RARE ? 0 : q--; end assign y = a + q;", "an assignment within an expression,"),
    ("reg [7:0] q; always @* begin q = 1; if (RARE || (q -= 1)) ; end assign y = a + q;", "an assignment within an expression,"),
    ("reg [7:0] q; always @* begin q = a; $info(\"%d\", q++); end assign y = q;", "an assignment within an expression,"),
    ("reg [7:0] q; function bit f(input [7:0] x); q = x; return 1; endfunction\nalways @* begin q = 0; if (RARE || f(a)) ; end assign y = q;", "a function that changes signals,"),
    ("reg [7:0] q; function automatic bit f(output [7:0] s, input [7:0] x); s = x; return 1; endfunction\nalways @* begin q = 0; if (RARE || f(q, a)) ; end assign y = q;", "a function that changes signals,"),
    ("reg [7:0] q; always @* begin : late reg [7:0] t; q = t; t = a; end assign y = q;", "a variable that keeps its value,"),
    ("function [7:0] f(input [7:0] x); reg [7:0] t; begin f = t; t = x; end endfunction assign y = f(a);", "a variable that keeps its value,"),
    ("reg [7:0] q; task f(output [7:0] s, input [7:0] x); reg [7:0] t; begin s = t; t = x; end endtask always @* f(q, a); assign y = q;", "a variable that keeps its value,"),
    ("localparam real U = 1ns; assign y = U > 2.0 ? ~a : a;", "1ns"),
]  # fmt: skip


@pytest.mark.parametrize("body", SEEN)
def test_usual_text_is_seen(body):
    assert unseen(FRAME.format(body)) == {}


@pytest.mark.parametrize(("body", "kind"), UNSEEN)
def test_what_a_proof_does_not_see_is_named(body, kind):
    assert kind in unseen(FRAME.format(body.replace("RARE", RARE)))


def test_an_attribute_that_never_ends_takes_no_time():
    text = FRAME.format("assign y = a;\n`ifdef NEVER\n" + "(* " * 300_000 + "\n`endif")
    started = time.process_time()
    list(differences(text, ()))
    assert time.process_time() - started < 60


def test_no_starter_golden_answer_has_any():
    assert [
        p.id for p in starter_problems("heldout", 40, 0) if any(map(unseen, p.golden.values()))
    ] == []


def audited(grader, golden, other, effort=QUICK, **given):
    files = {"rtl/m.sv": golden}
    (found,) = audit_passes(
        grader,
        problem_of(golden, **given),
        [{**files, "rtl/m.sv": other}],
        effort,
        DesignCache(),
        False,
    )
    return found


@pytest.mark.parametrize("body", [
    "reg [7:0] h; always @(b[0]) h = a; assign y = RARE ? h : a;",
    "wire [7:0] h; assign #1000000 h = a; assign y = RARE ? h : a;",
    "reg [7:0] h; always @* h = ($time > 64'd5000000000) ? ~a : a; assign y = h;",
    "reg [7:0] k; initial k = a; assign y = RARE ? k : a;",
    "assign y = a; assign y = RARE ? ~a : a;",
    "reg u; assign y = (RARE && u === 1'bx) ? ~a : a;",
    "wire z = RARE ? 1'bx : 0; reg [7:0] q; always @* case (z) 1'bx: q = ~a; default: q = a; endcase assign y = q;",
    "reg [7:0] q; always @* if (!RARE) q = a; assign y = q;",
    "assign y = a / !RARE;",
    "reg k = 0; always @(posedge a[3]) if (RARE) k <= 1; assign y = k ? ~a : a;",
    "reg [7:0] t; always @* t = a; always @(b) if (RARE) t = ~a; assign y = t;",
    "wire t; assign t = RARE & ~t; assign y = t ? ~a : a;",
    "wire u; reg [7:0] q; always @* casez (u) 1'b0: q = RARE ? ~a : a; default: q = a; endcase assign y = q;",
    "parameter N = 8; generate if (N == 8) begin : t assign y = a; end else assign y = good.y; endgenerate",
])  # fmt: skip
@pytest.mark.parametrize("first", [False, True])
def test_a_design_that_a_simulator_would_refute_is_not_called_equal(grader, body, first):
    other = FRAME.format(body.replace("RARE", RARE))
    found = audited(grader, COPY, other, replace(QUICK, proof_first=first, exhaustive_bits=0))
    assert found.result in ("unknown", "different"), found


def test_what_only_a_simulator_knows_of_an_x_is_not_proved(grader):
    """In three values `t` stays X; in a simulator an `if` of X takes its other branch."""
    other = "reg u, t; always @(posedge clk) if (u) t <= 1; else t <= 0; assign y = (RARE && t === 1'b0) ? ~a : a;"
    assert audited(grader, COPY, FRAME.format(other.replace("RARE", RARE))).result != "equal"


@pytest.mark.parametrize(
    "assignment", ["q <= #1 a;", "q <= #5 a;", "q <= #(TCQ) a;", "q <= #0.5 a;", "q <= #(1) a;"]
)
@pytest.mark.parametrize("first", [False, True])
def test_usual_delays_of_registers_are_equal_in_every_effort(grader, assignment, first):
    golden = FRAME.format("reg [7:0] q; always @(posedge clk) q <= a; assign y = q;")
    other = FRAME.format(
        f"parameter TCQ = 2; reg [7:0] q; always @(posedge clk) {assignment} assign y = q;"
    )
    assert audited(grader, golden, other, replace(QUICK, proof_first=first)).agrees
    assert audited(
        grader, golden, other, replace(QUICK, proof_cpu_s=0.0, proof_first=False)
    ).agrees


def test_a_construct_of_both_is_named_and_the_simulation_counts(grader):
    golden = FRAME.format("assign #2 y = a;")
    found = audited(grader, golden, FRAME.format("wire [7:0] t = a; assign #2 y = t;"))
    assert (found.result, "the golden answer has a delay of 2" in found.detail) == (
        "same",
        True,
    )


@pytest.mark.parametrize(
    "body", ["assign y = a[0] ? b : 8'bz;", "assign y[3:0] = a[3:0];", "bufif1 g(y[0], a[0], b[0]); assign y[7:1] = a[7:1];"]
)  # fmt: skip
def test_outputs_that_nothing_drives_are_the_same_on_both_sides(grader, body):
    golden = FRAME.format(body)
    files = {"rtl/m.sv": golden}
    other = {"rtl/m.sv": golden.replace("endmodule", "wire unused; endmodule")}
    result = compare(grader.executor, problem_of(golden), files, other, grader.limits).result
    assert result == "same"
    assert audited(grader, golden, golden.replace("module m", "module  m")).result == "equal", (
        "an equal text is equal"
    )


def test_a_golden_answer_that_drives_nothing_is_compared_with_nothing(grader):
    found = audited(grader, FRAME.format(""), FRAME.format("assign y = a;"))
    assert (found.result, "drives nothing" in found.detail) == ("unknown", True)


def test_a_value_where_the_golden_answer_lets_go_of_an_output_is_a_difference(grader):
    found = audited(
        grader,
        FRAME.format("assign y = a[0] ? b : 8'bz;"),
        FRAME.format("assign y = a[0] ? b : 8'd0;"),
    )
    assert (found.result, "golden 8'bz" in found.detail) == ("different", True)


TABLE = "module m(input [4:0] a, output [2:0] y);\n  wire [2:0] t [0:31];\n{}  assign y = t[a];\nendmodule\n"


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("change", ["", "  assign t[9] = 5;\n"])
def test_an_x_for_one_of_all_inputs_is_a_difference(grader, first, change):
    rows = [f"  assign t[{i}] = {i % 7};\n" for i in range(32)]
    missing = TABLE.format("".join(rows[:8] + rows[9:]) + change)
    effort = replace(QUICK, proof_first=first)
    found = audited(grader, TABLE.format("".join(rows)), missing, effort)
    assert (
        found.result,
        found.detail.startswith("y is "),
        found.detail.endswith("a=5'h08"),
    ) == ("different", True, True)
    assert audited(
        grader, TABLE.format("".join(rows)), TABLE.format("".join(reversed(rows))), effort
    ).agrees


def test_an_undriven_wire_of_the_golden_answer_proves_nothing(grader):
    golden = FRAME.format("wire z; assign y = a[0] & a[1] ? {8{z}} : b;")
    found = audited(grader, golden, FRAME.format("assign y = b;"))
    assert (found.result, found.method) == ("different", "simulation")


PACKAGE = "package p; typedef struct packed {logic v; logic [3:0] n;} req_t; endpackage\n"
PORTS = "module m import p::*; (input req_t r, output logic [3:0] y);\n  assign y = {};\nendmodule\n"


def test_given_packages_and_macros_come_first(grader):
    context = {"rtl/a_macros.sv": "`define STEP 3\n", "rtl/z_types.sv": PACKAGE}
    golden = {"rtl/m.sv": PORTS.format("r.n + `STEP")}
    interface = parse_interface({**context, **golden}, "m", InterfaceSource.GOLDEN)
    problem = a_problem(golden=golden, interface=interface, context=context)
    for text, result in (("`STEP + r.n", "equal"), ("r.n + 2", "different")):
        files = {"rtl/m.sv": PORTS.format(text)}
        assert (
            compare(grader.executor, problem, golden, files, grader.limits, EFFORT).result
            == result
        )


def test_macros_of_the_harness_hold_for_both(grader):
    golden = "module m(input [`W-1:0] a, output [`W-1:0] y);\n`ifdef NEG\n  not_ u [`W-1:0] (a, y);\n`else\n  assign y = a;\n`endif\nendmodule\n"
    golden += "module not_(input a, output y);\n  assign y = ~a;\nendmodule\n"
    harness = {"src/run.py": "runner.build(defines={'NEG': 1}, build_args=['-DW=4'])\n"}
    interface = parse_interface(
        {"macros.sv": "`define W 4\n", "rtl/m.sv": golden}, "m", InterfaceSource.GOLDEN
    )
    problem = a_problem(golden={"rtl/m.sv": golden}, interface=interface, harness=harness)
    for value, result in (("~a", "equal"), ("15 - a", "equal"), ("a", "different")):
        files = {
            "rtl/m.sv": f"module m(input [`W-1:0] a, output [`W-1:0] y);\n  assign y = {value};\nendmodule\n"
        }
        assert (
            compare(
                grader.executor, problem, problem.golden, files, grader.limits, EFFORT
            ).result
            == result
        )


@pytest.mark.parametrize(
    ("text", "macros"),
    [
        (
            "build(defines={'A': 1, \"B\": '8', 'C': None, 'D': width, 'E': str(3)})",
            "A 1,B 8,C 1",
        ),
        ("defines = {'A': 4}\n", "A 4"),
        ("BUILD_ARGS = -DA=3 -D B +define+C=2 -DD=$(W) x-DE", "A 3,B 1,C 2"),
        ("args = [f'-DA={width}']", ""),
    ],
)
def test_macros_of_a_harness_are_read_where_they_are_constant(text, macros):
    lines = "".join(f"`define {macro}\n" for macro in macros.split(",") if macro)
    assert "".join(macro_file({"src/run.py": text}).values()) == lines


def test_a_proof_is_tried_where_the_simulator_cannot_compile(grader):
    other = FRAME.format("assign y = (a inside {8'd3, 8'd5}) ? a : a;")
    found = audited(grader, COPY, other)
    assert found.result == "equal", json.dumps(found.detail)
    assert audited(grader, COPY, other, replace(QUICK, proof_first=False)).result == "equal"
