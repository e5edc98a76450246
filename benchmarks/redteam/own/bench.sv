`timescale 1ns/1ps
module stimulus(input clk, output reg [7:0] d);
  always @(negedge clk) d <= $urandom;
  initial begin
    d = 0;
    repeat (200) @(posedge clk);
    $finish;
  end
endmodule
module tb;
  reg clk = 0;
  always #5 clk = ~clk;
  wire [7:0] d, expected, got;
  integer errors = 0, samples = 0;
  stimulus source(.clk(clk), .d(d));
  model reference(.clk(clk), .d(d), .q(expected));
  inc8 dut(.clk(clk), .d(d), .q(got));
  always @(posedge clk or negedge clk) begin
    samples = samples + 1;
    if (expected !== (expected ^ got ^ expected)) errors = errors + 1;
  end
  final $display("Mismatches: %0d in %0d samples", errors, samples);
endmodule
module model(input clk, input [7:0] d, output reg [7:0] q);
  always @(posedge clk) q <= d + 1;
endmodule
