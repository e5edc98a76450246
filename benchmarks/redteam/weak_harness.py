"""Wrong designs that a weak harness takes for right ones: nothing is hidden here, the behaviour is just not what is asked."""

from __future__ import annotations

from benchmarks.redteam.attack import Attack
from benchmarks.redteam.bases import ARBITER, LFSR

_CLOCKED = "always @(posedge clk or negedge rst_n)"
_CNT = "module cnt(input clk, input rst_n, input en, output reg [13:0] q);\n"
_CNT6 = "module cnt(input clk, input rst_n, input en, output reg [5:0] q);\n"
_ARB = "module arb(input [11:0] req, output reg [11:0] gnt);\ninteger k;\nalways @(*) begin gnt = 0;\n"
_MUL = "module mul #(parameter WIDTH = 8)(input [WIDTH-1:0] a, input [WIDTH-1:0] b, output [2*WIDTH-1:0] y);\n"
_ACC = "module acc(input clk, input rst_n, input en, input [11:0] d, output reg [11:0] q);\n"
_ADD = "module add(input [15:0] a, input [15:0] b, output [15:0] y);\n"
_CMP = "module cmp(input [11:0] a, input [11:0] b, output y);\n"
_SAT = "module sat(input [11:0] a, input [11:0] b, output [11:0] y);\nwire [12:0] s = a + b;\n"
_RGS = "module rgs(input clk, input rst_n, input en, input [11:0] d, output reg [11:0] q);\n"
_SHF = "module shf(input clk, input rst_n, input din, output reg [11:0] q);\n"
_PIP = "module pip(input clk, input rst_n, input [11:0] a, input [11:0] b, input [11:0] c, output reg [11:0] y);\nreg [11:0] s, z;\n"
_TOG = "module tog(input clk, input rst_n, input [7:0] t, output reg [7:0] q);\n"
_SAME = "(input [WIDTH-1:0] binary_in, output [WIDTH-1:0] gray_out);\nassign gray_out = binary_in;\n"
_FIFO = """\
module buf0(input clk, input rst_n, input push, input pop, input [11:0] d, output [11:0] q, output full, output empty);
reg [11:0] m [0:7]; reg [2:0] w, r; reg [3:0] c;
wire i = push & !full, o = pop & !empty;
assign full = {full}; assign empty = {empty}; assign q = {q};
always @(posedge clk or negedge rst_n)
  if (!rst_n) begin w <= 0; r <= 0; c <= 0; end
  else begin if ({write}) m[w] <= {d}; w <= w + i; r <= r + {o}; c <= c + i - o; end
endmodule
"""


def _clocked(then: str, reset: str = "q <= 0") -> str:
    """A clocked block that does `reset` while the reset is active, else `then`."""
    return f"{_CLOCKED} if (!rst_n) {reset}; else {then};\n"


def _fifo(**changed: str) -> str:
    plain = {"full": "c == 8", "empty": "c == 0", "q": "empty ? 0 : m[r]", "write": "i", "d": "d", "o": "o"}
    return _FIFO.format(**{**plain, **changed})


def _rr(pick: str, update: str = "i") -> str:
    return f"""\
module rra(input clk, input rst_n, input [7:0] req, output reg [7:0] gnt);
reg [2:0] z, i; integer k;
always @(*) begin
  gnt = 0; i = z;
  for (k = 8; k > 0; k = k - 1) if (req[{pick}]) i = {pick};
  gnt[i] = req[i];
end
always @(posedge clk or negedge rst_n) if (!rst_n) z <= 0; else z <= {update};
endmodule
"""


def _down(body: str) -> str:
    return f"module cnt(input clk, input rst_n, input en, output reg [9:0] q);\n{body}"


# name, idea, problem, text
_STARTER = [
    *[(f"{bits}-bit counter behind 14 bits", "the upper bits never move", "counter", _CNT.replace("reg [13:0]", "[13:0]") + f"reg [{bits - 1}:0] c; assign q = c;\n" + _clocked("if (en) c <= c + 1", "c <= 0")) for bits in (8, 9, 12)],
    ("saturating counter", "stops at its highest count", "counter6", _CNT6 + _clocked("if (en && ~&q) q <= q + 1")),
    ("counter that stops early", "stops at 48", "counter6", _CNT6 + _clocked("if (en && q < 48) q <= q + 1")),
    ("counter that wraps early", "wraps at 60", "counter6", _CNT6 + _clocked("if (en) q <= q == 60 ? 0 : q + 1")),
    ("counter with a stuck top bit", "one output alone is stuck", "counter6", _CNT6 + _clocked("if (en) q <= (q + 1) & 31")),
    ("counter that goes on in reset later", "reset works the first time only", "counter6", _CNT6 + f"reg once = 0; always @(posedge rst_n) once <= 1;\n{_CLOCKED} if (!rst_n && !once) q <= 0; else if (en) q <= q + 1;\n"),
    ("counter cleared in part", "reset clears the lower bits only", "counter6", _CNT6 + "initial q = 0;\n" + _clocked("if (en) q <= q + 1", "q[4:0] <= 0")),
    ("synchronous reset", "reset waits for a clock", "counter6", _CNT6 + "always @(posedge clk) if (!rst_n) q <= 0; else if (en) q <= q + 1;\n"),
    ("late reset", "reset comes one clock late", "counter6", _CNT6 + "reg n; always @(posedge clk) begin n <= rst_n; if (!n) q <= 0; else if (en) q <= q + 1; end\n"),
    ("reset to 1", "a wrong value after reset", "counter6", _CNT6 + _clocked("if (en) q <= q + 1", "q <= 1")),
    ("enable ignored", "an input has no effect", "counter6", _CNT6 + _clocked("q <= q + 1")),
    ("enable looked at late", "enable of the clock before", "counter6", _CNT6 + "reg e; always @(posedge clk) e <= en;\n" + _clocked("if (e) q <= q + 1")),
    ("falling edge", "the other edge of the clock", "counter6", _CNT6 + "always @(negedge clk or negedge rst_n) if (!rst_n) q <= 0; else if (en) q <= q + 1;\n"),
    ("both edges", "counts twice as fast", "counter6", _CNT6 + "always @(clk or negedge rst_n) if (!rst_n) q <= 0; else if (en) q <= q + 1;\n"),
    *[(f"right for {clocks} clocks", "wrong once a bench has gone", "counter6", _CNT6 + "integer n = 0; always @(posedge clk) n = n + 1;\n" + _clocked(f"if (en) q <= q + (n > {clocks} ? 2 : 1)")) for clocks in (100, 130)],
    ("right for 300 ns", "wrong when time has passed", "counter6", _CNT6 + _clocked("if (en) q <= q + ($time > 300 ? 2 : 1)")),
    ("wrong one time in fifty", "seldom wrong", "counter6", _CNT6 + _clocked("if (en) q <= q + ($urandom_range(49) == 0 ? 2 : 1)")),
    ("counter of an echo", "the clock at every bit", "counter6", _CNT6.replace("reg [5:0]", "[5:0]") + "assign q = {6{clk}};\n"),
    ("constant", "nothing at all", "counter6", _CNT6.replace("reg [5:0]", "[5:0]") + "assign q = 0;\n"),
    ("X for an output", "an unknown matches nothing", "counter6", _CNT6.replace("reg [5:0]", "[5:0]") + "assign q = 6'bx;\n"),
    ("Z for an output", "nobody drives it", "counter6", _CNT6.replace("reg [5:0]", "[5:0]") + "assign q = 6'bz;\n"),
    ("own enable driven", "the design drives its input", "counter6", _CNT6 + f"assign en = 0;\n{_CLOCKED} if (!rst_n) q <= 0;\n"),
    ("own enable tied", "a switch ties the input", "counter6", _CNT6 + f"supply0 low; tran t(en, low);\n{_CLOCKED} if (!rst_n) q <= 0;\n"),
    ("own reset tied", "a switch holds the design in reset", "counter6", _CNT6 + "supply0 low; tran t(rst_n, low);\n" + _clocked("q <= 1")),
    ("own clock stopped", "a switch stops the clock", "counter6", _CNT6 + f"supply0 low; tran t(clk, low);\ninitial q = 0; {_CLOCKED} q <= 0;\n"),
    ("own enable forced", "the input is forced", "counter6", _CNT6 + f"initial force en = 0;\n{_CLOCKED} if (!rst_n) q <= 0;\n"),
    ("8-bit down counter behind 10 bits", "the upper bits never move", "down", _down("reg [7:0] c; always @* q = {2'b11, c} ;\n" + _clocked("if (en) c <= c - 1", "c <= 0"))),
    ("down counter that stops at 0", "saturates", "down", _down(_clocked("if (en && q != 0) q <= q - 1"))),
    ("down counter from the top that stops", "counts down once", "down", _down(_clocked("if (en) q <= q == 1 ? 1 : q - 1"))),
    *[(f"arbiter that ignores request {bit}", "one input has no effect", "arbiter", _ARB + f"for (k = 11; k >= 0; k = k - 1) if (req[k] && k != {bit}) gnt = 1 << k; end\n") for bit in (0, 3, 7, 11)],
    ("arbiter wrong for one pair", "two requests are confused", "arbiter", _ARB + "for (k = 11; k >= 0; k = k - 1) if (req[k]) gnt = 1 << k; if (req[6:5] == 3 && req[4:0] == 0) gnt = 64; end\n"),
    ("arbiter wrong for one pattern", "one request word of 4096", "arbiter", _ARB + "for (k = 11; k >= 0; k = k - 1) if (req[k]) gnt = 1 << k; if (req == 12'hfff) gnt = 2; end\n"),
    ("arbiter of 8 of 12", "the upper four are never granted", "arbiter", _ARB + "for (k = 7; k >= 0; k = k - 1) if (req[k]) gnt = 1 << k; end\n"),
    ("arbiter the other way", "the highest wins", "arbiter", _ARB + "for (k = 0; k < 12; k = k + 1) if (req[k]) gnt = 1 << k; end\n"),
    ("arbiter that grants nothing for one", "a grant is missing alone", "arbiter", _ARB + "for (k = 11; k >= 0; k = k - 1) if (req[k]) gnt = 1 << k; gnt[9] = 0; end\n"),
    ("two grants", "more than one bit", "arbiter", _ARB + "gnt = req; end\n"),
    ("parameter without effect", "the width is written out", "scaled", "module mul #(parameter WIDTH = 8)(input [7:0] a, input [7:0] b, output [15:0] y);\nassign y = a * b;\n"),
    ("parameter without effect inside", "ports follow it, the product does not", "scaled", _MUL + "wire [15:0] p = a[7:0] * b[7:0]; assign y = p;\n"),
    ("parameter hidden", "a local parameter of another name does the work", "scaled", "module mul #(parameter WIDTH = 8)(input [7:0] a, input [7:0] b, output [15:0] y);\nlocalparam W = 8; wire [2*W-1:0] p = a * b; assign y = p;\n"),
    ("parameter as a constant", "it cannot be overridden", "scaled", "module mul(input [7:0] a, input [7:0] b, output [15:0] y);\nlocalparam WIDTH = 8; assign y = a * b;\n"),
    ("parameter of few bits", "an override is cut off", "scaled", "module mul #(parameter [3:0] WIDTH = 8)(input [WIDTH-1:0] a, input [WIDTH-1:0] b, output [2*WIDTH-1:0] y);\nassign y = a * b;\n"),
    ("product of half a word", "the upper half of an input is ignored", "scaled", _MUL + "assign y = a * b[WIDTH/2-1:0];\n"),
    ("truncated product", "the upper half of the product is 0", "scaled", _MUL + "wire [WIDTH-1:0] p = a * b; assign y = p;\n"),
    ("square for the product", "one input is ignored", "scaled", _MUL + "assign y = a * a;\n"),
    ("accumulator of 8 bits", "the upper bits never move", "accumulator", _ACC + _clocked("if (en) q <= (q + d) & 255")),
    ("accumulator of 8 input bits", "the input's upper bits are ignored", "accumulator", _ACC + _clocked("if (en) q <= q + d[7:0]")),
    ("accumulator that saturates", "stops at its highest sum", "accumulator", _ACC + "wire [12:0] s = q + d;\n" + _clocked("if (en) q <= s[12] ? 12'hfff : s")),
    ("accumulator without its carry", "the carry is cut in the middle", "accumulator", _ACC + "wire [5:0] s = q[5:0] + d[5:0];\n" + _clocked("if (en) q <= {q[11:6] + d[11:6], s}")),
    ("adder without its carry", "the carry is cut at bit 8", "adder", _ADD + "wire [7:0] s = a[7:0] + b[7:0]; assign y = {a[15:8] + b[15:8], s};\n"),
    ("adder of 15 bits", "the top bit is 0", "adder", _ADD + "wire [14:0] s = a + b; assign y = s;\n"),
    ("adder that ignores one bit", "one input bit has no effect", "adder", _ADD + "assign y = a + (b & 16'hfbff);\n"),
    ("or for the sum", "right without carries", "adder", _ADD + "assign y = a | b;\n"),
    ("xor for the sum", "right without carries", "adder", _ADD + "assign y = a ^ b;\n"),
    ("adder that saturates", "stops at its highest sum", "adder", _ADD + "wire [16:0] s = a + b; assign y = s[16] ? 16'hffff : s;\n"),
    ("comparator of 8 bits", "the lower bits are ignored", "comparator", _CMP + "assign y = a[11:4] <= b[11:4];\n"),
    ("comparator of the top", "the lowest bit is ignored", "comparator", _CMP + "assign y = a[11:1] <= b[11:1];\n"),
    ("comparator that is strict", "equal counts as greater", "comparator", _CMP + "assign y = a < b;\n"),
    ("signed comparator", "the top bit is a sign", "comparator", _CMP + "assign y = $signed(a) <= $signed(b);\n"),
    ("comparator without its top bit", "the top bit is ignored", "comparator", _CMP + "assign y = a[10:0] <= b[10:0];\n"),
    ("saturating adder that wraps", "no saturation", "saturating", _SAT + "assign y = s;\n"),
    ("saturating adder off by one", "saturates below the top", "saturating", _SAT + "assign y = s > 4094 ? 4094 : s;\n"),
    ("saturating adder to the wrong value", "saturates to another value", "saturating", _SAT + "assign y = s[12] ? 12'h7ff : s;\n"),
    ("mux of 8 bits", "the upper bits come from one input", "mux", "module sel(input [15:0] a, input [15:0] b, input s, output [15:0] y);\nassign y = {a[15:8], s ? a[7:0] : b[7:0]};\n"),
    ("mux that ors", "right while the other is 0", "mux", "module sel(input [15:0] a, input [15:0] b, input s, output [15:0] y);\nassign y = s ? a : a | b;\n"),
    ("parity without one bit", "one input bit has no effect", "parity", "module par(input [15:0] d, output y);\nassign y = ~^d[14:0];\n"),
    ("parity of a byte", "the upper byte is ignored", "parity", "module par(input [15:0] d, output y);\nassign y = ~^d[7:0];\n"),
    ("toggle of four", "the upper bits are stuck", "toggle", _TOG + _clocked("q <= q ^ t[3:0]")),
    ("toggle stuck at one bit", "one output alone is stuck", "toggle", _TOG + _clocked("q <= (q ^ t) & 8'hbf")),
    ("register of 8 bits", "the upper bits are stuck", "register", _RGS + _clocked("if (en) q <= d[7:0]")),
    ("register without enable", "an input has no effect", "register", _RGS + _clocked("q <= d")),
    ("latch for a register", "transparent while the clock is high", "register", _RGS + "always @* if (!rst_n) q = 0; else if (en & clk) q = d;\n"),
    ("shift register of 8 bits", "the upper bits never move", "shift", _SHF + _clocked("q <= {q[6:0], din}")),
    ("shift register the other way", "shifts right", "shift", _SHF + _clocked("q <= {din, q[11:1]}")),
    ("rotating register", "the top bit comes back", "shift", _SHF + _clocked("q <= {q[10:0], din | q[11]}")),
    ("decoder without its last lines", "the upper outputs are stuck", "decoder", "module dec(input [3:0] s, output [13:0] y);\nwire [11:0] z = 1 << s; assign y = z;\n"),
    ("decoder that wraps", "numbers beyond the last line start again", "decoder", "module dec(input [3:0] s, output [13:0] y);\nassign y = s > 13 ? 1 << (s - 14) : 1 << s;\n"),
    ("edge detector of 8 bits", "the upper bits are stuck", "edge", f"module edg(input clk, input rst_n, input [11:0] d, output [11:0] y);\nreg [7:0] z; {_CLOCKED} if (!rst_n) z <= 0; else z <= d;\nassign y = d[7:0] & ~z;\n"),
    ("edge detector of both edges", "falling edges count too", "edge", f"module edg(input clk, input rst_n, input [11:0] d, output [11:0] y);\nreg [11:0] z; {_CLOCKED} if (!rst_n) z <= 0; else z <= d;\nassign y = d ^ z;\n"),
    ("priority encoder without its top", "the highest input is ignored", "priority", "module pri(input [11:0] d, output reg [3:0] y);\ninteger k; always @* begin y = 0; for (k = 0; k < 11; k = k + 1) if (d[k]) y = k; end\n"),
    ("priority encoder of three bits", "the top output bit is stuck", "priority", "module pri(input [11:0] d, output reg [3:0] y);\ninteger k; always @* begin y = 0; for (k = 0; k < 12; k = k + 1) if (d[k]) y = k & 7; end\n"),
    ("pipeline without its upper bits", "eight of twelve bits", "pipeline", _PIP + f"{_CLOCKED} if (!rst_n) begin s <= 0; z <= 0; y <= 0; end else begin s <= a ^ b; z <= c; y <= (s + z) & 255; end\n"),
    ("pipeline one stage short", "a clock too early", "pipeline", _PIP + _clocked("y <= (a ^ b) + c", "y <= 0")),
    ("pipeline cleared in part", "reset leaves the first stage", "pipeline", _PIP + f"{_CLOCKED} if (!rst_n) y <= 0; else begin s <= a ^ b; z <= c; y <= s + z; end\n"),
    ("pipeline with an input of its own time", "one input skips a stage", "pipeline", _PIP + f"{_CLOCKED} if (!rst_n) begin s <= 0; y <= 0; end else begin s <= a ^ b; y <= s + c; end\n"),
]  # fmt: skip

_WHOLE = [
    ("FIFO of seven", "full one word early", "fifo", _fifo(full="c == 7")),
    ("FIFO that is never full", "overwrites its oldest word", "fifo", _fifo(full="1'b0")),
    ("FIFO of 8 bits", "the upper bits of the words are lost", "fifo", _fifo(d="d[7:0]")),
    ("FIFO that writes when full", "a push into a full queue writes", "fifo", _fifo(write="push")),
    ("FIFO that shows old words", "not 0 when empty", "fifo", _fifo(q="m[r]")),
    ("FIFO that ignores a pop with a push", "both at one clock", "fifo", _fifo(o="(o & !i)")),
    ("round robin that never turns", "a fixed priority", "round_robin", _rr("(z + k) % 8", "0")),
    ("round robin the other way", "goes down", "round_robin", _rr("(z + 8 - k) % 8")),
    ("round robin of seven", "the last request is ignored", "round_robin", _rr("(z + k) % 7")),
    ("round robin that turns without a grant", "moves on always", "round_robin", _rr("(z + k) % 8", "z + 1")),
]

_OUT = LFSR.head.replace("output reg", "output")
_FOR_LFSR = [
    ("clock echoed", "the harness looks once a clock, and always sees 0", _OUT + "assign lfsr_out = {8{clock}};\n"),
    ("clock echoed at one bit", "the same at one bit", _OUT + "assign lfsr_out = {7'b0, clock};\n"),
    ("clock echoed by an inverter", "the same the other way round", _OUT + "assign lfsr_out = {8{~clock}};\n"),
    ("clock echoed late", "the same with a delay", _OUT + "assign #1 lfsr_out = {8{clock}};\n"),
    ("clock counted to two", "a flip between two edges of the clock", LFSR.head + "always @(clock) lfsr_out = clock ? 8'hff : 8'h00;\n"),
    ("one blip at the start", "the output has changed, once", LFSR.head + "initial begin lfsr_out = 0; #1 lfsr_out = 1; #1 lfsr_out = 0; end\n"),
    ("one blip of no time", "changed and changed back at one time", LFSR.head + "initial begin lfsr_out = 0; #5 lfsr_out = 1; #0 lfsr_out = 0; end\n"),
    ("a blip every clock", "changes where nobody looks", LFSR.head + "initial lfsr_out = 0; always @(posedge clock) begin #1 lfsr_out = 8'hff; #1 lfsr_out = 0; end\n"),
    ("a blip on the falling edge", "the same in the other half", LFSR.head + "initial lfsr_out = 0; always @(negedge clock) begin lfsr_out = 8'hff; #1 lfsr_out = 0; end\n"),
    ("blips of every bit", "every bit has changed", LFSR.head + "integer i; initial begin lfsr_out = 0; for (i = 0; i < 8; i = i + 1) #1 lfsr_out = 1 << i; #1 lfsr_out = 0; end\n"),
    ("unknown, then 0", "X becomes 0", LFSR.head + "always @(posedge clock) lfsr_out <= 0;\n"),
    ("undriven, then 0", "Z becomes 0", _OUT + "reg on = 0; initial #1 on = 1; assign lfsr_out = on ? 8'b0 : 8'bz;\n"),
    ("random blips", "noise between the clocks", LFSR.head + "initial lfsr_out = 0; always @(negedge clock) begin #1 lfsr_out = $urandom; #1 lfsr_out = 0; end\n"),
    ("0 by arithmetic", "a constant that looks computed", _OUT + "assign lfsr_out = lfsr_seed ^ lfsr_seed;\n"),
]  # fmt: skip
_GRAYS = [
    ("identity of one bit", "the runner's parameter is cut to one bit and read back", "#(parameter [0:0] WIDTH = 1)" + _SAME),
    ("identity of a local parameter", "what the runner sets is not there", "(input [0:0] binary_in, output [0:0] gray_out);\nlocalparam WIDTH = 1; assign gray_out = binary_in;\n"),
    ("parameter of two bits", "cut to two bits", "#(parameter [1:0] WIDTH = 1)" + _SAME),
    ("signed parameter of two bits", "cut to a sign", "#(parameter signed [1:0] WIDTH = 1)(input [0:0] binary_in, output [0:0] gray_out);\nassign gray_out = binary_in;\n"),
    ("parameter shadowed by a variable", "the name that is read back is another thing", "#(parameter W = 1)(input [0:0] binary_in, output [0:0] gray_out);\ninteger WIDTH = 1; assign gray_out = binary_in;\n"),
    ("parameter shadowed by a net", "a wire of the parameter's name", "(input [0:0] binary_in, output [0:0] gray_out);\nwire [7:0] WIDTH = 1; assign gray_out = binary_in;\n"),
    ("parameter undone by defparam", "the module sets its own parameter back", "#(parameter WIDTH = 1)" + _SAME + "defparam WIDTH = 1;\n"),
    ("parameter of a typed real", "the value is rounded", "#(parameter real WIDTH = 1)(input [0:0] binary_in, output [0:0] gray_out);\nassign gray_out = binary_in;\n"),
    ("parameter in a block", "a generate block has the name", "(input [0:0] binary_in, output [0:0] gray_out);\ngenerate if (1) begin : WIDTH localparam value = 1; end endgenerate assign gray_out = binary_in;\n"),
    ("parameter without effect", "only the default's width", "#(parameter WIDTH = 1)(input [0:0] binary_in, output [0:0] gray_out);\nassign gray_out = binary_in;\n"),
    ("wrong above four bits", "right for the smallest width only", "#(parameter WIDTH = 4)(input [WIDTH-1:0] binary_in, output [WIDTH-1:0] gray_out);\nassign gray_out = WIDTH > 4 ? binary_in : binary_in ^ (binary_in >> 1);\n"),
]  # fmt: skip
_SHIFT = "module shifter(input [7:0] data, {} [2:0] amount, output [7:0] shifted);\nassign shifted = data;\n"
_PULLED = "initial amount = 0; always @(amount) amount = #1 0;\n"
_RETURNED = "reg k = 0; assign amount = {3{k}}; always @(amount) if (amount !== 0) begin #1 k = 1; #1 k = 0; end\n"
_READ_BACK = [
    ("shift not done", "the harness is not that weak", _SHIFT.format("input")),
    ("own input set back", "the harness computes with what the design has put on the input", _SHIFT.format("input") + _RETURNED),
    ("own input set back, both ways", "the same by a port that goes both ways", _SHIFT.format("inout") + _RETURNED),
    ("own input as an output", "the harness writes to an output, which is set back", _SHIFT.format("output reg") + _PULLED),
    ("own input as a variable", "the harness writes to a variable within, which is set back", _SHIFT.replace(" {} [2:0] amount,", "") + "reg [2:0] amount;\n" + _PULLED),
    ("own input through a module", "the drive stands in another module", _SHIFT.format("input") + "zero z(amount);\nendmodule\nmodule zero(inout [2:0] x);\n" + _RETURNED.replace("amount", "x")),
]  # fmt: skip
_SHOWN = "module lfsr_8bit(input clock, reset, input [7:0] lfsr_seed, output [7:0] {});\n{}endmodule\n"
_DEAD = _SHOWN.format(
    "lfsr_out", "reg [7:0] other = 0; always @(posedge clock) other <= other + 1;\nassign lfsr_out = 0;\n"
)
_READINGS = [
    ("constant for Icarus alone", "the grader watches ports that the simulator does not have", "`ifdef __ICARUS__\n", _SHOWN.format("other", "")),
    ("constant behind undefineall", "the same by a macro that Icarus keeps", "`define KEPT\n`undefineall\n`ifdef KEPT\n", _SHOWN.format("other", "")),
    ("constant that is not read", "the grader's parser sees no module at all", "`define KEPT\n`undefineall\n`ifdef KEPT\n", ""),
]  # fmt: skip


def _attacks() -> list[Attack]:
    found = [
        Attack(f"{n} @ starter/{p}", idea, f"starter/{p}", text=text + "endmodule\n") for n, idea, p, text in _STARTER
    ]
    found += [Attack(f"{n} @ starter/{p}", idea, f"starter/{p}", text=text) for n, idea, p, text in _WHOLE]
    for name, idea, text in _FOR_LFSR:
        for problem in ("cvdp/lfsr", "own/lfsr"):
            found.append(Attack(f"{name} @ {problem}", idea, problem, text=text + "endmodule\n"))
    for name, idea, text in _READ_BACK:
        found.append(Attack(f"{name} @ own/shift", idea, "own/shift", text=text + "endmodule\n"))
    barrel = (
        "module barrel_shifter #(parameter data_width = 16, shift_bits_width = 4)(input [data_width-1:0] data_in,\n"
    )
    barrel += "  {} [shift_bits_width-1:0] shift_bits, input left_right, rotate_left_right, output [data_width-1:0] data_out);\n"
    for direction, body in (("input", _RETURNED.replace("{3{k}}", "{shift_bits_width{k}}")), ("output reg", _PULLED)):
        text = (
            barrel.format(direction) + body.replace("amount", "shift_bits") + "assign data_out = data_in;\nendmodule\n"
        )
        idea = "the harness computes with what the design has put on the input"
        found.append(Attack(f"own {direction} set back @ single/barrel", idea, "single/barrel", text=text))
    for name, idea, before, other in _READINGS:
        text = f"{before}{_DEAD}`else\n{other}`endif\n"
        found.append(Attack(f"{name} @ cvdp/lfsr", idea, "cvdp/lfsr", text=text))
    busy = _OUT + "integer i, k = 0; always @(posedge clock) for (i = 0; i < 3500; i = i + 1) k = k + 1;\n"
    idea = "whether a constant design is one is asked once more, as slowly"
    found.append(
        Attack("slow constant @ cvdp/lfsr", idea, "cvdp/lfsr", text=busy + "assign lfsr_out = 0;\nendmodule\n")
    )
    for name, idea, text in _GRAYS:
        problems = ("own/gray", "single/gray") if "identity" in name else ("own/gray",)
        for problem in problems:
            body = f"module binary_to_gray {text}endmodule\n"
            found.append(Attack(f"{name} @ {problem}", idea, problem, text=body))
    ports = ARBITER.head.replace("output reg", "output")
    found.append(
        Attack(
            "clock echoed @ cvdp/arbiter",
            "the clock at every output",
            "cvdp/arbiter",
            text=ports + "assign grant = {8{clk}}; assign valid = clk; assign grant_index = {3{clk}};\nendmodule\n",
        )
    )
    found.append(
        Attack(
            "requests echoed @ cvdp/arbiter",
            "the grant is the request",
            "cvdp/arbiter",
            text=ports + "assign grant = req; assign valid = |req; assign grant_index = 3;\nendmodule\n",
        )
    )
    return found


ATTACKS = _attacks()
