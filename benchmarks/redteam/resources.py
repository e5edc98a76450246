"""Answers that would take time, memory or output without bound: each must end in time, by the answer's own fault."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.redteam.attack import Attack, around
from benchmarks.redteam.bases import COUNTER, DFF, LFSR

_LOOP = "genvar i; generate for (i = 0; i < {}; i = i + 1) begin : g {} end endgenerate\n"
# name, idea, body, text behind the module
_COMPILE = [
    ("a million wires", "elaboration makes an object each", _LOOP.format("1000000", "wire w;"), ""),
    ("a thousand million wires", "the same without an end in sight", _LOOP.format("1000000000", "wire w;"), ""),
    ("a thousand million wires, nested", "three loops of a thousand", "genvar i, j, k; generate for (i = 0; i < 1000; i = i + 1) begin : a for (j = 0; j < 1000; j = j + 1) begin : b for (k = 0; k < 1000; k = k + 1) begin : c wire w; end end end endgenerate\n", ""),
    ("generate loop that never ends", "its step is 0", "genvar i; generate for (i = 0; i < 8; i = i + 0) begin : g wire w; end endgenerate\n", ""),
    ("generate loop that overflows", "its bound is beyond the genvar", _LOOP.format("64'h1_0000_0000", ""), ""),
    ("2^30 instances", "an array of instances", "leaf l [1073741823:0] (1'b0);\n", "module leaf(input x); endmodule\n"),
    ("2^31 instances", "one more bit", "leaf l [2147483647:0] (1'b0);\n", "module leaf(input x); endmodule\n"),
    ("2^20 instances with state", "an array of instances with processes", "leaf l [1048575:0] (1'b0);\n", "module leaf(input x); reg r; always @(x) r = x; endmodule\n"),
    ("2^30 gates", "an array of gates", "and g [1073741823:0] (w, 1'b1, 1'b0); wire w;\n", ""),
    ("module within itself", "endless elaboration", "again a();\n", "module again; again b(); endmodule\n"),
    ("two modules within each other", "the same in two steps", "ping a();\n", "module ping; pong b(); endmodule\nmodule pong; ping b(); endmodule\n"),
    ("module that doubles", "two of itself, by a parameter, forty deep", "twice #(40) a();\n", "module twice #(parameter N = 1); generate if (N > 0) begin twice #(N - 1) b(); twice #(N - 1) c(); end endgenerate endmodule\n"),
    ("module that grows", "by a parameter that never ends", "up #(1) a();\n", "module up #(parameter N = 1); generate if (N > 0) up #(N + 1) b(); endgenerate endmodule\n"),
    ("constant function that never ends", "computed by the compiler", "function integer f(input integer x); begin f = 0; while (1) f = f + x; end endfunction\nlocalparam P = f(1);\n", ""),
    ("constant function that takes long", "thousand million turns", "function integer f(input integer x); integer i; begin f = 0; for (i = 0; i < 1000000000; i = i + 1) f = f + x; end endfunction\nlocalparam P = f(1);\n", ""),
    ("constant function that recurses", "the compiler's stack", "function automatic integer f(input integer x); f = f(x + 1); endfunction\nlocalparam P = f(1);\n", ""),
    ("constant function of Ackermann", "small numbers, endless work", "function automatic integer f(input integer m, n); f = m == 0 ? n + 1 : n == 0 ? f(m - 1, 1) : f(m - 1, f(m, n - 1)); endfunction\nlocalparam P = f(4, 3);\n", ""),
    ("width from a huge power", "a number of a thousand million bits", "localparam P = 2 ** (2 ** 30); wire [P:0] w;\n", ""),
    ("product of huge constants", "arithmetic of the compiler", "localparam [16777215:0] P = ~0, Q = P * P * P;\nwire w = ^Q;\n", ""),
    ("division of huge constants", "the same with a division", "localparam [1048575:0] P = ~0, Q = P / 3, R = P % Q;\nwire w = ^R;\n", ""),
    ("repetition of 2^30", "a vector made of copies", "wire [1073741823:0] w = {1073741824{1'b1}};\n", ""),
    ("a vector of 16 million bits", "kept and computed every clock", "reg [16777215:0] v = 1; always @(posedge clk) v <= v * 3;\n", ""),
    ("a vector of 2^31 bits", "more than an index holds", "reg [2147483647:0] v;\n", ""),
    ("a vector of negative width", "bounds that overflow", "reg [-2147483648:2147483647] v;\n", ""),
    ("a memory of 2^26 words", "eight gigabytes", "reg [1023:0] m [0:67108863]; initial m[5] = 1;\n", ""),
    ("a memory of 2^40 words", "beyond an index", "reg m [0:1099511627775]; initial m[5] = 1;\n", ""),
    ("a memory of many dimensions", "a product of small numbers", "reg m [0:999][0:999][0:999]; initial m[0][0][0] = 1;\n", ""),
    ("a thousand memories", "each within the limit", "genvar i; generate for (i = 0; i < 1000; i = i + 1) begin : g reg [255:0] m [0:65535]; end endgenerate\n", ""),
    ("case of a thousand million items", "a loop unrolled", "integer i; always @* for (i = 0; i < 1000000000; i = i + 1) if (i == 7) ;\n", ""),
    ("assertion over a long time", "a sequence of a thousand million steps", "assert property (@(posedge clk) 1 ##[1:1000000000] 1);\n", ""),
]  # fmt: skip

_RUN = [
    ("femtosecond clock", "a million million events", "`timescale 1fs/1fs\n", "initial forever #1 ;\n"),
    ("busy wait", "a loop without time", "", "reg r; always @(clk) while (1) r = ~r;\n"),
    ("zero-delay ring", "three blocks wake each other", "", "reg a = 0, b = 0, c = 0; always @(a) b = #0 ~a; always @(b) c = #0 b; always @(c) a = #0 c;\n"),
    ("endless output", "text without end", "", 'always @(posedge clk) forever $display("%0d aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 1);\n'),
    ("endless output without lines", "one line without end", "", 'always @(posedge clk) forever $write("aaaaaaaaaaaaaaaa");\n'),
    ("output of a huge vector", "sixteen million digits", "", 'reg [16777215:0] v; initial $display("%b %d", v, v);\n'),
    ("endless warnings", "the simulator's own messages", "", "reg [7:0] m [0:1]; integer i; initial forever begin $readmemh(\"table.hex\", m); end\n"),
    ("waves of a huge vector", "a wave file without end", "", 'reg [65535:0] v = 0; initial begin $dumpfile("w.vcd"); $dumpvars; end always @(posedge clk) repeat (9999) #1 v = ~v;\n'),
    ("processes", "a million threads of the simulation", "", "integer i; initial for (i = 0; i < 10000000; i = i + 1) fork #1000000; join_none\n"),
    ("processes that double", "each starts two", "", "task automatic t; fork t; t; join_none endtask\ninitial t;\n"),
    ("events that double", "each change makes two", "", "reg [31:0] n = 1; always @(n) repeat (2) n <= #1 n + 1;\n"),
    ("scheduled assignments", "a queue of future events", "", "integer i; reg r; initial for (i = 0; i < 100000000; i = i + 1) r <= #(i + 1000) 1;\n"),
    ("recursion", "the stack of the simulation", "", "function automatic integer r(input integer n); r = r(n + 1) + 1; endfunction\ninteger q; initial q = r(0);\n"),
    ("string that grows", "a string doubles each turn", "", 'string s = "x"; initial forever s = {s, s};\n'),
    ("queue that grows", "a queue without end", "", "int q[$]; initial forever q.push_back(1);\n"),
    ("dynamic array", "one allocation of everything", "", "int a[]; initial a = new[2000000000];\n"),
    ("class objects", "objects without end", "", ""),
    ("format into a small register", "a huge text is made each turn", "", 'reg [7:0] r; reg [1048575:0] v; initial forever $sformat(r, "%b%b%b%b", v, v, v, v);\n'),
    ("division every time", "a wide division each clock", "", "reg [524287:0] v = ~0; always @(clk) v = v / 3 + 1;\n"),
    ("power of wide numbers", "a wide power each clock", "", "reg [16383:0] v = 3; always @(clk) v = v ** v;\n"),
    ("sleep", "waiting is not computing", "", "initial #1000000000000 $display(1);\n"),
    ("real numbers", "a loop over reals that never ends", "", "real r; initial for (r = 1.0; r > 0.0; r = r + 1.0) ;\n"),
]  # fmt: skip
_CLASS = "class node; node next; endclass\n"


def _doubling(depth: int, width: int = 10) -> str:
    lines = ["`define A0 " + "x " * width] + [f"`define A{i} " + f"`A{i - 1} " * width for i in range(1, depth)]
    return "\n".join(lines) + "\n"


# Made when they are needed: some are megabytes.
_TEXTS: list[tuple[str, str, Callable[[], str]]] = [
    ("macros that multiply", "ten times ten times ten ...", lambda: LFSR.design("`A11\n", _doubling(12))),
    ("macros that multiply in a string", "the same in a string", lambda: LFSR.design('initial $display("`A11");\n', _doubling(12))),
    ("macro arguments that multiply", "an argument used twice, thirty deep", lambda: LFSR.design("wire w = `" + "D(`" * 29 + "D(1'b1)" + ")" * 29 + ";\n", "`define D(x) x^x\n")),
    ("includes of itself", "a file that includes itself", lambda: LFSR.design(before='`include "lfsr_8bit.sv"\n')),
    ("deep brackets", "an expression of a hundred thousand brackets", lambda: LFSR.design("wire w = " + "(" * 100_000 + "1" + ")" * 100_000 + ";\n")),
    ("deep negation", "a hundred thousand operators", lambda: LFSR.design("wire w = " + "~" * 200_000 + "clock;\n")),
    ("deep blocks", "a hundred thousand blocks", lambda: LFSR.design("initial " + "begin " * 100_000 + "end " * 100_000 + "\n")),
    ("deep conditions", "twenty thousand conditions", lambda: LFSR.design("wire w = " + "clock ? 1 : (" * 20_000 + "0" + ")" * 20_000 + ";\n")),
    ("deep concatenation", "fifty thousand braces", lambda: LFSR.design("wire w = " + "{" * 50_000 + "clock" + "}" * 50_000 + ";\n")),
    ("long expression", "a sum of a hundred thousand terms", lambda: LFSR.design("wire w = " + "^".join(["clock"] * 100_000) + ";\n")),
    ("long chain of if", "ten thousand branches", lambda: LFSR.design("reg w; always @* " + "".join(f"if (lfsr_seed == {i}) w = {i % 2}; else " for i in range(10_000)) + "w = 0;\n")),
    ("hundred thousand ports", "a module of very many ports", lambda: LFSR.design(after="module p(" + ",".join(f"input p{i}" for i in range(100_000)) + "); endmodule\n")),
    ("hundred thousand modules", "very many empty modules", lambda: LFSR.design(after="".join(f"module m{i}; endmodule\n" for i in range(40_000)))),
    ("many test benches", "each is looked for in the whole text", lambda: LFSR.design(after="".join(f"module m{i}; initial #1; endmodule\n" for i in range(25_000)))),
    ("long name", "a name of half a megabyte", lambda: LFSR.design(f"wire {'x' * 500_000};\n")),
    ("long number", "a number of half a million digits", lambda: LFSR.design(f"wire w = {'9' * 500_000};\n")),
    ("long sized number", "its hexadecimal sister", lambda: LFSR.design(f"wire w = 4000000'h{'f' * 900_000};\n")),
    ("long string", "a string of half a megabyte", lambda: LFSR.design(f'initial $display("{"x" * 500_000}");\n')),
    ("many directives", "hundred thousand time scales", lambda: LFSR.design(before="`timescale 1ns/1ns\n" * 50_000)),
    ("many line ends", "a megabyte of nothing", lambda: LFSR.design("\n" * 900_000)),
    ("many comments", "a megabyte of comment marks", lambda: LFSR.design("/**/" * 220_000 + "\n")),
    ("comment marks that never close", "a scanner may start over at each", lambda: LFSR.design("/*" * 400_000)),
    ("quotes that never close", "the same for strings", lambda: LFSR.design('"\\' * 400_000)),
    ("dots", "a path of a hundred thousand names", lambda: LFSR.design("wire w = " + ".".join(["a"] * 100_000) + ";\n")),
    ("two megabytes", "more than an answer may be", lambda: LFSR.design("// " + "x" * 2_000_000 + "\n")),
    ("unclosed module", "the text ends in the middle", lambda: LFSR.design().removesuffix("endmodule\n") * 2000),
]  # fmt: skip


def _attacks() -> list[Attack]:
    found: list[Attack] = []
    for name, idea, body, after in _COMPILE:
        found += around((DFF,), name, idea, body, after=after)
    for name, idea, body, after in _COMPILE:
        if name in (
            "a thousand million wires",
            "2^30 instances",
            "constant function that never ends",
            "module that doubles",
        ):
            found += around((LFSR, COUNTER), name, idea, body.replace("clk", "clock"), after=after)
    for name, idea, before, body in _RUN:
        if not body:
            before, body = _CLASS, "node n, m; initial forever begin m = new; m.next = n; n = m; end\n"
        found += around((LFSR,), name, idea, body.replace("clk", "clock"), before)
    return found + [Attack(f"{name} @ cvdp/lfsr", idea, "cvdp/lfsr", text=text) for name, idea, text in _TEXTS]


ATTACKS = _attacks()
