module digital_dice_roller #(
    parameter DICE_MAX = 6
) (
    input                             clk,
    input                             reset,
    input                             button,
    output reg [$clog2(DICE_MAX+1)-1:0] dice_value
);
  localparam IDLE = 1'b0, ROLLING = 1'b1;
  reg state;
  reg [$clog2(DICE_MAX+1)-1:0] counter;

  always @(posedge clk or negedge reset)
    if (!reset) begin
      state <= IDLE;
      counter <= 1;
      dice_value <= 1;
    end else begin
      state <= button ? ROLLING : IDLE;
      if (button) counter <= counter == DICE_MAX ? 1 : counter + 1'b1;
      else if (state == ROLLING) dice_value <= counter;
    end
endmodule
