// One register between two masters and the slave. A master is ready when the register takes what it offers.
module data_bus_controller #(
    parameter AFINITY = 0
) (
    input             clk,
    input             rst_n,
    output            m0_ready,
    input             m0_valid,
    input      [31:0] m0_data,
    output            m1_ready,
    input             m1_valid,
    input      [31:0] m1_data,
    input             s_ready,
    output reg        s_valid,
    output reg [31:0] s_data
);
  assign m0_ready = s_ready;
  assign m1_ready = s_ready;

  always @(posedge clk or negedge rst_n)
    if (!rst_n) begin
      s_valid <= 0;
      s_data  <= 0;
    end else if (s_ready) begin
      s_valid <= m0_valid || m1_valid;
      // Asked in this order, a valid signal that was never driven counts as low.
      if (AFINITY == 1)
        if (m1_valid) s_data <= m1_data;
        else s_data <= m0_data;
      else if (m0_valid) s_data <= m0_data;
      else s_data <= m1_data;
    end
endmodule
