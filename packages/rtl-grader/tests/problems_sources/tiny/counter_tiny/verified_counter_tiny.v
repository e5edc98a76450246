module verified_counter_tiny #(parameter WIDTH = 2)(input clk, input rst_n, output reg [WIDTH-1:0] out);
  always @(posedge clk or negedge rst_n) if (!rst_n) out <= 0; else out <= out + 1'b1;
endmodule
