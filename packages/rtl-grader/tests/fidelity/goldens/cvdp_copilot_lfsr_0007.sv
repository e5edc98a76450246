// x^8 + x^6 + x^5 + x + 1 in Fibonacci form, shifted to the right.
module lfsr_8bit (
    input            clock,
    input            reset,
    input      [7:0] lfsr_seed,
    output reg [7:0] lfsr_out
);
  wire feedback = lfsr_out[6] ^ lfsr_out[5] ^ lfsr_out[1] ^ lfsr_out[0];

  always @(posedge clock or negedge reset)
    if (!reset) lfsr_out <= lfsr_seed;
    else lfsr_out <= {feedback, lfsr_out[7:1]};
endmodule
