// Keeps every DEC_FACTOR-th of N samples, counted from the least significant one, and finds their largest.
module advanced_decimator_with_adaptive_peak_detection #(
    parameter N = 8,
    parameter DATA_WIDTH = 16,
    parameter DEC_FACTOR = 4,
    localparam KEPT = N / DEC_FACTOR
) (
    input                                  clk,
    input                                  reset,
    input                                  valid_in,
    input             [  N*DATA_WIDTH-1:0] data_in,
    output reg                             valid_out,
    output reg        [KEPT*DATA_WIDTH-1:0] data_out,
    output reg signed [    DATA_WIDTH-1:0] peak_value
);
  reg [KEPT*DATA_WIDTH-1:0] kept;
  reg signed [DATA_WIDTH-1:0] peak, sample;
  integer i;

  always @(*) begin
    peak = {1'b1, {DATA_WIDTH - 1{1'b0}}};
    for (i = 0; i < KEPT; i = i + 1) begin
      sample = data_in[i*DEC_FACTOR*DATA_WIDTH+:DATA_WIDTH];
      kept[i*DATA_WIDTH+:DATA_WIDTH] = sample;
      if (sample > peak) peak = sample;
    end
  end

  always @(posedge clk or posedge reset)
    if (reset) begin
      valid_out  <= 0;
      data_out   <= 0;
      peak_value <= 0;
    end else begin
      valid_out <= valid_in;
      if (valid_in) begin
        data_out   <= kept;
        peak_value <= peak;
      end
    end
endmodule
