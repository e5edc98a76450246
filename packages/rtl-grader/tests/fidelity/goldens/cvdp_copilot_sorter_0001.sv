// Bubble sort: N passes of N-1 comparisons, one a cycle, and a cycle each to start and to end.
module sorting_engine #(
    parameter N = 8,
    parameter WIDTH = 8
) (
    input                    clk,
    input                    rst,
    input                    start,
    input      [N*WIDTH-1:0] in_data,
    output reg               done,
    output reg [N*WIDTH-1:0] out_data
);
  localparam STEPS = N * (N - 1);
  reg [N*WIDTH-1:0] data;
  reg [$clog2(STEPS+1)-1:0] steps;
  reg [$clog2(N+1)-1:0] at;
  reg busy;

  wire [WIDTH-1:0] low = data[at*WIDTH+:WIDTH];
  wire [WIDTH-1:0] high = data[(at+1)*WIDTH+:WIDTH];

  always @(posedge clk or posedge rst)
    if (rst) begin
      busy <= 0;
      done <= 0;
      data <= 0;
      out_data <= 0;
      steps <= 0;
      at <= 0;
    end else begin
      done <= 0;
      if (start && !busy) begin
        data <= in_data;
        busy <= 1;
        steps <= 0;
        at <= 0;
      end else if (busy && steps == STEPS) begin
        busy <= 0;
        done <= 1;
        out_data <= data;
      end else if (busy) begin
        if (low > high) begin
          data[at*WIDTH+:WIDTH] <= high;
          data[(at+1)*WIDTH+:WIDTH] <= low;
        end
        at <= at == N - 2 ? 0 : at + 1'b1;
        steps <= steps + 1'b1;
      end
    end
endmodule
