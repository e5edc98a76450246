`timescale 1 ps/1 ps
`define OK 12
module stimulus_gen(input clk, output logic [3:0] in);
  task wavedrom_stop; #1; endtask
  initial begin
    repeat(100) @(posedge clk, negedge clk) in <= $random;
    wavedrom_stop();
    $finish;
  end
endmodule
module tb();
  typedef struct packed { int errors; int clocks; } stats;
  stats stats1;
  reg clk = 0;
  initial forever #5 clk = ~clk;
  logic [3:0] in;
  logic [3:0] out_ref;
  logic [3:0] out_dut;
  initial begin $dumpfile("wave.vcd"); $dumpvars(1, stim1.clk, tb_match); end
  wire tb_match;
  stimulus_gen stim1(.clk, .*, .in);
  RefModule good1(.clk, .in, .out(out_ref));
  TopModule top_module1(.clk, .in, .out(out_dut));
  final begin
    $display("Hint: Total mismatched samples is %1d out of %1d samples\n", stats1.errors, stats1.clocks);
    $display("Mismatches: %1d in %1d samples", stats1.errors, stats1.clocks);
  end
  assign tb_match = ({out_ref} === ({out_ref} ^ {out_dut} ^ {out_ref}));
  always @(posedge clk, negedge clk) begin
    stats1.clocks++;
    if (!tb_match) stats1.errors++;
  end
  initial begin #1000000 $display("TIMEOUT"); $finish(); end
endmodule
