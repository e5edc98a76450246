module RefModule(input clk, input [3:0] in, output [3:0] out);
  assign out = in * 4'd3;
endmodule
