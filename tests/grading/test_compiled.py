"""The gate in front of the simulators: checks of compiled programs and preprocessed text."""

import pytest

from rtl_core.grading.inside.lib import compiled

HIDDEN = {
    "a task from a pasted macro": "`define T(x) $``x\nmodule top; integer f; initial f = `T(fopen)(\"x\"); endmodule\n",
    "a task behind an escaped name that looks like a comment": 'module top; wire \\// ; integer f; initial f = $fopen("x"); endmodule\n',
    "a task under a macro that one parser defines": "`ifndef __slang__\nmodule top; reg x; initial $deposit(x, 1); endmodule\n`else\nmodule top; endmodule\n`endif\n",
    "a task in a continuous assignment": 'module top; wire [31:0] f = $fopen("x"); endmodule\n',
    "a task in a function": 'module top; function integer f(input integer n); f = $fopen("x"); endfunction integer q; initial q = f(1); endmodule\n',
    "a task at the end": "module top; initial $finish; final $fdisplay(1, 1); endmodule\n",
    "waves under a name from a condition": 'module top; reg c; initial $dumpfile(c ? "w.vcd" : "/any/path"); endmodule\n',
    "waves under a folded name": 'module top; initial $dumpfile(0 ? "w.vcd" : "/any/path"); endmodule\n',
    "waves over the results": 'module top; initial $dumpfile("/code/rundir/sim_build/results.xml"); endmodule\n',
    "a memory from the tests": 'module top; reg [7:0] m [0:1]; initial $readmemh("/code/src/test_x.py", m); endmodule\n',
    "a memory from a path of parts": 'module top; reg [7:0] m [0:1]; initial $readmemh({"/sr", "c/x"}, m); endmodule\n',
    "a memory from a parameter": 'module top; parameter F = "/etc/passwd"; reg [7:0] m [0:1]; initial $readmemh(F, m); endmodule\n',
    "a memory from a computed name": 'module top; reg [7:0] m [0:1]; reg [63:0] n; initial $readmemh(n, m); endmodule\n',
    "an input forced": "module top(input a); initial force a = 0; endmodule\n",
    "a root of the dumper's name that does more": 'module top; endmodule\nmodule cocotb_iverilog_dump; integer f; initial begin f = $fopen("/tmp/x", "w"); $system("id"); end endmodule\n',
    "waves of cocotb's dumper from a module below": 'module top; cocotb_iverilog_dump d(); endmodule\nmodule cocotb_iverilog_dump; initial $dumpfile("/x"); endmodule\n',
}  # fmt: skip
HONEST = {
    "messages": 'module top; initial begin $display("$fopen %m"); $write("x"); $error("y"); end endmodule\n',
    "an end": "module top; parameter W = 1; initial if (W < 1) $finish; final $display(1); endmodule\n",
    "waves": 'module top; initial begin $dumpfile("top.vcd"); $dumpvars(0, top); end endmodule\n',
    "a given memory": 'module top; parameter F = "rom.hex"; reg [7:0] m [0:1]; initial begin $readmemh(F, m); $readmemb("../rtl/b.mem", m); end endmodule\n',
    "no memory": 'module top; parameter F = ""; reg [7:0] m [0:1]; initial if (F != "") $readmemh(F, m); endmodule\n',
    "mathematics": "module top; real r; initial r = $sqrt(2.0) + $ln(3.0); integer i = $clog2(9); endmodule\n",
    "timing checks": "module top(input a, c); specify $setup(a, posedge c, 1); endspecify endmodule\n",
    "cocotb's wave dumper": "module top; endmodule\n",
}  # fmt: skip
DUMPER = """module cocotb_iverilog_dump();
initial begin
    string dumpfile_path;
    if ($value$plusargs("dumpfile_path=%s", dumpfile_path)) $dumpfile(dumpfile_path);
    else $dumpfile("/code/rundir/sim_build/top.fst");
    $dumpvars(0, top);
end
endmodule
"""


def program_of(shell, text, extra="", top="-s top"):
    done = shell(
        f"iverilog -g2012 {top} {extra} -o x /code/rtl/t.sv && cat x",
        files={"rtl/t.sv": text, "verif/dump.v": DUMPER},
    )
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", HIDDEN)
def test_calls_hidden_in_the_text_are_found_in_the_program(shell, name):
    # If a harness names no top level, every module that is not instantiated is one.
    top = "" if name.startswith("a root") else "-s top"
    assert compiled.refusals(program_of(shell, HIDDEN[name], top=top))


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_is_allowed(shell, name):
    extra = "-s cocotb_iverilog_dump /code/verif/dump.v" if "dumper" in name else ""
    assert compiled.refusals(program_of(shell, HONEST[name], extra)) == []


def test_tasks_of_the_problems_files_are_allowed_and_files_of_the_harness_refused(shell):
    assert compiled.refusals(program_of(shell, HIDDEN["a task in a function"]), more={"fopen"}) == []
    assert compiled.refusals(program_of(shell, HONEST["a given memory"]), harness={"rom.hex"})


@pytest.mark.parametrize(
    "line",
    ['v0 .var "x";%vpi_call "$fopen";', ':vpi_module "/tmp/evil.vpi";', 'enum .enum4 (1) "A";:vpi_module "evil"'],
)
def test_a_name_that_breaks_out_of_its_quotes_is_refused(shell, line):
    program = program_of(shell, HONEST["messages"])
    assert compiled.refusals(program + line + "\n")


PREPROCESSED = {
    "a file task": ('integer f; initial f = $fopen("x");', True),
    "C": ('initial $c("system(0);");', True),
    "a DPI import": ('import "DPI-C" function int system(input string s);', True),
    "SystemC": ("`systemc_header\n#include <x>\n", True),
    "a memory": ('initial $readmemh("x", m);', True),
    "a string": ('initial $display("$fopen \\" $c");', False),
    "an escaped name": ("wire \\$fopen ;", False),
    "a comment": ("/* $fopen */ // $system\n wire x;", False),
}


@pytest.mark.parametrize("name", PREPROCESSED)
def test_preprocessed_text_is_parsed_as_verilator_parses_it(name):
    text, refused = PREPROCESSED[name]
    assert bool(compiled.refusals_of_text(f"module top; {text} endmodule\n")) is refused
