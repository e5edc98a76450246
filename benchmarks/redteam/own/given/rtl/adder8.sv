`include "widths.vh"
module adder8(input [`BITS-1:0] a, b, output [`BITS-1:0] sum);
  assign sum = a + b;
endmodule
