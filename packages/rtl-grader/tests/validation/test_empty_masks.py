"""A masked part that does nothing for the outputs is no task."""

import pytest

from rtl_grader.problems.sources import SOURCES
from rtl_grader.validation.level import Level
from rtl_grader.validation.validate import validate_problem

QUICK = Level("quick", 0, (1,), stubs=(), generated_stubs=())
DESIGN = """\
module flop #(parameter TARGET = 0) (input clk, d, output q);
  reg state;
  generate
    if (TARGET == 1) begin : vendor
      FDRE cell_of_vendor (.C(clk), .D(d), .Q(q));
    end
  endgenerate
  always @(posedge clk) if (d) $display("d is 1 at %t", $time);
  always @(posedge clk) state <= ~d;
  assign q = state;
endmodule
"""


@pytest.mark.parametrize(
    ("masked", "status"),
    [
        ("FDRE cell_of_vendor (.C(clk), .D(d), .Q(q));", "weak"),
        ('$display("d is 1 at %t", $time);', "weak"),
        ("state <= ~d;", "fit"),
    ],
)
def test_a_mask_that_may_stay_empty_is_weak(tmp_path, grader, masked, status):
    (tmp_path / "flop.v").write_text(DESIGN)
    source = SOURCES.find("rtl")(kind="rtl", path=tmp_path, tasks=("complete",), per_module=99)
    frame = DESIGN.replace(masked, "[MASKED]")
    (problem,) = (one for one in source.read().problems if frame in one.frame.values())
    record = validate_problem(problem, grader, level=QUICK)
    assert record.status == status, record.evidence
    if status == "weak":
        assert record.evidence["reason"] == "nothing in place of the masked part is paid"
