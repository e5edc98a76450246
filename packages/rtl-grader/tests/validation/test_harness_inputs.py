"""The inputs that a harness drives are recorded, and distinguish designs that random inputs do not."""

from rtl_core.starter import starter_problems
from rtl_grader.equivalence.differential import compare, harness_inputs
from rtl_grader.equivalence.effort import Effort
from tests.equivalence.test_proof import problem_of

LOCK = """\
module m(input clk, input rst, input [31:0] key, output reg open, output reg [7:0] code);
  always @(posedge clk)
    if (rst) begin open <= 0; code <= 0; end
    else if (key == ~32'h01123f21) begin open <= 1; code <= 8'h5a; end
endmodule
"""
QUICK = Effort.of_cycles(200)


def test_inputs_of_a_starter_harness_are_recorded(grader):
    problem = next(p for p in starter_problems("train", 40, 0) if p.family == "counter")
    trace = harness_inputs(grader, problem, problem.golden)
    inputs = {port.name for port in problem.interface.ports if port.direction == "input"}
    assert all(set(step) == inputs for step in trace)
    assert len(trace) > 20
    assert all(len({step[name] for step in trace}) > 1 for name in inputs), "all of them move"
    itself = compare(
        grader.executor,
        problem,
        problem.golden,
        problem.golden,
        grader.limits,
        QUICK,
        driven=trace,
    )
    assert itself.agrees


def test_inputs_of_a_protocol_find_a_difference_that_random_ones_miss(grader):
    problem, golden = problem_of(LOCK), {"rtl/m.sv": LOCK}
    other = {"rtl/m.sv": LOCK.replace("8'h5a", "8'h5b")}
    assert (
        compare(grader.executor, problem, golden, other, grader.limits, QUICK).result == "same"
    )
    steps = [(1, 0), (0, 0), (0, 0xFEEDC0DE), (0, 0)]
    trace = [{"clk": clk, "rst": rst, "key": key} for rst, key in steps for clk in (0, 1)]
    told = compare(grader.executor, problem, golden, other, grader.limits, QUICK, driven=trace)
    assert told.result == "different"
    assert "code is 8'h5b, golden 8'h5a" in told.detail
    assert told.detail.endswith("inputs as the harness drives them")
