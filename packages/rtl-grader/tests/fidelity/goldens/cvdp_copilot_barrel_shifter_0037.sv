module barrel_shifter #(
    parameter data_width = 16,
    parameter shift_bits_width = 4
) (
    input  [      data_width-1:0] data_in,
    input  [shift_bits_width-1:0] shift_bits,
    input                         left_right,
    input                         rotate_left_right,
    output [      data_width-1:0] data_out
);
  wire [2*data_width-1:0] twice = {data_in, data_in};
  wire [2*data_width-1:0] rotated_left = twice << (shift_bits % data_width);
  wire [2*data_width-1:0] rotated_right = twice >> (shift_bits % data_width);
  wire [data_width-1:0] rotated = left_right ? rotated_left[2*data_width-1:data_width] : rotated_right[data_width-1:0];
  wire [data_width-1:0] shifted = left_right ? data_in << shift_bits : data_in >> shift_bits;

  assign data_out = rotate_left_right ? rotated : shifted;
endmodule
