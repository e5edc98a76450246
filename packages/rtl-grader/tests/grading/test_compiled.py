"""The gate in front of the simulators: checks of compiled programs and preprocessed text."""

import tomllib
from pathlib import Path

import pytest

from rtl_grader.grading.inside.lib import compiled
from rtl_grader.grading.screen import screen
from rtl_grader.hdl.text import code_of

_DESIGNS = tomllib.loads((Path(__file__).parent / "compiled.toml").read_text())
HIDDEN, HONEST = _DESIGNS["hidden"], _DESIGNS["honest"]
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
    assert (
        compiled.refusals(program_of(shell, HIDDEN["a task in a function"]), more={"fopen"})
        == []
    )
    assert compiled.refusals(program_of(shell, HONEST["a given memory"]), harness={"rom.hex"})


@pytest.mark.parametrize(
    "line",
    [
        'v0 .var "x";%vpi_call "$fopen";',
        ':vpi_module "/tmp/evil.vpi";',
        'enum .enum4 (1) "A";:vpi_module "evil"',
    ],
)
def test_a_name_that_breaks_out_of_its_quotes_is_refused(shell, line):
    program = program_of(shell, HONEST["messages"])
    assert compiled.refusals(program + line + "\n")


PREPROCESSED = {
    "a file task": ('integer f; initial f = $fopen("x");', True),
    "C": ('initial $c("system(0);");', True),
    "a DPI import": ('import "DPI-C" function int system(input string s);', True),
    "SystemC": ("`systemc_header\n#include <x>\n", True),
    "a string of three quotes": (
        'initial $display(""" " """); initial $system("id"); initial $display(""" " """);',
        True,
    ),
    "a memory": ('initial $readmemh("x", m);', True),
    "a string": ('initial $display("$fopen \\" $c");', False),
    "an escaped name": ("wire \\$fopen ;", False),
    "a comment": ("/* $fopen */ // $system\n wire x;", False),
}


SPACES = "\x08\x0b\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029\u3000\ufeff\u200b"
"""Characters that are white space for Python or Icarus, and parts of an escaped name for Verilator."""


@pytest.mark.parametrize("space", SPACES)
def test_a_name_does_not_end_where_verilator_does_not_end_it(space):
    text = (
        f'module top; wire \\a{space}" ; initial $system("id"); wire \\b{space}" ; endmodule\n'
    )
    assert compiled.refusals_of_text(text)
    assert "$system" in code_of(text)
    assert screen({"rtl/top.sv": text}, {}, "top")
    honest = f'module top; wire \\a ; /* {space} */ initial $display("{space}"); // {space}\nendmodule\n'
    assert not compiled.refusals_of_text(honest)
    assert not screen({"rtl/top.sv": honest}, {}, "top")


@pytest.mark.parametrize("name", PREPROCESSED)
def test_preprocessed_text_is_parsed_as_verilator_parses_it(name):
    text, refused = PREPROCESSED[name]
    assert bool(compiled.refusals_of_text(f"module top; {text} endmodule\n")) is refused
