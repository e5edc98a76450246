// data_in holds NUM_TAPS samples, coeffs as many weights in the opposite order; the weighted sum comes one cycle later.
module low_pass_filter #(
    parameter DATA_WIDTH = 16,
    parameter COEFF_WIDTH = 16,
    parameter NUM_TAPS = 8,
    localparam OUT_WIDTH = DATA_WIDTH + COEFF_WIDTH + $clog2(NUM_TAPS)
) (
    input                                  clk,
    input                                  reset,
    input      [  DATA_WIDTH*NUM_TAPS-1:0] data_in,
    input      [ COEFF_WIDTH*NUM_TAPS-1:0] coeffs,
    input                                  valid_in,
    output reg signed [     OUT_WIDTH-1:0] data_out,
    output reg                             valid_out
);
  reg signed [OUT_WIDTH-1:0] sum;
  reg signed [DATA_WIDTH-1:0] sample;
  reg signed [COEFF_WIDTH-1:0] weight;
  integer i;

  always @(*) begin
    sum = 0;
    for (i = 0; i < NUM_TAPS; i = i + 1) begin
      sample = data_in[i*DATA_WIDTH+:DATA_WIDTH];
      weight = coeffs[(NUM_TAPS-1-i)*COEFF_WIDTH+:COEFF_WIDTH];
      sum = sum + sample * weight;
    end
  end

  always @(posedge clk or posedge reset)
    if (reset) begin
      data_out  <= 0;
      valid_out <= 0;
    end else begin
      data_out  <= sum;
      valid_out <= valid_in;
    end
endmodule
