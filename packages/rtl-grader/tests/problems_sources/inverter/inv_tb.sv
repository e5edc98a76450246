module tb;
  reg [3:0] a; wire [3:0] y; integer i, bad;
  inv dut(.a(a), .y(y));
  initial begin
    bad = 0;
    for (i = 0; i < 16; i = i + 1) begin a = i; #1 if (y !== ~a) bad = bad + 1; end
    if (bad == 0) $display("RESULT: ok"); else $display("RESULT: %0d wrong", bad);
    $finish;
  end
endmodule
