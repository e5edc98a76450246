`timescale 1ns/1ps
`include "widths.vh"
`define CHECK(wanted) if (q !== wanted) $error("q is %0d", q)
module tb;
  reg clk = 0;
  reg [`BITS-1:0] d, expected [0:3];
  wire [`BITS-1:0] q, sum;
  always #5 clk = ~clk;
  inc8 uut(.clk(clk), .d(d), .q(q));
  adder8 reference(.a(d), .b(`BITS'd`STEP), .sum(sum));
  initial begin
    $readmemh("expected.hex", expected);
    for (int i = 0; i < 60; i++) begin
      d = i < 4 ? i : $random;
      @(posedge clk) #1;
      `CHECK(sum);
      if (i < 4) `CHECK(expected[i]);
    end
    $finish;
  end
endmodule
