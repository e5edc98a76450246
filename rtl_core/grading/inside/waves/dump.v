// Dumps all signals to the file that a run of the simulator names. The gate knows the module's name: it is that of cocotb's own dumper.
module cocotb_iverilog_dump;
  reg [8*64:1] path;
  initial
    if ($value$plusargs("rtl_waves=%s", path)) begin
      $dumpfile(path);
      $dumplimit(200000000);
      $dumpvars(0);
    end
endmodule
