`include "widths.vh"
module inc8(input clk, input [`BITS-1:0] d, output reg [`BITS-1:0] q);
  wire [`BITS-1:0] sum;
  adder8 adder(.a(d), .b(`BITS'd`STEP), .sum(sum));
  always @(posedge clk) q <= sum;
endmodule
