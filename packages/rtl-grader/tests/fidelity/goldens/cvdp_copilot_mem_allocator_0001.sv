// Gives out the lowest free slot of SIZE.
module cvdp_copilot_mem_allocator #(
    parameter SIZE = 4,
    parameter ADDRW = $clog2(SIZE)
) (
    input                  clk,
    input                  reset,
    input                  acquire_en,
    output reg [ADDRW-1:0] acquire_addr,
    input                  release_en,
    input      [ADDRW-1:0] release_addr,
    output                 empty,
    output                 full
);
  reg [SIZE-1:0] used, used_next;
  integer i;

  assign empty = used == 0;
  assign full  = &used;

  always @(*) begin
    acquire_addr = 0;
    for (i = SIZE - 1; i >= 0; i = i - 1) if (!used[i]) acquire_addr = i;
  end

  always @(*) begin
    used_next = used;
    if (acquire_en && !full) used_next[acquire_addr] = 1'b1;
    if (release_en) used_next[release_addr] = 1'b0;
  end

  always @(posedge clk or posedge reset)
    if (reset) used <= 0;
    else used <= used_next;
endmodule
