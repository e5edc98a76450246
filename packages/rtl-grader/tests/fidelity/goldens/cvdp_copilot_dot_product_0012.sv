module dot_product (
    input             clk_in,
    input             reset_in,
    input             start_in,
    input      [ 6:0] dot_length_in,
    input      [ 7:0] vector_a_in,
    input             vector_a_valid_in,
    input      [15:0] vector_b_in,
    input             vector_b_valid_in,
    output reg [31:0] dot_product_out,
    output reg        dot_product_valid_out
);
  localparam [1:0] IDLE = 2'd0, COMPUTE = 2'd1, OUTPUT = 2'd2;
  reg [1:0] state;
  reg [31:0] sum;
  reg [6:0] left;

  wire [31:0] product = {24'd0, vector_a_in} * {16'd0, vector_b_in};

  always @(posedge clk_in or posedge reset_in)
    if (reset_in) begin
      state <= IDLE;
      sum <= 32'd0;
      left <= 7'd0;
      dot_product_out <= 32'd0;
      dot_product_valid_out <= 1'b0;
    end else begin
      dot_product_valid_out <= 1'b0;
      case (state)
        IDLE: begin
          sum  <= 32'd0;
          left <= dot_length_in;
          if (start_in) state <= COMPUTE;
        end
        COMPUTE:
        if (vector_a_valid_in && vector_b_valid_in) begin
          sum  <= sum + product;
          left <= left - 7'd1;
          if (left == 7'd1) state <= OUTPUT;
        end
        OUTPUT: begin
          dot_product_out <= sum;
          dot_product_valid_out <= 1'b1;
          state <= IDLE;
        end
        default: state <= IDLE;
      endcase
    end
endmodule
