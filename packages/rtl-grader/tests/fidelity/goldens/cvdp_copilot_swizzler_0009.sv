// The first lane has the last index of the mapping; an index beyond the lanes is an error and gives zeros.
// error_flag is a vector since the harness reads it as one: a single bit has no `integer`.
module swizzler #(
    parameter N = 8,
    localparam M = $clog2(N) + 1
) (
    input                clk,
    input                reset,
    input      [  N-1:0] data_in,
    input      [N*M-1:0] mapping_in,
    input                config_in,
    input      [    2:0] operation_mode,
    output reg [  N-1:0] data_out,
    output reg [    1:0] error_flag
);
  reg [N-1:0] swizzled, operated;
  reg [M-1:0] index;
  reg wrong;
  integer i;

  always @(*) begin
    wrong = 0;
    swizzled = 0;
    for (i = 0; i < N; i = i + 1) begin
      index = mapping_in[i*M+:M];
      if (index >= N) wrong = 1;
      else swizzled[config_in ? N-1-i : i] = data_in[index];
    end
    if (wrong) swizzled = 0;
    for (i = 0; i < N; i = i + 1)
      case (operation_mode)
        3'd2: operated[i] = swizzled[N-1-i];
        3'd3: operated[i] = swizzled[(i+N/2)%N];
        3'd4: operated[i] = !swizzled[i];
        3'd5: operated[i] = swizzled[(i+N-1)%N];
        3'd6: operated[i] = swizzled[(i+1)%N];
        default: operated[i] = swizzled[i];
      endcase
  end

  always @(posedge clk or posedge reset)
    if (reset) begin
      data_out   <= 0;
      error_flag <= 0;
    end else begin
      data_out   <= wrong ? 0 : operated;
      error_flag <= wrong;
    end
endmodule
