"""Wrong answers that look right: each differs from the golden one in a corner that engineers get wrong."""

import pytest

from rtl_grader.problems.judged import judged_problem
from rtl_grader.types.answer import Answer
from rtl_grader.types.verdict import Outcome

COUNTER = """\
module modulo(input clk, rst, en, clr, output reg [7:0] q, output tick);
  assign tick = en && q == 8'd199;
  always @(posedge clk)
    if (rst || clr) q <= 0;
    else if (en) q <= q == 8'd199 ? 0 : q + 1;
endmodule
"""
FIFO = """\
module fifo(input clk, rst_n, wr, rd, input [7:0] din, output [7:0] dout, output full, empty);
  reg [7:0] mem [0:15];
  reg [4:0] wp, rp;
  wire [4:0] level = wp - rp;
  assign full = level == 16, empty = level == 0, dout = mem[rp[3:0]];
  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin wp <= 0; rp <= 0; end
    else begin
      if (wr && !full) begin mem[wp[3:0]] <= din; wp <= wp + 1; end
      if (rd && !empty) rp <= rp + 1;
    end
endmodule
"""
DETECTOR = """\
module detector(input clk, rst, d, output reg [3:0] hits);
  reg [2:0] last;
  always @(posedge clk)
    if (rst) {last, hits} <= 0;
    else begin last <= {last, d}; if (last == 3'b110) hits <= hits + 1; end
endmodule
"""
ALU = """\
module alu(input [31:0] a, b, input [3:0] op, output reg [31:0] y, output reg over);
  always @* begin
    over = 0;
    case (op)
      0: y = a + b;
      1: begin y = a - b; over = a[31] != b[31] && y[31] != a[31]; end
      2: y = a & b;
      default: y = a ^ b;
    endcase
  end
endmodule
"""
LATCH = """\
module latch(input en, input [3:0] d, output reg [3:0] q);
  always @* if (en) q = d;
endmodule
"""
SELECT = """\
module select(input s, a, b, output reg y);
  always @(s or a or b) y = s ? a : b;
endmodule
"""
WIDE_FIFO = FIFO.replace("7:0", "15:0")


@pytest.mark.parametrize(
    ("golden", "right", "wrong"),
    [
        (COUNTER, "en && q ==", "q =="),
        (FIFO, "wr && !full", "wr && (!full || rd)"),
        (DETECTOR, "hits + 1", "hits + (hits != 15)"),
        (ALU, "y[31] != a[31];", "y[31] != a[31] && b != 32'h80000000;"),
        (ALU, "y = a + b;", "y = &a[15:0] && b == 1 ? {a[31:16], 16'h0} : a + b;"),
        (ALU, "y = a & b;", "y = a[31:16] == 16'hc0de ? b : a & b;"),
        (LATCH, "@*", "@(posedge en)"),
        (SELECT, "s or a or b", "s or a"),
        (SELECT, "s or a or b", "posedge s or negedge s or posedge b or negedge b"),
        (WIDE_FIFO, "<= din", "<= wp[3:0] == 5 && din == 16'hc0de ? 0 : din"),
    ],
    ids=[
        "enable at the end",
        "both when full",
        "late wrap",
        "least operand",
        "carry",
        "one value of 16 bits",
        "edge for a level",
        "missing in a sensitivity list",
        "edges of all inputs but one",
        "one value in one slot",
    ],
)
def test_a_corner_that_is_wrong_is_refused(grader, golden, right, wrong):
    top = golden.split()[1].split("(")[0]
    problem = judged_problem(
        id=top, source="pairs", category="cid003", difficulty="easy", prompt="Write it.",
        golden={"rtl/design.sv": golden}, top=top,
    )  # fmt: skip
    assert right in golden
    for text, outcome in (
        (golden, Outcome.PASSED),
        (golden.replace(right, wrong), Outcome.TESTS_FAILED),
    ):
        result = grader.grade(problem, Answer(files={"rtl/design.sv": text}))
        assert result.outcome is outcome, result.reasons
