"""A folder with a design that needs everything which a folder can state: given files, a package, an include, macros,
plusargs, two answer files, and data for the design and for its Verilog bench."""

FILES = {
    "problem.toml": """\
answer = ["rtl/scaler.sv", "rtl/doubler.v"]
define = { FAST = 1, WIDTH = 8 }
[bench]
verilog = ["tb/tb_scaler.sv"]
pass = "no error"
plusargs = ["+COUNT=40"]
""",
    "spec.md": "Module scaler: `y` is twice `a` plus `OFFSET` plus rom[a[1:0]], at most LIMIT. Ports a, y of WIDTH bits.\n",
    "rtl/inc/defs.vh": "`ifndef DEFS_VH\n`define DEFS_VH\n`define OFFSET 3\n`endif\n",
    "rtl/consts.sv": "package consts;\n  localparam LIMIT = 200;\nendpackage\n",
    "rtl/clamp.v": "module clamp(input [9:0] a, output [`WIDTH-1:0] y);\n  assign y = a > consts::LIMIT ? consts::LIMIT : a;\nendmodule\n",
    "rtl/doubler.v": "module doubler(input [`WIDTH-1:0] a, output [`WIDTH:0] y);\n  assign y = a + a;\nendmodule\n",
    "rtl/scaler.sv": """\
`include "defs.vh"
module scaler(input [`WIDTH-1:0] a, output [`WIDTH-1:0] y);
  reg [7:0] rom [0:3];
  wire [`WIDTH:0] twice;
  initial $readmemh("rom.hex", rom);
  doubler d(.a(a), .y(twice));
  clamp c(.a(twice + `OFFSET + rom[a[1:0]]), .y(y));
endmodule
""",
    "rtl/rom.hex": "00\n01\n02\n04\n",
    "tb/vectors.hex": "00\n01\n02\n04\n",
    "tb/checks.vh": "`define CHECK(got, want) if (got !== want) $error(\"%0d, not %0d\", got, want)\n",
    "tb/tb_scaler.sv": """\
`timescale 1ns/1ps
`include "defs.vh"
`include "checks.vh"
module tb_scaler;
  import consts::*;
  reg [7:0] rom [0:3];
  reg [7:0] a;
  wire [7:0] y;
  integer count, i, want;
  scaler dut(.a(a), .y(y));
  initial begin
    $readmemh("tb/vectors.hex", rom);
    if (!$value$plusargs("COUNT=%d", count)) count = 1;
    if (count < 2) $fatal(1, "no plusarg");
`ifndef FAST
    $error("no macro");
`endif
    for (i = 0; i < count; i = i + 1) begin
      a = $random;
      #1 want = a + a + `OFFSET + rom[a[1:0]];
      `CHECK(y, (want > LIMIT ? LIMIT : want));
    end
    $finish;
  end
endmodule
""",
}  # fmt: skip
