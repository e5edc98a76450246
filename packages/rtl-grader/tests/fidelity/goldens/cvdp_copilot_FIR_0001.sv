// A four-tap moving sum.
module fir_filter (
    input                    clk,
    input                    reset,
    input      signed [15:0] input_sample,
    output reg signed [15:0] output_sample
);
  reg signed [15:0] delay[0:2];
  wire signed [17:0] sum = input_sample + delay[0] + delay[1] + delay[2];

  always @(posedge clk or posedge reset)
    if (reset) begin
      delay[0] <= 0;
      delay[1] <= 0;
      delay[2] <= 0;
      output_sample <= 0;
    end else begin
      delay[0] <= input_sample;
      delay[1] <= delay[0];
      delay[2] <= delay[1];
      output_sample <= sum >>> 2;
    end
endmodule
