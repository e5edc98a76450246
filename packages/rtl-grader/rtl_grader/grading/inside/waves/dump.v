// Dumps all signals; `vvp` beside this file gives each simulation a file of its own. The gate knows the module's name: it is that of cocotb's own dumper.
module cocotb_iverilog_dump;
  initial begin
    $dumpfile("waves.vcd");
    $dumplimit(200000000);
    $dumpvars(0);
  end
endmodule
