`timescale 1ns/1ps
localparam STEP = 1, PERIOD = 10;
typedef enum logic [1:0] {LOW, HIGH = 2} d;
module tb;
  reg clk = 0;
  reg [7:0] sent = 0;
  wire [7:0] got;
  integer errors = 0, samples = 0;
  d level = LOW;
  inc8 dut(.clk(clk), .d(sent), .q(got));
  always #(PERIOD / 2) clk = ~clk;
  initial begin
    repeat (60) begin
      @(negedge clk) sent = $random;
      if (level == LOW) level = HIGH; else level = LOW;
      @(posedge clk) #1 samples = samples + 1;
      if (got !== sent + 8'(STEP)) errors = errors + 1;
    end
    $display("Mismatches: %0d in %0d samples", errors, samples);
    $finish;
  end
endmodule
