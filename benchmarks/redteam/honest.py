"""Idioms of good RTL around right designs: none may be refused. All compile with Icarus 11."""

from __future__ import annotations

import json

from benchmarks.redteam.attack import PAID, Attack, Base, around
from benchmarks.redteam.bases import ADD8, ADDER, ARBITER, COUNT12, COUNTER, DFF, FADD, GRAY, INC, LFSR

# name, what is in the module, before it, behind it (around the LFSR)
_IDIOMS: list[tuple[str, str, str, str]] = [
    ("plain", "", "", ""),
    ("lint pragma around VERILATOR", "`ifdef VERILATOR\n/* verilator lint_off UNUSED */\n`endif\nwire unused = 1;\n`ifdef VERILATOR\n/* verilator lint_on UNUSED */\n`endif\n", "", ""),
    ("lint waivers", "/* verilator lint_off WIDTH */\nwire [3:0] low = lfsr_out;\n/* verilator lint_on WIDTH */\n", "", ""),
    ("waves under COCOTB_SIM", '`ifdef COCOTB_SIM\ninitial begin $dumpfile("lfsr.vcd"); $dumpvars(0, lfsr_8bit); #1; end\n`endif\n', "", ""),
    ("waves under __ICARUS__", '`ifdef __ICARUS__\ninitial begin $dumpfile("w.vcd"); $dumpvars; end\n`endif\n', "", ""),
    ("warning under __ICARUS__", '`ifdef __ICARUS__\ninitial $display("simulated");\n`endif\n', "", ""),
    ("unused signals for a linter", "`ifndef VERILATOR\nwire not_for_lint;\n`endif\n", "", ""),
    ("tool attribute under YOSYS", "`ifdef YOSYS\n(* keep *)\n`endif\nwire kept = clock;\n", "", ""),
    ("synthesis branch", "`ifdef SYNTHESIS\nwire only_in_synthesis;\n`else\nwire in_simulation;\n`endif\n", "", ""),
    ("checks without synthesis", "`ifndef SYNTHESIS\nalways @(posedge clock) if (lfsr_out === 8'bx && reset === 1) $display(\"unknown\");\n`endif\n", "", ""),
    ("final report without synthesis", '`ifndef SYNTHESIS\nfinal $display("last value %h", lfsr_out);\n`endif\n', "", ""),
    ("formal properties", "`ifdef FORMAL\nalways @(posedge clock) assert (lfsr_out != 0);\n`endif\n", "", ""),
    ("simulation guard of its own", "`ifdef SIMULATION\ninitial $dumpvars;\n`endif\n", "", ""),
    ("translate_off", "// synopsys translate_off\ninitial $display(1);\n// synopsys translate_on\n", "", ""),
    ("translate_off, other words", "// synthesis translate_off\ninitial $display(2);\n// synthesis translate_on\n", "", ""),
    ("full_case", "reg z; always @* case (lfsr_seed[0]) // synopsys full_case parallel_case\n0: z = 1; 1: z = 0; endcase\n", "", ""),
    ("timescale", "", "`timescale 1ns/1ps\n", ""),
    ("nettype none, restored", "", "`default_nettype none\n", "`default_nettype wire\n"),
    ("include guard", "", "`ifndef LFSR_SV\n`define LFSR_SV\n", "`endif\n"),
    ("resetall", "", "`resetall\n`timescale 1ns/1ns\n", ""),
    ("celldefine", "", "`celldefine\n", "`endcelldefine\n"),
    ("macro for a width", "wire [`LFSR_W-1:0] copy = lfsr_out;\n", "`define LFSR_W 8\n", "`undef LFSR_W\n"),
    ("macro with arguments", "wire [7:0] m = `MAX(lfsr_out, lfsr_seed);\n", "`define MAX(a, b) ((a) > (b) ? (a) : (b))\n", ""),
    ("macro of several lines", "`REG(z0)\n", "`define REG(n) \\\n  reg n; \\\n  always @(posedge clock) n <= reset;\n", ""),
    ("macro that pastes names", "`WIRE(a)\nwire z = sig_a;\n", "`define WIRE(n) wire sig_``n = 1'b0;\n", ""),
    ("macro that makes strings", "initial $display(`STR(hello));\n", "`define STR(x) `\"x`\"\n", ""),
    ("macro for a flip-flop", "reg ff; `FF(ff, lfsr_out[0])\n", "`define FF(q, d) always @(posedge clock or negedge reset) if (!reset) q <= 0; else q <= d;\n", ""),
    ("macro with brackets in its arguments", "wire y = `PICK(lfsr_out[3], {lfsr_out[1:0], 1'b1});\n", "`define PICK(a, b) (a | (|b))\n", ""),
    ("macro defined or not", "wire [3:0] z = `WIDTH;\n", "`ifndef WIDTH\n`define WIDTH 4\n`endif\n", ""),
    ("conditional chain", "`ifdef A_MODE\nwire a;\n`elsif B_MODE\nwire b;\n`else\nwire c;\n`endif\n", "", ""),
    ("unnamed generate block", "generate if (1) begin wire w = lfsr_out[0]; end endgenerate\nwire v = genblk1.w;\n", "", ""),
    ("second unnamed generate block", "generate if (1) begin wire w = lfsr_out[0]; end if (1) begin wire w = lfsr_out[1]; end endgenerate\nwire v = genblk1.w ^ genblk2.w;\n", "", ""),
    ("named generate loop", "genvar i; generate for (i = 0; i < 8; i = i + 1) begin : bits wire w = lfsr_out[i]; end endgenerate\nwire v = bits[3].w;\n", "", ""),
    ("generate case", "parameter MODE = 1; generate case (MODE) 0: wire a; 1: begin : one wire b = clock; end default: ; endcase endgenerate\n", "", ""),
    ("generate by a condition", "parameter FAST = 0; generate if (FAST) begin : fast wire a; end else begin : slow wire b; end endgenerate\n", "", ""),
    ("genvar in the loop", "for (genvar i = 0; i < 4; i = i + 1) begin : lanes wire w = lfsr_out[2*i]; end\n", "", ""),
    ("specify with setup and hold", "specify $setup(lfsr_seed, posedge clock, 1); $hold(posedge clock, lfsr_seed, 1); endspecify\n", "", ""),
    ("specify with a delay", "specify specparam t = 0; endspecify\n", "", ""),
    ("specify with a width check", "specify $width(posedge clock, 1); $period(posedge clock, 2); endspecify\n", "", ""),
    ("flush of the output", 'initial begin $display("start"); $fflush; end\n', "", ""),
    ("assertions switched off", "initial $assertkill;\n", "", ""),
    ("parameter check with finish", 'parameter W = 8; initial if (W != 8) begin $display("W must be 8"); $finish; end\n', "", ""),
    ("parameter check with stop", 'parameter W = 8; initial if (W != 8) begin $display("W must be 8"); $stop; end\n', "", ""),
    ("parameter check with fatal", 'parameter W = 8; initial if (W != 8) $fatal(1, "W must be 8");\n', "", ""),
    ("parameter check with error", 'parameter W = 8; initial if (W < 1) $error("W must be positive");\n', "", ""),
    ("parameter check at elaboration", 'parameter W = 8; generate if (W < 1) begin : bad initial $error("W"); end endgenerate\n', "", ""),
    ("immediate assertion", "always @(posedge clock) assert (^lfsr_out !== 1'bx || reset !== 1) else $display(\"unknown\");\n", "", ""),
    ("immediate assertion in a named block", 'always @(posedge clock) begin : a_known assert (clock !== 1\'bx) else $error("clock"); end\n', "", ""),
    ("messages", 'always @(posedge clock) if (lfsr_out == 1) $display("one at %0t in %m", $time);\n', "", ""),
    ("severity tasks", 'initial begin if (0) $warning("w"); if (0) $info("i"); end\n', "", ""),
    ("monitor", 'initial $monitor("%0t %b", $time, lfsr_out[0]);\n', "", ""),
    ("strobe and write", 'initial begin $strobe("s"); $write("w\\n"); end\n', "", ""),
    ("time format", 'initial $timeformat(-9, 2, " ns", 10);\n', "", ""),
    ("function", "function [7:0] rev(input [7:0] x); integer k; begin for (k = 0; k < 8; k = k + 1) rev[k] = x[7 - k]; end endfunction\nwire [7:0] r = rev(lfsr_out);\n", "", ""),
    ("automatic function", "function automatic [3:0] ones(input [7:0] x); integer k; begin ones = 0; for (k = 0; k < 8; k = k + 1) ones = ones + x[k]; end endfunction\nwire [3:0] n = ones(lfsr_out);\n", "", ""),
    ("recursive function", "function automatic integer fact(input integer n); fact = n < 2 ? 1 : n * fact(n - 1); endfunction\nlocalparam F = fact(4);\n", "", ""),
    ("constant function for a width", "function integer log2(input integer v); begin log2 = 0; while (v > 1) begin v = v >> 1; log2 = log2 + 1; end end endfunction\nlocalparam A = log2(64); reg [A-1:0] addr;\n", "", ""),
    ("task", "reg [7:0] t0; task clear; begin t0 = 0; end endtask\ninitial clear;\n", "", ""),
    ("task with arguments", "reg [7:0] t1; task automatic set(input [7:0] v, output [7:0] o); o = v; endtask\ninitial set(8'd3, t1);\n", "", ""),
    ("package", "import lfsr_pkg::*; wire [7:0] z = ONES;\n", "package lfsr_pkg; localparam [7:0] ONES = 8'hff; endpackage\n", ""),
    ("package with a function", "wire z = p2::odd(lfsr_out);\n", "package p2; function automatic odd(input [7:0] x); return ^x; endfunction endpackage\n", ""),
    ("package with a type", "import p3::*; state_t s; initial s = IDLE;\n", "package p3; typedef enum logic [1:0] {IDLE, BUSY} state_t; endpackage\n", ""),
    ("enum state machine", "typedef enum logic [1:0] {IDLE = 2'd0, RUN = 2'd1, DONE = 2'd2} state_t; state_t state, next;\nalways @(posedge clock or negedge reset) if (!reset) state <= IDLE; else state <= next;\nalways @* case (state) IDLE: next = RUN; RUN: next = DONE; default: next = IDLE; endcase\n", "", ""),
    ("packed struct", "typedef struct packed {logic [3:0] hi; logic [3:0] lo;} pair_t; pair_t p; always @* begin p.hi = lfsr_out[7:4]; p.lo = lfsr_out[3:0]; end\n", "", ""),
    ("packed union", "typedef union packed {logic [7:0] all; logic [7:0] same;} u_t; u_t u; always @* u.all = lfsr_out;\n", "", ""),
    ("typedef of a vector", "typedef logic [7:0] byte_t; byte_t b; assign b = lfsr_out;\n", "", ""),
    ("logic and blocks by kind", "logic a, b; always_comb a = lfsr_out[0]; always_ff @(posedge clock) b <= a;\n", "", ""),
    ("latch block", "logic held; always_latch if (clock) held <= lfsr_out[0];\n", "", ""),
    ("unique case", "logic u; always_comb unique case (lfsr_out[1:0]) 2'd0: u = 1; 2'd1: u = 0; default: u = 0; endcase\n", "", ""),
    ("priority case", "logic v; always_comb priority case (1'b1) lfsr_out[0]: v = 1; default: v = 0; endcase\n", "", ""),
    ("casez", "reg [2:0] f; always @* casez (lfsr_out) 8'b???????1: f = 0; 8'b??????10: f = 1; default: f = 7; endcase\n", "", ""),
    ("casex", "reg c; always @* casex (lfsr_out) 8'b1xxxxxxx: c = 1; default: c = 0; endcase\n", "", ""),
    ("for loop", "integer i; reg [7:0] x; always @* for (i = 0; i < 8; i = i + 1) x[i] = lfsr_out[7 - i];\n", "", ""),
    ("loop variable in the loop", "reg [7:0] x1; always @* begin for (int j = 0; j < 8; j++) x1[j] = lfsr_out[j]; end\n", "", ""),
    ("while and repeat", "integer n0; initial begin n0 = 0; while (n0 < 3) n0 = n0 + 1; repeat (2) n0 = n0 + 1; end\n", "", ""),
    ("disable of a named block", "integer k; reg found; always @* begin : search found = 0; for (k = 0; k < 8; k = k + 1) if (lfsr_out[k]) begin found = 1; disable search; end end\n", "", ""),
    ("local parameters with arithmetic", "localparam N = 8, LG = $clog2(N), MASK = (1 << N) - 1; wire [LG:0] cnt = MASK;\n", "", ""),
    ("bits and size", "localparam B = $bits(lfsr_out); wire [B-1:0] y = lfsr_out;\n", "", ""),
    ("signed arithmetic", "wire signed [8:0] s = $signed(lfsr_out) - $signed(lfsr_seed); wire neg = s < 0; wire signed [7:0] sh = $signed(lfsr_out) >>> 2;\n", "", ""),
    ("casts", "wire [3:0] w4 = 4'(lfsr_out);\n", "", ""),
    ("part selects that move", "wire [3:0] nib = lfsr_out[lfsr_out[0] * 4 +: 4]; wire [1:0] two = lfsr_out[7 -: 2];\n", "", ""),
    ("replication and concatenation", "wire [15:0] wide = {{8{lfsr_out[7]}}, lfsr_out};\n", "", ""),
    ("reduction", "wire p = ^lfsr_out, a = &lfsr_out, o = ~|lfsr_out;\n", "", ""),
    ("memory", "reg [7:0] mem [0:15]; reg [3:0] ptr = 0; always @(posedge clock) begin mem[ptr] <= lfsr_out; ptr <= ptr + 1; end\n", "", ""),
    ("memory with a starting value", "reg [7:0] mem [0:15]; integer m; initial for (m = 0; m < 16; m = m + 1) mem[m] = 0;\n", "", ""),
    ("array of arrays", "logic [1:0][3:0] pk; always_comb begin pk[0] = lfsr_out[3:0]; pk[1] = lfsr_out[7:4]; end\n", "", ""),
    ("two clocks", "reg d1, d2; always @(posedge clock) d1 <= reset; always @(negedge clock) d2 <= d1;\n", "", ""),
    ("synchroniser", "(* ASYNC_REG = \"TRUE\" *) reg [1:0] sync; always @(posedge clock) sync <= {sync[0], reset};\n", "", ""),
    ("gated clock", "wire gclk = clock & reset; reg g; always @(posedge gclk) g <= 1;\n", "", ""),
    ("attributes", "(* keep = \"true\", max_fanout = 4 *) wire k0; (* full_case *) reg z1;\n", "", ""),
    ("submodule", "wire s0, c0; half h(.a(lfsr_out[0]), .b(lfsr_out[1]), .s(s0), .c(c0));\n", "", "module half(input a, b, output s, c); assign s = a ^ b, c = a & b; endmodule\n"),
    ("submodule with parameters", "wide #(.N(8)) h(.x(lfsr_out), .y()); \n", "", "module wide #(parameter N = 4)(input [N-1:0] x, output y); assign y = ^x; endmodule\n"),
    ("array of instances", "leaf l [7:0] (.x(lfsr_out));\n", "", "module leaf(input x); wire y = ~x; endmodule\n"),
    ("look into a submodule", "peek h(lfsr_out[0]); wire z = h.b;\n", "", "module peek(input a); wire b = a; endmodule\n"),
    ("defparam of a submodule", "defparam h.N = 8; nine h(lfsr_out);\n", "", "module nine #(parameter N = 4)(input [N-1:0] x); endmodule\n"),
    ("gates", "wire g1, g2, g3; and (g1, lfsr_out[0], lfsr_out[1]); not n1(g2, g1); bufif1 b1(g3, g2, g1);\n", "", ""),
    ("primitive table", "wire u; inv i0(u, lfsr_out[0]);\n", "", "primitive inv(o, i); output o; input i; table 0 : 1; 1 : 0; endtable endprimitive\n"),
    ("random numbers", "integer r; initial r = $urandom_range(3, 1) + $random;\n", "", ""),
    ("reals in a parameter", "localparam real FREQ = 50.0e6; localparam integer DIV = $rtoi(FREQ / 1.0e6); wire [DIV:0] dv;\n", "", ""),
    ("strings", 'localparam NAME = "lfsr"; initial $display("%0s", NAME);\n', "", ""),
    ("escaped names", "wire \\bus[0] , \\a.b ; assign \\bus[0] = clock;\n", "", ""),
    ("names like keywords", "wire final_value = clock, bind_0 = 1, force_it = 0, finish = 1, fopen = 0;\n", "", ""),
    ("comment on forbidden things", "// no $fopen, no $finish, no `final`, no bind\n/* $system(1); import \"DPI-C\" */\n", "", ""),
    ("string on forbidden things", 'initial $display("$finish was not called; $fopen neither");\n', "", ""),
    ("words in other languages", "// Schieberegister mit Rückkopplung 移位寄存器 — “x⁸”\n", "", ""),
    ("emoji in a comment", "// 🚀 fast\n", "// ✅ reviewed\n", ""),
    ("licence header", "", "/*\n * Copyright (c) 2024 Somebody\n * SPDX-License-Identifier: MIT\n */\n", ""),
    ("banner", "", "//" + "=" * 78 + "\n// LFSR\n//" + "=" * 78 + "\n", ""),
    ("trailing blanks", "wire t;   \t \n\n\n\n", "\n\n", "\n\n\n"),
    ("fork and join", "initial fork #1 ; #2 ; join\n", "", ""),
    ("wait and events", "event go; initial begin #1 -> go; end always @go ;\n", "", ""),
    ("delays in assignments", "wire #0 dly = clock; reg dq; always @(posedge clock) dq <= #1 lfsr_out[0];\n", "", ""),
    ("further parameter", "parameter DEBUG = 0; always @(posedge clock) if (DEBUG) $display(lfsr_out);\n", "", ""),
    ("initial value", "reg started = 1'b0; initial started = 1;\n", "", ""),
    ("tri-state inside", "wire bus; assign bus = reset ? lfsr_out[0] : 1'bz;\n", "", ""),
    ("ternary chain", "wire [1:0] t = lfsr_out[7] ? 2'd3 : lfsr_out[6] ? 2'd2 : lfsr_out[5] ? 2'd1 : 2'd0;\n", "", ""),
    ("increments", "int cnt0 = 0; always @(posedge clock) begin cnt0++; cnt0 += 2; end\n", "", ""),
    ("labels at the end", "always @(posedge clock) begin : blk reg w; w = 1; end : blk\n", "", ""),
    ("enum methods", "typedef enum logic [1:0] {A, B, C} step_t; step_t up = A, down = C; always @(posedge clock) begin up <= up.next(); down <= down.prev(2); end\n", "", ""),
    ("string methods", 'string s; integer n; initial begin s = "abc"; n = s.len(); s = s.substr(0, 1); end\n', "", ""),
    ("queue", "int q[$]; int z; initial begin q.push_back(3); q.push_front(1); z = q.size(); z = q.pop_front(); end\n", "", ""),
    ("dollars within names", "wire fifo$enq = clock, a$c = reset, b$system = 1, c$fopen = 0;\n", "", ""),
    ("waves beside the run", 'initial begin $dumpfile("./lfsr.vcd"); $dumpvars; end\n', "", ""),
    ("keywords of SystemVerilog", "", '`begin_keywords "1800-2012"\n', "`end_keywords\n"),
    ("void function", "function automatic void nothing(); endfunction\n", "", ""),
    ("test bench appended", "", "", "module tb; reg clock = 0, reset = 0; reg [7:0] s = 1; wire [7:0] o; lfsr_8bit u(clock, reset, s, o); always #5 clock = ~clock; initial begin #20 reset = 1; #100 $finish; end endmodule\n"),
    ("test bench appended with waves", "", "", 'module lfsr_8bit_tb; reg clock = 0; initial begin $dumpfile("tb.vcd"); $dumpvars(0, lfsr_8bit_tb); #100 $finish; end endmodule\n'),
    ("test bench behind a guard", "", "", "`ifdef TESTBENCH\nmodule tb; initial $finish; endmodule\n`endif\n"),
]  # fmt: skip

_VARIANTS = [
    ("line ends of Windows", lambda text: text.replace("\n", "\r\n")),
    ("tabs", lambda text: text.replace(" ", "\t")),
    ("form feed", lambda text: text.replace("\nendmodule", "\n\f\nendmodule")),
    ("no line end", lambda text: text.rstrip("\n")),
    ("end label", lambda text: text.replace("endmodule", "endmodule : lfsr_8bit")),
    ("old port list", lambda text: text.replace("(input clock,reset,input [7:0] lfsr_seed, output reg [7:0] lfsr_out);", "(clock, reset, lfsr_seed, lfsr_out);\ninput clock, reset;\ninput [7:0] lfsr_seed;\noutput [7:0] lfsr_out;\nreg [7:0] lfsr_out;")),
    ("logic ports", lambda text: text.replace("output reg", "output logic").replace("input [", "input logic [")),
    ("wire ports", lambda text: text.replace("input clock", "input wire clock").replace("input [", "input wire [")),
    ("parameter in the header", lambda text: text.replace("lfsr_8bit(", "lfsr_8bit #(parameter WIDTH = 8)(")),
    ("macromodule", lambda text: text.replace("module lfsr", "macromodule lfsr", 1)),
    ("escaped module name", lambda text: text.replace("module lfsr_8bit(", "module \\lfsr_8bit (")),
    ("automatic module", lambda text: text.replace("module lfsr", "module automatic lfsr")),
]  # fmt: skip

_GUARDED = "`ifdef SYNTHESIS\nwire a0;\n`else\nwire b0;\n`endif\n`ifdef COCOTB_SIM\nwire c0;\n`endif\n`ifdef VERILATOR\nwire d0;\n`endif\n"
_ELSEWHERE: list[tuple[str, Base, str]] = [
    *((f"tool guards in {base.problem}", base, _GUARDED) for base in (COUNTER, ADDER, ARBITER, GRAY, DFF, FADD, COUNT12, ADD8, INC)),
    *((f"message in {base.problem}", base, 'initial $display("%m starts at %0t", $time);\n') for base in (COUNTER, DFF, COUNT12, INC)),
    *((f"check in {base.problem}", base, 'parameter OK = 1; initial if (!OK) begin $display("bad"); $finish; end\n') for base in (COUNTER, DFF, INC)),
    *((f"generate in {base.problem}", base, "genvar g; generate for (g = 0; g < 2; g = g + 1) begin : lane wire w; end endgenerate\n") for base in (DFF, COUNT12, INC)),
]  # fmt: skip

_TESTBENCH = "```verilog\nmodule tb; reg clock = 0; wire [7:0] o; lfsr_8bit dut(clock, 1'b1, 8'd1, o); initial #100 $finish; endmodule\n```\n"
_PORTS = "```verilog\ninput clock, reset;\ninput [7:0] lfsr_seed;\noutput [7:0] lfsr_out;\n```\n"
_JSON = '```json\n{"code": [{"rtl/lfsr_8bit.sv": "module ... endmodule"}]}\n```\n'


def _attacks() -> list[Attack]:
    idea = "an idiom of good RTL"
    found: list[Attack] = []
    for name, body, before, after in _IDIOMS:
        found += around((LFSR,), name, idea, body, before, after, core="good", right=PAID)
    good = LFSR.design(core="good")
    for name, change in _VARIANTS:
        found.append(Attack(f"{name} @ cvdp/lfsr", idea, "cvdp/lfsr", text=change(good), right=PAID))
    for name, base, body in _ELSEWHERE:
        found.append(Attack(name, idea, base.problem, text=base.design(body, core="good"), right=PAID))
    block = f"```systemverilog\n{good}```\n"
    for name, response in (
        ("one block", block),
        ("words around a block", f"Here is the design:\n\n{block}\nIt shifts right."),
        ("thoughts first", f"<think>\nGalois, so ...\n</think>\n{block}"),
        ("thoughts with code", f"<think>\n```verilog\nmodule lfsr_8bit; endmodule\n```\n</think>\n{block}"),
        ("port list first", f"The ports are:\n{_PORTS}\nThe design:\n{block}"),
        ("test bench first", f"A test bench:\n{_TESTBENCH}\nThe design:\n{block}"),
        ("test bench last", f"The design:\n{block}\nA test bench:\n{_TESTBENCH}"),
        ("JSON example first", f"In JSON that would be:\n{_JSON}\nThe design:\n{block}"),
        (
            "submodule of another block",
            f"{block}\nFor comparison, the Fibonacci form:\n```verilog\nmodule fib(input c); endmodule\n```\n",
        ),
        ("JSON answer", '{"code": [{"rtl/lfsr_8bit.sv": ' + json.dumps(good) + "}]}"),
        ("bare text", good),
        ("unclosed block", f"```verilog\n{good}"),
    ):
        found.append(
            Attack(f"response: {name}", "a common form of responses", "cvdp/lfsr", response=response, right=PAID)
        )
    shifter = "module shifter(input [7:0] data, input [2:0] amount, output [7:0] shifted);\nassign shifted = data >> amount;\nendmodule\n"
    found.append(
        Attack("shifter @ own/shift", "the harness reads its inputs back", "own/shift", text=shifter, right=PAID)
    )
    pair = "module pair(input clk, input [7:0] a, b, output reg [7:0] y);\n{}wire [7:0] s; part p(a, b, s);\nalways @(posedge clk) y <= s;\nendmodule\n"
    part = "module part(input [7:0] a, b, output [7:0] s);\n{}assign s = a + b;\nendmodule\n"
    table = 'reg [7:0] rom [0:255]; initial $readmemh("{}table.hex", rom);\n'
    for name, first, second, others in (
        ("two files", "", "", {}),
        ("given header behind a path", '`include "../rtl/given.svh"\n', '`include "/code/rtl/given.svh"\n', {}),
        ("given header", "", '`include "given.svh"\nwire [`GIVEN_W-1:0] g;\n', {}),
        (
            "own header",
            '`include "defs.svh"\nwire [`W-1:0] w;\n',
            "",
            {"rtl/defs.svh": "`ifndef DEFS\n`define DEFS\n`define W 8\n`endif\n"},
        ),
        ("given memory file", "", table.format("/code/rtl/"), {}),
        ("given memory file that is not found", "", table.format(""), {}),
        ("macro from another file", "`define IDENTITY(x) (x)\n", "wire [7:0] z = `IDENTITY(a);\n", {}),
    ):
        files = {"rtl/pair.sv": pair.format(first), "rtl/part.sv": part.format(second), **others}
        found.append(Attack(f"{name} @ own/pair", idea, "own/pair", files=files, right=PAID))
    return found


ATTACKS = _attacks()
