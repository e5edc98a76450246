// One byte of a GMII frame a clock; the last one is known when the frame has ended, so a byte is held back.
module gmii_rx_to_axi_stream (
    input            gmii_rx_clk,
    input      [7:0] gmii_rxd,
    input            gmii_rx_dv,
    output reg [7:0] m_axis_tdata,
    output reg       m_axis_tvalid,
    output reg       m_axis_tlast,
    input            m_axis_tready
);
  reg [7:0] held = 0;
  reg       holds = 0;

  initial {m_axis_tdata, m_axis_tvalid, m_axis_tlast} = 0;

  always @(posedge gmii_rx_clk) begin
    held          <= gmii_rxd;
    holds         <= gmii_rx_dv;
    m_axis_tdata  <= held;
    m_axis_tvalid <= holds;
    m_axis_tlast  <= holds && !gmii_rx_dv;
  end
endmodule
