// A shift register whose word goes through a Hamming code and a CRC; the CRC comes two cycles after the word.
module sipo_top #(
    parameter DATA_WIDTH = 16,
    parameter SHIFT_DIRECTION = 1,
    parameter CODE_WIDTH = DATA_WIDTH + $clog2(DATA_WIDTH + 1),
    parameter CRC_WIDTH = DATA_WIDTH / 2,
    parameter [CRC_WIDTH-1:0] POLY = 'b10101010
) (
    input                   clk,
    input                   reset_n,
    input                   serial_in,
    input                   shift_en,
    input  [CODE_WIDTH-1:0] received,
    input  [ CRC_WIDTH-1:0] received_crc,
    output                  done,
    output [DATA_WIDTH-1:0] data_out,
    output [CODE_WIDTH-1:0] encoded,
    output                  error_detected,
    output                  error_corrected,
    output [ CRC_WIDTH-1:0] crc_out,
    output                  crc_error
);
  wire [DATA_WIDTH-1:0] parallel_out;

  serial_in_parallel_out_8bit #(
      .WIDTH(DATA_WIDTH),
      .SHIFT_DIRECTION(SHIFT_DIRECTION)
  ) uut_sipo (
      .clk(clk),
      .reset_n(reset_n),
      .sin(serial_in),
      .shift_en(shift_en),
      .done(done),
      .parallel_out(parallel_out)
  );

  onebit_ecc #(
      .DATA_WIDTH(DATA_WIDTH),
      .CODE_WIDTH(CODE_WIDTH)
  ) uut_onebit_ecc (
      .data_in(parallel_out),
      .encoded(encoded),
      .received(received),
      .data_out(data_out),
      .error_detected(error_detected),
      .error_corrected(error_corrected)
  );

  crc_generator #(
      .DATA_WIDTH(DATA_WIDTH),
      .CRC_WIDTH(CRC_WIDTH),
      .POLY(POLY)
  ) crc_gen (
      .clk(clk),
      .reset_n(reset_n),
      .data_in(parallel_out),
      .crc_out(crc_out)
  );

  assign crc_error = crc_out != received_crc;
endmodule

module serial_in_parallel_out_8bit #(
    parameter WIDTH = 64,
    parameter SHIFT_DIRECTION = 1
) (
    input                  clk,
    input                  reset_n,
    input                  sin,
    input                  shift_en,
    output reg             done,
    output reg [WIDTH-1:0] parallel_out
);
  reg [$clog2(WIDTH):0] count;

  always @(posedge clk or negedge reset_n)
    if (!reset_n) begin
      parallel_out <= 0;
      count <= 0;
      done <= 0;
    end else begin
      if (shift_en) parallel_out <= SHIFT_DIRECTION ? {parallel_out[WIDTH-2:0], sin} : {sin, parallel_out[WIDTH-1:1]};
      done <= count == WIDTH - 1;
      if (count == WIDTH - 1) count <= 0;
      else if (shift_en) count <= count + 1'b1;
    end
endmodule

// Parity bits stand at the powers of two, counted from 1.
module onebit_ecc #(
    parameter DATA_WIDTH = 4,
    parameter CODE_WIDTH = DATA_WIDTH + $clog2(DATA_WIDTH + 1)
) (
    input      [DATA_WIDTH-1:0] data_in,
    output reg [CODE_WIDTH-1:0] encoded,
    input      [CODE_WIDTH-1:0] received,
    output reg [DATA_WIDTH-1:0] data_out,
    output                      error_detected,
    output                      error_corrected
);
  localparam PARITY = CODE_WIDTH - DATA_WIDTH;
  reg [PARITY-1:0] check, syndrome;
  integer i, next, j, taken;

  always @(*) begin
    encoded = 0;
    check = 0;
    next = 0;
    for (i = 1; i <= CODE_WIDTH; i = i + 1)
      if (i & (i - 1)) begin
        encoded[i-1] = data_in[next];
        if (data_in[next]) check = check ^ i;
        next = next + 1;
      end
    for (i = 0; i < PARITY; i = i + 1) encoded[(1<<i)-1] = check[i];
  end

  always @(*) begin
    syndrome = 0;
    for (j = 1; j <= CODE_WIDTH; j = j + 1) if (received[j-1]) syndrome = syndrome ^ j;
    taken = 0;
    for (j = 1; j <= CODE_WIDTH; j = j + 1)
      if (j & (j - 1)) begin
        data_out[taken] = received[j-1] ^ (syndrome == j);
        taken = taken + 1;
      end
  end

  assign error_detected  = syndrome != 0;
  assign error_corrected = error_detected;
endmodule

module crc_generator #(
    parameter DATA_WIDTH = 16,
    parameter CRC_WIDTH = 8,
    parameter [CRC_WIDTH-1:0] POLY = 'b10101010
) (
    input                       clk,
    input                       reset_n,
    input      [DATA_WIDTH-1:0] data_in,
    output reg [ CRC_WIDTH-1:0] crc_out
);
  reg [CRC_WIDTH-1:0] crc, computed;
  integer i;

  always @(*) begin
    crc = 0;
    for (i = DATA_WIDTH - 1; i >= 0; i = i - 1)
      crc = (crc << 1) ^ (crc[CRC_WIDTH-1] ^ data_in[i] ? POLY : {CRC_WIDTH{1'b0}});
  end

  always @(posedge clk or negedge reset_n)
    if (!reset_n) {crc_out, computed} <= 0;
    else {crc_out, computed} <= {computed, crc};
endmodule
