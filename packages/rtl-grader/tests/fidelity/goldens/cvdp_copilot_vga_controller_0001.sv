// 640 x 480 at 25 MHz.
module vga_controller (
    input            clock,
    input            reset,
    input      [7:0] color_in,
    output           hsync,
    output           vsync,
    output     [7:0] red,
    output     [7:0] green,
    output     [7:0] blue,
    output reg [9:0] next_x,
    output reg [9:0] next_y,
    output           sync,
    output           clk,
    output           blank
);
  wire visible = next_x < 640 && next_y < 480;

  assign hsync = !(next_x >= 656 && next_x < 752);
  assign vsync = !(next_y >= 490 && next_y < 492);
  assign red   = visible ? {color_in[7:5], 5'd0} : 8'd0;
  assign green = visible ? {color_in[4:2], 5'd0} : 8'd0;
  assign blue  = visible ? {color_in[1:0], 6'd0} : 8'd0;
  assign sync  = 1'b0;
  assign clk   = clock;
  assign blank = hsync & vsync;

  always @(posedge clock or posedge reset)
    if (reset) begin
      next_x <= 0;
      next_y <= 0;
    end else if (next_x == 799) begin
      next_x <= 0;
      next_y <= next_y == 524 ? 0 : next_y + 1'b1;
    end else next_x <= next_x + 1'b1;
endmodule
