// The golden answer: a right design, which also shows what the bench is worth.
module saturating_adder #(
    parameter WIDTH = 8
) (
    input  logic [WIDTH-1:0] a,
    input  logic [WIDTH-1:0] b,
    output logic [WIDTH-1:0] sum
);
  logic carry;
  logic [WIDTH-1:0] low;

  assign {carry, low} = a + b;
  assign sum = carry ? {WIDTH{1'b1}} : low;
endmodule
