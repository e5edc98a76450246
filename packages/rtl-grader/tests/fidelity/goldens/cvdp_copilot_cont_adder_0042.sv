module cont_adder #(
    parameter                      DATA_WIDTH = 32,
    parameter signed [DATA_WIDTH-1:0] THRESHOLD_VALUE_1 = 50,
    parameter signed [DATA_WIDTH-1:0] THRESHOLD_VALUE_2 = 100,
    parameter                      SIGNED_INPUTS = 1,
    parameter                      ACCUM_MODE = 0,
    parameter signed [DATA_WIDTH-1:0] WEIGHT = 1
) (
    input  logic                         clk,
    input  logic                         reset,
    input  logic signed [DATA_WIDTH-1:0] data_in,
    input  logic                         data_valid,
    input  logic        [          15:0] window_size,
    output logic signed [DATA_WIDTH-1:0] sum_out,
    output logic signed [DATA_WIDTH-1:0] avg_out,
    output logic                         threshold_1,
    output logic                         threshold_2,
    output logic                         sum_ready
);
  logic signed [DATA_WIDTH-1:0] accumulated, weighted, new_sum;
  logic signed [DATA_WIDTH-1:0] window;
  logic [15:0] count;
  logic over_1, over_2, ready;

  always_comb begin
    weighted = SIGNED_INPUTS != 0 ? data_in * WEIGHT : $signed($unsigned(data_in) * $unsigned(WEIGHT));
    new_sum  = accumulated + weighted;
    over_1   = new_sum >= THRESHOLD_VALUE_1 || new_sum <= -THRESHOLD_VALUE_1;
    over_2   = new_sum >= THRESHOLD_VALUE_2 || new_sum <= -THRESHOLD_VALUE_2;
    ready    = ACCUM_MODE == 0 ? over_1 || over_2 : count + 16'd1 >= window_size;
    window   = $signed({{DATA_WIDTH - 16{1'b0}}, window_size});
  end

  always_ff @(posedge clk or posedge reset)
    if (reset) begin
      accumulated <= 0;
      count       <= 0;
      sum_out     <= 0;
      avg_out     <= 0;
      threshold_1 <= 0;
      threshold_2 <= 0;
      sum_ready   <= 0;
    end else if (data_valid) begin
      threshold_1 <= over_1;
      threshold_2 <= over_2;
      sum_ready   <= ready;
      sum_out     <= ready ? new_sum : 0;
      avg_out     <= ACCUM_MODE == 1 && ready ? new_sum / window : 0;
      accumulated <= ACCUM_MODE == 1 && ready ? 0 : new_sum;
      count       <= ready ? 0 : count + 16'd1;
    end else sum_ready <= 0;
endmodule
