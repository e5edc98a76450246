`timescale 1ns/1ps
module main;
  reg clk = 0;
  reg [7:0] d;
  wire [7:0] q;
  integer errors;
  always #5 clk = ~clk;
  inc8 uut(.clk(clk), .d(d), .q(q));
  initial begin
    errors = 0;
    for (int i = 0; i < 60; i++) begin
      d = $random;
      @(posedge clk) #1;
      if (q !== d + 8'd1) errors = errors + 1;
    end
    if (errors == 0) $display("===========Your Design Passed===========");
    else $display("===========%0d errors===========", errors);
    $finish;
  end
endmodule
