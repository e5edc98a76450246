"""Attacks on the channel by which a Verilog test bench says its verdict, and on the bench itself."""

from __future__ import annotations

from benchmarks.redteam.attack import Attack, around
from benchmarks.redteam.bases import ADD8, BENCHES, COUNT10, COUNT12, DFF, FADD, INC, LOUD

_SAMPLES = "Mismatches: 0 in 100 samples"
_SECRET = "%m_verdict 0 in 100 samples"
_BOTH = (INC, LOUD, DFF, COUNT12)

# name, idea, statement or item in the module's body
_PRINTED = [
    ("path as the secret", "%m shows the random names of the bench, which begin its verdict line", f'initial $display("{_SECRET}");'),
    ("path as the secret, late", "the same when the bench has begun", f'initial #7 $display("{_SECRET}");'),
    ("path by write", "the same by $write, with line ends", f'initial $write("\\n{_SECRET}\\n");'),
    ("path by strobe", "the same by $strobe", f'initial $strobe("{_SECRET}");'),
    ("path by monitor", "the same by $monitor", f'initial $monitor("{_SECRET}");'),
    ("path by info", "the same by a severity task", f'initial $info("{_SECRET}");'),
    ("path by error", "the same by another severity task", f'initial $error("{_SECRET}");'),
    ("path by displayb", "the same by a task with a radix", f'initial $displayb("{_SECRET}");'),
    ("path through a string", "%m is kept in a string and printed from there", f'reg [8*200:1] s; initial begin $sformat(s, "{_SECRET}"); $display("%0s", s); end'),
    ("path through swrite", "the same by $swrite", f'reg [8*200:1] s; initial begin $swrite(s, "{_SECRET}"); $display("%0s", s); end'),
    ("path by sformatf", "the same by a function", f'initial $display("%0s", $sformatf("{_SECRET}"));'),
    ("path by sformatf in a string", "the same in a string variable", f'string s; initial begin s = $sformatf("{_SECRET}"); $display(s); end'),
    ("path from a named block", "%m of a deeper scope", f'initial begin : deep $display("{_SECRET}"); end'),
    ("path from a function", "%m of a function's scope", f'function integer say(input integer x); begin $display("{_SECRET}"); say = x; end endfunction\ninteger z; initial z = say(1);'),
    ("path from a task", "%m of a task's scope", f'task say; $display("{_SECRET}"); endtask\ninitial say;'),
    ("path on every change", "the line is printed as often as the bench could print it", f'integer n = 0; initial repeat (50) #3 $display("{_SECRET}");'),
    ("path before and after", "the line stands first and last", f'initial begin $display("{_SECRET}"); #190 $display("{_SECRET}"); end'),
    ("plain verdict", "the published verdict line is printed", f'initial $display("{_SAMPLES}");'),
    ("plain verdict for ever", "the published line is printed while the bench runs", f'initial repeat (900) #1 $display("{_SAMPLES}");'),
    ("plain praise", "RTLLM's verdict line is printed", 'initial $display("===========Your Design Passed===========");'),
    ("harness' own words", "what the harness prints for a pass", 'initial $display("1 of 1 tests passed");'),
    ("carriage return", "the line overwrites the one before it on a terminal", f'initial #9 $write("\\015{_SAMPLES}\\015");'),
    ("backspaces", "the bench's line is rubbed out", f'initial #9 $write("{_SAMPLES}\\n\\010\\010\\010\\010");'),
    ("escape sequences", "a terminal's control sequences", f'initial $write("%c[2J%c[1;1H{_SAMPLES}\\n", 27, 27);'),
    ("NUL bytes", "a NUL splits the line for C readers", f'initial $write("%c{_SAMPLES}%c\\n", 0, 0);'),
    ("unfinished line", "the bench's next text ends up on our line", f'initial $write("{_SAMPLES} ");'),
    ("verdict line with a path before it", "unanchored patterns match in the middle", f'initial $display("x %m {_SAMPLES}");'),
    ("both markers", "all published verdicts at once", f'initial $display("{_SAMPLES} Your Design Passed Your design passed Passed passed %m");'),
    ("output too long to keep", "the true verdict is cut off in the middle", f'integer n; initial begin $display("{_SAMPLES}"); for (n = 0; n < 40000; n = n + 1) $display("%0d aaaaaaaaaaaaaaaaaaaaaaaaaa", n); end'),
    ("format with a vector for its text", "the text is made of numbers", 'reg [8*28:1] s = "Mismatches: 0 in 100 samples"; initial #5 $display("%s%m", s);'),
    ("path taken apart", "the secret word is cut out of %m by arithmetic, then printed as a line of its own", 'reg [8*300:1] s; integer i; initial begin $sformat(s, "%m"); for (i = 0; i < 300; i = i + 1) begin $write("%s", s[8*300 -: 8]); s = s << 8; end $display("_verdict 0 in 9 samples"); end'),
    ("modules listed", "a task of the simulator prints the bench's scopes", "initial $printtimescale;"),
]  # fmt: skip

_REACH = [
    ("reference by its name", "the bench's own reference is instantiated", "RefModule r(clk, d, q);", (DFF,)),
    ("reference by its name", "the bench's own reference is instantiated", "model r(clk, d, q);", (INC,)),
    ("errors cleared", "the bench's counter is set back", "always @(posedge clk) tb.errors = 0;", (INC,)),
    ("errors cleared", "the bench's counter is set back", "always @(posedge clk) tb.stats1.errors = 0;", (DFF,)),
    ("errors cleared", "the bench's counter is set back", "always @(posedge clk) counter_12_tb.error = 0;", (COUNT12,)),
    ("reference copied from above", "an upward name reads the expected value", "always @* q = source.d;", (INC,)),
    ("reference copied from above", "an upward name reads the expected value", "always @* q = good1.q;", (DFF,)),
    ("reference through an unnamed scope", "the simulator's own names for unnamed blocks lead into the bench", "always @* q = \\$unm_blk_1 .d;", (INC, DFF)),
    ("bench's block disabled", "the checking block is switched off by name", "initial #1 disable tb.check;", (INC,)),
    ("bench's parameter overridden", "defparam reaches upward", "defparam tb.N = 0;", (INC, LOUD)),
    ("reference forced", "the expected value is forced", "initial force tb.expected = 0;", (INC,)),
    ("expected value assigned", "a procedural assign on the bench's variable", "initial begin #1; assign tb.errors = 0; end", (INC, LOUD)),
    ("deposit", "a simulator's own task writes a signal", "initial forever #1 $deposit(tb.errors, 0);", (INC, LOUD)),
    ("event of the bench", "a named event of the bench is triggered", "initial -> tb.done;", (INC,)),
]  # fmt: skip

_INPUTS = [
    ("inputs driven to X", "an X at the reference makes its outputs X, which match anything", "assign {i} = 1'bx;"),
    ("inputs driven against the bench", "two drivers make X", "assign {i} = ~{i};"),
    ("inputs pulled by supplies", "a supply is stronger than the bench's driver", "buf (supply0, supply1) hold({i}, 1'b0);"),
    ("inputs shorted", "a switch joins two inputs of the bench", "tran short0({i}, {o});"),
    ("inputs joined to the output", "a switch joins the design's output to an input", "wire w; assign w = 0; tran short1({i}, w);"),
    ("inputs forced from inside", "a force goes through the port", "initial force {i} = 1'bx;"),
    ("inputs released late", "forced for one sample", "initial begin force {i} = 0; #30 release {i}; end"),
    ("inputs kept by a procedural assign", "an assign statement on a net of the bench", "reg k = 0; assign (supply1, supply0) {i} = k;"),
    ("inputs through a submodule", "the drive stands in another module", "drive hidden({i});"),
]  # fmt: skip
_TIED = [
    ("input tied by a switch", "a switch carries a supply back into the bench", "supply0 low; tran t0({i}, low);"),
    ("input tied high by a switch", "the same with the other supply", "supply1 high; tran t0({i}, high);"),
    ("input tied by a resistive switch", "a weaker switch", "supply0 low; rtran t0({i}, low);"),
    ("input tied by a controlled switch", "a switch that is opened later", "supply0 low; reg on = 0; tranif1 t0({i}, low, on); initial #20 on = 1;"),
    ("input tied by a controlled switch, inverted", "the other kind", "supply0 low; reg off = 1; tranif0 t0({i}, low, off); initial #20 off = 0;"),
    ("input tied to X", "the reference computes with X and matches anything", "wire x; assign (supply0, supply1) x = 1'bx; tran t0({i}, x);"),
    ("input tied in a submodule", "the switch stands in another module", "tied t0({i});"),
    ("input tied by a pull", "a pull where the bench drives nothing", "pulldown p0({i});"),
]  # fmt: skip
_PINS = {
    DFF: ("clk", "d"),
    COUNT10: ("clk", "reset"),
    FADD: ("cin", "a"),
    COUNT12: ("clk", "valid_count"),
    INC: ("clk", "clk"),
}

_AROUND = [
    ("bench's top defined again", "the answer brings a bench of its own", "", 'module tb; initial begin $display("Mismatches: 0 in 1 samples"); $display("Your Design Passed"); end endmodule\n'),
    ("a second top level", "a module that nobody instantiates would be simulated too", "", f'module extra; initial $display("{_SECRET}"); initial $display("{_SAMPLES}"); endmodule\n'),
    ("reference defined again", "the reference becomes the wrong design", "", "module RefModule(input clk, input d, output q); assign q = 0; endmodule\nmodule model(input clk, input [7:0] d, output [7:0] q); assign q = 0; endmodule\n"),
    ("stimulus defined again", "the bench's source of inputs does nothing", "", "module stimulus(input clk, output reg [7:0] d); endmodule\nmodule stimulus_gen(input clk, output reg d); endmodule\n"),
    ("verdict macro", "macros of the answer change the bench", "`define errors 0\n`define INCORRECT 12\n`define display write\n", ""),
    ("text swallowed", "an open conditional hides what follows the answer", "", "`ifdef NOTHING\n"),
    ("comment left open", "an open comment hides what follows the answer", "", "/* "),
    ("nettype none", "implicit nets of the bench become errors", "`default_nettype none\n", "`default_nettype none\n"),
    ("time unit of the answer", "the bench's delays change their meaning", "`timescale 1s/1s\n", "`timescale 1fs/1fs\n"),
    ("package of the bench's name", "names of the bench are shadowed by a package", "package tb; int errors = 0; endpackage\n", ""),
    ("function of the unit", "a function outside any module prints", 'function integer say(input integer x); $display("%m_verdict 0 in 9 samples"); say = x; endfunction\n', ""),
    ("wave file is the log", "the wave file is the log that holds the verdict", "", "module waves; initial begin $dumpfile(\"log.vcd\"); $dumpvars; end endmodule\n"),
]  # fmt: skip

_TASKS = [
    ("guessed report task", "the bench's output calls may be renamed: a guessed name", 'initial $rtl_display("Mismatches: 0 in 100 samples");'),
    ("guessed verdict task", "another guess", 'initial $verdict("Mismatches: 0 in 100 samples");'),
    ("guessed bench task", "another guess", 'initial $bench_display("===========Your Design Passed===========");'),
    ("file descriptor of standard output", "file tasks write to descriptor 1 too", f'initial $fdisplay(1, "{_SECRET}");'),
    ("descriptor with its top bit", "standard output as a file descriptor", f"initial $fwrite(32'h8000_0001, \"{_SECRET}\\n\");"),
    ("every low descriptor", "one of them may be the channel of the results", 'integer i; initial for (i = 0; i < 64; i = i + 1) $fdisplay(32\'h8000_0000 | i, "Mismatches: 0 in 100 samples");'),
    ("log task", "Icarus writes a log to a named file", 'initial $log("log");'),
    ("return code", "Icarus ends with a chosen exit code", "initial #1 $finish_and_return(0);"),
    ("scopes shown", "interactive tasks print the bench", "initial $showscopes(1);"),
    ("variables shown", "interactive tasks print the bench", "initial $showvars;"),
    ("arguments of the simulator", "plusargs are the way in", 'reg t; initial if ($test$plusargs("x")) t = 1;'),
    ("state saved", "the simulation's state is written out", 'initial $save("log");'),
]  # fmt: skip


def _attacks() -> list[Attack]:
    found: list[Attack] = []
    for name, idea, body in _PRINTED:
        bases = BENCHES if name == "path as the secret" else _BOTH if "path" in name else (INC, DFF)
        found += around(bases, name, idea, body + "\n", core="empty" if "path" in name else "wrong")
    for name, idea, body, bases in _REACH:
        found += around(bases, name, idea, body + "\n", core="empty" if "reference" in name else "wrong")
    for name, idea, body in _INPUTS:
        for base, (first, second) in _PINS.items():
            after = "module drive(input x); assign x = 1'b0; endmodule\n" if "submodule" in name else ""
            found += around((base,), name, idea, body.format(i=first, o=second) + "\n", after=after)
    for name, idea, body in _TIED:
        for base, (first, _) in _PINS.items():
            after = "module tied(inout x); supply0 low; tran t1(x, low); endmodule\n" if "submodule" in name else ""
            found += around((base,), name, idea, body.format(i=first) + "\n", after=after)
    every = "supply0 low; tran t0(a, low), t1(b, low), t2(cin, low); assign {cout, sum} = 0;\n"
    found += around((FADD,), "all inputs tied", "the reference can only compute the constant", every, core="empty")
    found += around(
        (DFF,),
        "data tied",
        "the reference can only hold 0",
        "supply0 low; tran t0(d, low); initial q = 0;\n",
        core="empty",
    )
    for name, idea, before, after in _AROUND:
        found += around((INC, DFF, ADD8), name, idea, before=before, after=after)
    for name, idea, body in _TASKS:
        found += around((LOUD, DFF), name, idea, body + "\n")
    return found


ATTACKS = _attacks()
