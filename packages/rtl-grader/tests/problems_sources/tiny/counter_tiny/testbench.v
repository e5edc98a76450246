module testbench;
  parameter BITS = 4;
  reg clk, rst_n;
  wire [BITS-1:0] out;
  integer i, error;
  counter_tiny #(.WIDTH(BITS)) dut(.clk(clk), .rst_n(rst_n), .out(out));
  initial begin
    clk = 0; rst_n = 1; error = 0;
    #2 rst_n = 0;
    #2 rst_n = 1;
    for (i = 0; i < 40; i = i + 1) begin
      if (out !== i % 16) error = error + 1;
      #5 clk = 1;
      #5 clk = 0;
    end
    if (error == 0) $display("===========Your Design Passed===========");
    else $display("===========Failed===========", error);
  end
endmodule
