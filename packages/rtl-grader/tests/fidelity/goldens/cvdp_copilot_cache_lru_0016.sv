// A counter for each way: a hit counts up to MAX_FREQUENCY, a hit on a full counter brings down all others that are above 1.
module lfu_counter_policy #(
    parameter NWAYS = 4,
    parameter NINDEXES = 32,
    parameter COUNTERW = $clog2(NWAYS),
    localparam MAX_FREQUENCY = (1 << COUNTERW) - 1
) (
    input                             clock,
    input                             reset,
    input      [$clog2(NINDEXES)-1:0] index,
    input      [   $clog2(NWAYS)-1:0] way_select,
    input                             access,
    input                             hit,
    output reg [   $clog2(NWAYS)-1:0] way_replace
);
  reg [NWAYS*COUNTERW-1:0] frequency[NINDEXES-1:0];
  reg [COUNTERW-1:0] least;
  integer i, n;

  always @(*) begin
    way_replace = 0;
    least = frequency[index][COUNTERW-1:0];
    for (i = 1; i < NWAYS; i = i + 1)
      if (frequency[index][i*COUNTERW+:COUNTERW] < least) begin
        least = frequency[index][i*COUNTERW+:COUNTERW];
        way_replace = i;
      end
  end

  always @(posedge clock or posedge reset)
    if (reset) begin
      for (n = 0; n < NINDEXES; n = n + 1) frequency[n] <= 0;
    end else if (access && !hit) frequency[index][way_replace*COUNTERW+:COUNTERW] <= 1;
    else if (access) begin
      if (frequency[index][way_select*COUNTERW+:COUNTERW] < MAX_FREQUENCY)
        frequency[index][way_select*COUNTERW+:COUNTERW] <= frequency[index][way_select*COUNTERW+:COUNTERW] + 1'b1;
      else
        for (n = 0; n < NWAYS; n = n + 1)
          if (n != way_select && frequency[index][n*COUNTERW+:COUNTERW] > 1)
            frequency[index][n*COUNTERW+:COUNTERW] <= frequency[index][n*COUNTERW+:COUNTERW] - 1'b1;
    end
endmodule
