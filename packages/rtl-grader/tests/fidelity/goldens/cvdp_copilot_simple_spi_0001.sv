module spi_fsm (
    input             i_clk,
    input             i_rst_b,
    input      [15:0] i_data_in,
    input             i_enable,
    input             i_fault,
    input             i_clear,
    output reg        o_spi_cs_b,
    output reg        o_spi_clk,
    output reg        o_spi_data,
    output reg [ 4:0] o_bits_left,
    output reg        o_done,
    output     [ 1:0] o_fsm_state
);
  localparam IDLE = 2'b00, TRANSMIT = 2'b01, ERROR = 2'b11;
  reg [1:0] state;
  reg [15:0] shift;

  assign o_fsm_state = state;

  always @(posedge i_clk or negedge i_rst_b)
    if (!i_rst_b) begin
      state <= IDLE;
      shift <= 0;
      o_spi_data <= 0;
      o_bits_left <= 5'd16;
      o_done <= 0;
      o_spi_cs_b <= 1;
      o_spi_clk <= 0;
    end else begin
      o_done <= 0;
      if (i_clear || (i_fault && state != ERROR) || state == ERROR) begin
        state <= i_clear ? IDLE : ERROR;
        o_spi_cs_b <= 1;
        o_spi_clk <= 0;
        o_spi_data <= 0;
        o_bits_left <= 5'd16;
      end else if (state == IDLE) begin
        if (i_enable) begin
          state <= TRANSMIT;
          shift <= i_data_in;
          o_spi_cs_b <= 0;
        end
      end else if (!i_enable) begin
        state <= IDLE;
        o_spi_cs_b <= 1;
        o_spi_clk <= 0;
        o_bits_left <= 5'd16;
      end else if (!o_spi_clk) begin
        // What the slave samples stands before the edge of its clock.
        o_spi_data <= shift[15];
        o_bits_left <= o_bits_left - 1'b1;
        shift <= shift << 1;
        o_spi_clk <= 1;
      end else begin
        o_spi_clk <= 0;
        if (o_bits_left == 1) begin
          state <= IDLE;
          o_done <= 1;
          o_spi_cs_b <= 1;
          o_spi_data <= shift[15];
          o_bits_left <= 5'd16;
        end
      end
    end
endmodule
