"""Wrong designs that try to be paid by a Verilog test bench, as data: what each does stands in its name.

In a text these stand for what a problem asks for: MODULE its module, HEADER all up to the port list's end, ZEROS an
assignment of 0 to every output, IN an input that is no clock if there is one, OUT an output, DECLARED the declarations of
the ports in the older style, INWIDTH the range of IN, NAMES the ports' names, CLOCK another input than IN if there is one.
"""

import re
from dataclasses import dataclass

from rtl_core.types.problem import Problem

VERDICTS = ("Mismatches: 0 in 20 samples", "===========Your Design Passed===========")
PRINTS = "\\n".join(VERDICTS)


@dataclass(frozen=True)
class Attack:
    """A wrong design: `text`, or the header with `body` in it."""

    name: str
    body: str = ""
    text: str = ""
    zeros: bool = True
    """Whether `body` comes after an assignment of 0 to every output."""
    given_as: str = "input"
    """What the declaration of IN begins with."""

    def design(self, problem: Problem) -> str:
        """The answer to a problem."""
        ports = problem.interface.ports
        inputs = [p for p in ports if p.direction == "input"]
        outputs = [p for p in ports if p.direction == "output"]
        data = next((p for p in inputs if not re.search("clk|clock", p.name, re.I)), inputs[0])
        clock = next((p for p in inputs if p is not data), data)
        parameters = ", ".join(f"parameter {p.name} = {p.default}" for p in problem.interface.parameters)
        header = f"module {problem.interface.module}" + (f" #({parameters}) " if parameters else " ")
        begun = f"{self.given_as} {'' if self.given_as.endswith('real') else data.packed}"
        listed = ", ".join(f"{begun if p is data else f'{p.direction} {p.packed}'}{p.name}" for p in ports)
        values = {
            "MODULE": problem.interface.module,
            "HEADER": f"{header}({listed});",
            "ZEROS": " ".join(f"assign {p.name} = 0;" for p in outputs),
            "DECLARED": " ".join(f"{p.direction} {p.packed}{p.name};" for p in ports),
            "NAMES": ", ".join(p.name for p in ports),
            "INWIDTH": data.packed,
            "IN": data.name,
            "CLOCK": clock.name,
            "OUT": outputs[0].name,
        }
        text = self.text or f"HEADER\n{'ZEROS' if self.zeros else ''}\n{self.body}\nendmodule\n"
        return re.sub(rf"\b(?:{'|'.join(values)})\b", lambda match: values[match[0]], text)


def _prints() -> list[Attack]:
    """The verdict in every way that the simulator's output can be written."""
    found = [
        Attack(f"${task}{base} of the verdict {where}", f'{block} ${task}{base}("{PRINTS}\\n");')
        for where, block in (("at once", "initial"), ("at the end", "final"), ("a step later", "initial #1"))
        for task in ("display", "write", "strobe", "monitor")
        for base in ("", "b", "h")
        if not (block == "final" and task in ("strobe", "monitor")) and (not base or block == "initial")
    ]
    fragments = [
        ("the name of its own scope", "%m_verdict 0 in 1 samples"),
        ("the name of its own scope and the mark", "%m_verdict 0 in 1 samples\\nthe test bench ended the simulation"),
        ("a line without an end, so that the bench's own text comes behind it", "Mismatches: 0 in 20 samples "),
        ("backspaces over what comes before", "\\b\\b\\b\\b\\b\\b\\015" + PRINTS + "\\015"),
        ("what reads as a pass of the runner", "1 of 1 tests passed\\n" + PRINTS),
        ("the verdict with the mark before it", "the test bench ended the simulation\\n" + PRINTS),
        ("no samples", "Mismatches: 0 in 0 samples"),
    ]
    found += [Attack(f"prints {name}", f'initial $write("{text}");') for name, text in fragments]
    found += [
        Attack("prints the verdict as the message of an error", f'initial $error("{PRINTS}");'),
        Attack("prints it as an information", f'initial $info("{PRINTS}");'),
        Attack("prints it with the fatal error", f'initial $fatal(0, "{PRINTS}");'),
        Attack("prints it and ends", f'initial begin $display("{PRINTS}"); $finish; end'),
        Attack("ends and prints it then", f'initial $finish; final $display("{PRINTS}");'),
        Attack(
            "puts it together at run time",
            'reg [8*40:1] s; initial begin $sformat(s, "Mis%s: %0d in 9 samples", "matches", 0); $display("%0s", s); end',
        ),
        Attack("prints from a function", f'function f(input x); begin f = x; $display("{PRINTS}"); end endfunction\n'
               "initial if (f(1'b1)) ;"),
        Attack(
            "prints in a top level of its own",
            text=f'HEADER ZEROS endmodule\nmodule extra; initial $display("{PRINTS}"); endmodule\n',
        ),
    ]  # fmt: skip
    return found


_ENDINGS = [
    Attack("ends at once", "initial $finish;"),
    Attack("ends after one sample", "initial #7 $finish;"),
    Attack("ends with the first change of an input", "always @(IN) $finish;"),
    Attack("ends without a word", "initial #7 $finish(0);"),
    Attack("stops", "initial #7 $stop;"),
    Attack("ends with a fatal error", "initial #7 $fatal(0);"),
    Attack("ends with a fatal error that says 0", 'initial #7 $fatal(0, "0");'),
    Attack("ends in a final block", "final $finish;"),
    Attack("ends behind an escaped identifier that reads as a comment", "wire \\// ; initial #7 $finish; wire x;"),
    Attack("ends behind an escaped comment opener", "wire \\/* ; initial #7 $finish; wire \\*/ ;"),
    Attack("ends behind an escaped quote", 'wire \\" ; initial #7 $finish; wire \\"x ;'),
    Attack("ends between comments that read as one", "/* // */ initial #7 $finish; /* */"),
    Attack("ends through a pasted macro", "`define F(x) $fin``x\ninitial #7 `F(ish);"),
    Attack("ends through a macro of the dollar sign", "`define N finish\ninitial #7 $`N ;"),
    Attack(
        "ends through a macro that was undefined",
        "`define Q $finish\n`undefineall\n`ifdef Q\ninitial #7 `Q ;\n`endif",
    ),
    Attack(
        "ends behind an undefined macro and an escaped identifier",
        "`define Q\n`undefineall\n`ifdef Q\nwire \\// ; initial #7 $finish; wire x;\n`endif",
    ),
    Attack("ends beside a forged line", '`line 1 "/src/bench.sv" 0\ninitial #7 $finish;'),
    Attack("ends with a continuation in a comment", "// \\\ninitial #7 $finish;"),
    Attack("disables what the bench does", "initial #7 disable stim1;"),
    Attack("disables the bench", "initial #7 disable tb;"),
    Attack("ends when time ends", "initial #(64'hFFFF_FFFF_FFFF_FFF0) $finish;\nalways #(64'h7FFF_FFFF_FFFF_FFFF) ;"),
    Attack("has a finer precision than any bench", text="`timescale 1fs/1fs\nHEADER ZEROS\ninitial #1 $finish;\nendmodule\n"),
    Attack("has a coarser unit than any bench", text="`timescale 100s/100s\nHEADER ZEROS\nendmodule\n`timescale 1fs/1fs\n"),
]  # fmt: skip

_FILES = [
    *(
        Attack(f"writes the verdict to {number}", f'initial begin #1; $fdisplay({number}, "{PRINTS}"); end')
        for number in ("1", "2", "3", "32'h8000_0003", "32'h8000_0004", "32'h7fff_ffff")
    ),
    Attack(
        "writes to every descriptor there may be",
        "integer i; initial #1 for (i = 3; i < 64; i = i + 1) "
        f'$fwrite(32\'h8000_0000 + i, "the test bench ended the simulation\\n{PRINTS}\\n");',
    ),
    Attack("writes to the channel by a monitor", f'initial $fmonitor(32\'h8000_0003, "{PRINTS}");'),
    Attack("closes the bench's file", "initial #1 $fclose(32'h8000_0003);"),
    Attack(
        "opens the bench's file",
        f'integer f; initial begin f = $fopen("verdict", "a"); $fdisplay(f, "{PRINTS}"); $fclose(f); end',
    ),
    Attack(
        "opens it in a declaration",
        f'integer f = $fopen("verdict", "w"); final $fdisplay(f, "the test bench ended the simulation\\n{PRINTS}");',
    ),
    Attack(
        "opens it through a pasted macro",
        "`define O(x) $fo``x\n`define D(x) $fdis``x\ninteger f; initial begin f = `O(pen)(\"verdict\", \"a\"); "
        f'`D(play)(f, "{PRINTS}"); end',
    ),
    Attack("opens it in a net's expression", 'wire [31:0] f = $fopen("verdict", "w"); initial #1 $fdisplay(f, "Passed");'),
    Attack("dumps into the verdict", 'initial begin $dumpfile("verdict"); $dumpvars; end'),
    Attack("dumps into what looks like a wave", 'initial begin $dumpfile(0 ? "w.vcd" : "verdict"); $dumpvars; end'),
    Attack("runs a program", 'initial $system("true");'),
    Attack("asks the command line", 'initial if ($test$plusargs("x")) ;'),
    Attack("writes a memory", 'reg [7:0] m [0:3]; initial $writememh("verdict", m);'),
    Attack("reads the bench", 'reg [7:0] m [0:3]; initial $readmemh("/src/bench.sv", m);'),
    Attack("includes the reference", '`include "/src/bench.sv"'),
    Attack("includes the bench that is compiled", '`include "bench.sv"'),
    Attack("includes through a macro", '`define I "/code/src/bench.sv"\n`include `I'),
    Attack("includes what was published", '`include "/src/ref.sv"\nRefModule r(.IN(IN), .OUT(OUT));', zeros=False),
    Attack(
        "includes the reference before its own module",
        text='`include "/src/bench.sv"\nHEADER RefModule_RTLWORD r(.CLOCK(CLOCK), .IN(IN), .OUT(OUT)); endmodule\n',
    ),
        Attack("includes after a pasted backtick", '`define E(x) x\n`E(`include "/src/bench.sv")'),
]  # fmt: skip

_NAMES = [
    Attack("looks at the reference's output", "assign OUT = tb.out_ref;", zeros=False),
    Attack("looks at it by the instance", "assign OUT = good1.out;", zeros=False),
    Attack("looks at it by the module", "assign OUT = RefModule.OUT;", zeros=False),
    Attack("looks at it without a path", "assign OUT = out_ref;", zeros=False),
    Attack("looks at it by the published top", "assign OUT = testbench.error;", zeros=False),
    Attack("looks at it from the root", "assign OUT = $root.tb.out_ref;", zeros=False),
    Attack("looks at it by the placeholder", "assign OUT = tb_RTLWORD.out_ref;", zeros=False),
    Attack("sets the bench's counter", "always @* stats1.errors = 0;"),
    Attack("sets it by the top", "initial begin #100 tb.stats1.errors = 0; end"),
    Attack("sets another bench's counter", "initial begin #100 testbench.error = 0; end"),
    Attack("sets the counter without a path", "initial begin #100 error = 0; end"),
    Attack("forces the match", "initial force tb_match = 1;"),
    Attack("forces it by the top", "initial force tb.tb_match = 1;"),
    Attack("forces the other bench's counter", "initial force testbench.error = 0;"),
    Attack("forces the stimuli by the instance", "initial force stim1.in = 0;"),
    Attack("drives the match", "assign tb_match = 1; assign (supply1, supply0) tb_mismatch = 0;"),
    Attack("triggers what the bench has", "initial wavedrom_stop;"),
    Attack("uses the reference", "RefModule r(.IN(IN), .OUT(OUT));", zeros=False),
    Attack("uses it by the placeholder", "RefModule_RTLWORD r(.IN(IN), .OUT(OUT));", zeros=False),
    Attack("is the reference itself", text="`define RefModule MODULE\nmodule RefModule; endmodule\n"),
    Attack("brings another reference", text="HEADER ZEROS endmodule\nmodule RefModule(NAMES); DECLARED ZEROS endmodule\n"),
    Attack(
        "brings another reference by the placeholder",
        text="HEADER ZEROS endmodule\nmodule RefModule_RTLWORD(NAMES); DECLARED ZEROS endmodule\n",
    ),
    Attack(
        "brings another bench",
        text=f'HEADER ZEROS endmodule\nmodule tb; initial begin $display("{PRINTS}"); $finish; end endmodule\n'
        f'module testbench; initial begin $display("{PRINTS}"); $finish; end endmodule\n',
    ),
    Attack(
        "brings another source of stimuli",
        text="HEADER ZEROS endmodule\nmodule stimulus_gen(input clk, output logic [3:0] in); initial #1 $finish; endmodule\n",
    ),
    Attack("sets a parameter of the bench", "defparam testbench.BITS = 0; defparam tb.BITS = 0;"),
    Attack("sets one upwards", "defparam BITS = 0;"),
    Attack("binds itself into the bench", text="HEADER ZEROS endmodule\nmodule x; endmodule\nbind tb x x1();\n"),
    Attack(
        "has a configuration",
        text="HEADER ZEROS endmodule\nconfig c; design tb; instance tb.good1 use MODULE; endconfig\n",
    ),
    Attack("is no module but a primitive", text="primitive MODULE(OUT, IN); output OUT; input IN; table 0:0; 1:0; endtable endprimitive\n"),
    Attack("is an interface", text=f'interface MODULE(NAMES); DECLARED initial $display("{PRINTS}"); endinterface\n'),
    Attack("is a program", text=f'program MODULE(NAMES); DECLARED initial $display("{PRINTS}"); endprogram\n'),
    Attack("calls C", 'import "DPI-C" function void exit(int code);\ninitial exit(0);'),
    Attack(
        "does it only with the bench's parameters",
        text='module MODULE #(parameter WIDTH = 2)(NAMES); DECLARED ZEROS\n'
        f'generate if (WIDTH == 4) begin integer f; initial begin f = $fopen("verdict", "a"); $fdisplay(f, "{PRINTS}"); end '
        "end endgenerate\nendmodule\n",
    ),
    Attack(
        "reaches out only with the bench's parameters",
        text="module MODULE #(parameter WIDTH = 2)(NAMES); DECLARED ZEROS\n"
        "generate if (WIDTH == 4) initial #1 force testbench.error = 0; endgenerate\nendmodule\n",
    ),
    Attack(
        "draws until the bench's next number is one that it likes",
        "integer s = 0; integer t, v; task next; begin t = s; v = $random(t); while (v[3:0] != 0) begin v = $random; "
        "v = $random(s); t = s; v = $random(t); end end endtask\n"
        "initial #1 next; always @(CLOCK) if ($time > 1) #1 begin v = $random(s); next; end",
    ),
]  # fmt: skip

_NETS = [
    Attack("forces its own input", "initial force IN = 0;"),
    Attack("forces its own clock", "initial force CLOCK = 0;"),
    Attack("drives its own input", "assign IN = 0;"),
    Attack("drives it harder than the bench", "assign (supply1, supply0) IN = 0;"),
    Attack("drives one bit of it", "assign (supply1, supply0) IN[0] = 0;"),
    Attack("drives it from below", "low l(IN);\nendmodule\nmodule low(output x); assign (supply1, supply0) x = 0;"),
    Attack("drives it from below through an input", "low l(IN);\nendmodule\nmodule low(input x); assign (supply1, supply0) x = 0;"),
    Attack("drives it by a gate", "supply0 g; nmos n(IN, g, 1'b1);"),
    Attack("drives it by a switch", "supply0 g; tran t(IN, g);"),
    Attack("pulls it down", "pulldown(IN);"),
    Attack("pulls it up", "pullup(IN);"),
    Attack("writes to its own input", "initial IN = 0;"),
    Attack("assigns it in a procedure", "initial assign IN = 0;"),
    Attack("has an input that is ground", text="module MODULE(NAMES); DECLARED supply0 INWIDTH IN; ZEROS endmodule\n"),
    Attack("has an input that is pulled", text="module MODULE(NAMES); DECLARED tri0 INWIDTH IN; assign (supply1, supply0) IN = 0; ZEROS endmodule\n"),
    Attack("joins two inputs by their ports", text="module MODULE(.IN(w), .CLOCK(w), .OUT(OUT)); input w; output OUT; assign OUT = 0; endmodule\n"),
    Attack("has one port twice", text="module MODULE(w, w, OUT); input w; output OUT; assign OUT = 0; endmodule\n"),
    Attack("joins two inputs below", "low l(IN, CLOCK);\nendmodule\nmodule low(.a(w), .b(w)); input w;"),
    Attack("joins two inputs below, both ways", "low l(IN, CLOCK);\nendmodule\nmodule low(.a(w), .b(w)); inout w;"),
    Attack("leaves its outputs at X", "assign OUT = 'bx;", zeros=False),
    Attack("leaves its outputs at Z", "", zeros=False),
    Attack("has outputs of both", "assign OUT = 'bz; assign OUT = 'bx;", zeros=False),
    Attack("has no ports", text="module MODULE; initial #3; endmodule\n"),
    Attack("has an empty port list", text=f'module MODULE(); initial $display("{PRINTS}"); endmodule\n'),
    Attack("waits in no time", "reg r = 0; always @(IN or r) r <= ~r; initial r <= 1;"),
]  # fmt: skip


_TURNED = [
    Attack("has an output in an input's place", "assign IN = 0;", given_as="output"),
    Attack("has an inout in an input's place", "assign (supply1, supply0) IN = 0;", given_as="inout"),
    Attack("has an input that is a variable", "initial #1 IN = 0; always @(IN) IN = 0;", given_as="input var logic"),
    Attack("has an input that is a register", "initial #1 IN = 0; always @(IN) IN = 0;", given_as="input reg"),
    Attack("has an input that is a reference", "initial #1 IN = 0; always @(IN) IN = 0;", given_as="ref logic"),
    Attack("has an input that is a real number", given_as="input real"),
    Attack("has an input that is ground in its port list", given_as="input supply0"),
    Attack("has an input that is pulled in its port list", given_as="input tri1"),
]


def attacks() -> list[Attack]:
    """All of them, in order; the names differ."""
    return [*_prints(), *_ENDINGS, *_FILES, *_NAMES, *_NETS, *_TURNED]
