// A half-band filter with one multiplier: every other tap is zero and both sides are alike, so each product serves two
// samples. A sample starts a run over the stored taps; the middle tap is 2^(TW-1) - 1.
module halfband_fir #(
    parameter LGNTAPS = 7,
    parameter IW = 16,
    parameter TW = 12,
    parameter OW = IW + TW + LGNTAPS,
    parameter [LGNTAPS:0] NTAPS = 107,
    parameter [0:0] FIXED_TAPS = 1'b0,
    parameter INITIAL_COEFFS = "",
    parameter [0:0] OPT_HILBERT = 1'b0
) (
    input  wire          i_clk,
    input  wire          i_reset,
    input  wire          i_tap_wr,
    input  wire [TW-1:0] i_tap,
    input  wire          i_ce,
    input  wire [IW-1:0] i_sample,
    output reg           o_ce,
    output reg  [OW-1:0] o_result
);
  localparam MEM = LGNTAPS - 1;
  localparam TAP = MEM - 1;
  localparam [MEM-1:0] HALF = NTAPS[MEM:1];
  localparam [MEM-1:0] LAST = {1'b0, NTAPS[MEM:2]};

  reg [TW-1:0] taps[0:(1<<TAP)-1];
  reg [IW-1:0] newer[0:(1<<MEM)-1];
  reg [IW-1:0] older[0:(1<<MEM)-1];

  generate
    if (FIXED_TAPS || INITIAL_COEFFS != "") begin : g_fixed
      initial $readmemh(INITIAL_COEFFS, taps);
    end else begin : g_written
      reg [TAP-1:0] next;
      initial next = 0;
      always @(posedge i_clk)
        if (i_reset) next <= 0;
        else if (i_tap_wr) next <= next + 1'b1;
      always @(posedge i_clk) if (i_tap_wr) taps[next] <= i_tap;
    end
  endgenerate

  // Where the run is: samples go outwards from the middle, taps upwards.
  reg [MEM-1:0] write_at, left_at, right_at;
  reg [TAP-1:0] tap_at;
  reg start, read, summed;
  reg [3:0] runs;
  wire [MEM-1:0] write_next = write_at + 1'b1;
  wire [MEM-1:0] left_over = LAST - {1'b0, tap_at};
  wire at_end = left_over == 0;
  wire near_end = left_over <= 1;
  wire goes_on = start || (runs[0] && !at_end);

  initial {write_at, left_at, right_at, tap_at, start, read, summed, runs} = 0;

  always @(posedge i_clk) begin
    start  <= i_ce && !i_reset;
    read   <= start && !i_reset;
    summed <= read && !i_reset;
    if (i_ce) write_at <= write_next;
    if (i_reset) begin
      {left_at, right_at, tap_at, runs} <= 0;
    end else begin
      runs[3:1] <= {runs[2:1], goes_on};
      if (i_ce) runs[0] <= 1'b1;
      else if (at_end && !start) runs[0] <= 1'b0;
      if (i_ce) begin
        left_at  <= write_next;
        right_at <= write_next - HALF + 1'b1;
      end else if (start || !near_end) begin
        left_at  <= left_at - 2;
        right_at <= right_at + 2;
      end
      if (start) tap_at <= 0;
      else if (!at_end) tap_at <= tap_at + 1'b1;
    end
  end

  reg signed [IW-1:0] left, right, middle;
  reg signed [IW:0] sum;
  reg [TW-1:0] tap;
  reg [IW+TW-1:0] product;

  initial {left, right, tap, sum, product} = 0;

  always @(posedge i_clk) begin
    left    <= newer[left_at];
    right   <= older[right_at];
    tap     <= taps[tap_at];
    product <= {{IW{1'b0}}, tap} * {{TW - 1{1'b0}}, sum};
    sum     <= i_reset ? 0 : OPT_HILBERT ? left - right : left + right;
    if (i_ce) begin
      newer[write_next] <= i_sample;
      older[write_next] <= middle;
    end
    if (i_reset) middle <= 0;
    else if (i_ce) middle <= left;
  end

  wire [OW-1:0] wide = {{OW - IW{middle[IW-1]}}, middle};
  reg [OW-1:0] of_middle, total;

  initial {of_middle, total, o_result, o_ce} = 0;

  always @(posedge i_clk) begin
    o_ce <= summed && !i_reset;
    if (summed) o_result <= total;
    if (i_reset) {of_middle, total} <= 0;
    else begin
      if (start) of_middle <= OPT_HILBERT ? 0 : (wide << (TW - 1)) - wide;
      if (summed) total <= of_middle;
      else if (runs[3]) total <= total + {{LGNTAPS{product[IW+TW-1]}}, product};
    end
  end
endmodule
