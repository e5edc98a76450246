module cvdp_prbs_gen #(
    parameter CHECK_MODE = 0,
    parameter POLY_LENGTH = 31,
    parameter POLY_TAP = 3,
    parameter WIDTH = 16
) (
    input                  clk,
    input                  rst,
    input      [WIDTH-1:0] data_in,
    output reg [WIDTH-1:0] data_out
);
  // Stage 1 is bit 1, the newest.
  reg [1:POLY_LENGTH] state, next;
  reg [WIDTH-1:0] bits;
  integer i;

  always @(*) begin
    next = state;
    for (i = 0; i < WIDTH; i = i + 1) begin
      bits[i] = next[POLY_TAP] ^ next[POLY_LENGTH];
      next = {CHECK_MODE ? data_in[i] : bits[i], next[1:POLY_LENGTH-1]};
    end
  end

  always @(posedge clk)
    if (rst) begin
      state <= {POLY_LENGTH{1'b1}};
      data_out <= {WIDTH{1'b1}};
    end else begin
      state <= next;
      data_out <= CHECK_MODE ? bits ^ data_in : bits;
    end
endmodule
