module matrix_multiplier #(
    parameter ROW_A = 4,
    parameter COL_A = 4,
    parameter ROW_B = 4,
    parameter COL_B = 4,
    parameter INPUT_DATA_WIDTH = 8,
    parameter OUTPUT_DATA_WIDTH = 2 * INPUT_DATA_WIDTH + $clog2(COL_A)
) (
    input      [ ROW_A*COL_A*INPUT_DATA_WIDTH-1:0] matrix_a,
    input      [ ROW_B*COL_B*INPUT_DATA_WIDTH-1:0] matrix_b,
    output reg [ROW_A*COL_B*OUTPUT_DATA_WIDTH-1:0] matrix_c
);
  reg [OUTPUT_DATA_WIDTH-1:0] a, b, sum;
  integer row, column, k;

  always @(*)
    for (row = 0; row < ROW_A; row = row + 1)
      for (column = 0; column < COL_B; column = column + 1) begin
        sum = 0;
        for (k = 0; k < COL_A; k = k + 1) begin
          a   = matrix_a[(row*COL_A+k)*INPUT_DATA_WIDTH+:INPUT_DATA_WIDTH];
          b   = matrix_b[(k*COL_B+column)*INPUT_DATA_WIDTH+:INPUT_DATA_WIDTH];
          sum = sum + a * b;
        end
        matrix_c[(row*COL_B+column)*OUTPUT_DATA_WIDTH+:OUTPUT_DATA_WIDTH] = sum;
      end
endmodule
