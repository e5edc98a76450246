"""A harness with several tools: its linter reads what its simulator reads, or the answer is refused by name."""

import re
import subprocess

import pytest

from rtl_grader.grading.design import as_graded
from rtl_grader.grading.screen import screen
from rtl_grader.hdl.text import HIDDEN
from tests.nouns import a_problem

PLAIN = "module m(input a, output y);\n{}\nendmodule\n"
GOOD, BAD = "  assign y = a;\n", "  assign y = ~a;\n"
ATTACKS = {
    "linter's macro": "`ifdef coverage_block_off\n{good}`else\n{bad}`endif",
    "macro of coverage": "`ifndef SV_COV_START\n{bad}`else\n{good}`endif",
    "macro of a later version": "`ifdef VERILATOR_TIMING\n{good}`else\n{bad}`endif",
    "simulator's macro behind another": "`ifdef NO\n`elsif __ICARUS__\n{bad}`else\n{good}`endif",
    "pasted macro": "`define M `ifdef SV_COV``_START\n`M\n{good}`else\n{bad}`endif",
    "pasted argument": "`define M(x) `ifdef x\n`M(coverage_block_off)\n{good}`else\n{bad}`endif",
    "name behind a macro": "`define M `ifdef\n`M coverage_block_off\n{good}`else\n{bad}`endif",
    "value of a macro": "wire [1:0] k = {{1'b0 `SV_COV_HIER}};\n{good}",
    "pasted value": "`define V `SV_COV``_HIER\nwire [1:0] k = {{1'b0 `V}};\n{good}",
    "argument that is a macro": "`define V(X) `X\nwire [1:0] k = {{1'b0 `V(SV_COV_HIER)}};\n{good}",
    "pieces of a macro's name": "`define W(X, Y) X``Y\nwire [1:0] k = {{1'b0 `W(`SV_COV, _HIER)}};\n{good}",
    "a lone mark": "`define B `\nwire [1:0] k = {{1'b0 `B``SV_COV_HIER}};\n{good}",
    "undefineall": "`define K\n`undefineall\n`ifdef K\n{bad}`else\n{good}`endif",
    "protected": "{good}`protected\n{bad}`endprotected",
    "elseif": "`ifdef NO\n`elseif NO2\n{good}`endif\n{bad}",
    "endif with a tail": "`ifdef NO\n`endif_of_no\n{bad}`endif\n{good}",
    "comment in a string that is skipped": '`ifdef NO\n"/*"\n`endif\n{good}`ifdef NO\n"*/"\n`endif\n',
    "directive in a string that is skipped": '`ifdef NO\n"`endif"\n{bad}"`ifdef NO"\n`endif\n{good}',
    "directive in a string and a comment that are skipped": '`ifdef NO\n"`endif /*"\n{bad}// */\n`endif\n{good}',
    "escaped name that is skipped": "`ifdef NO\nwire \\/* ;\n`endif\n{good}`ifdef NO\nwire \\*/ ;\n`endif\n",
    "quote in a comment that is skipped": '`ifdef NO\n// "\n`endif\n{good}`ifdef NO\n// "\n`endif\n',
    "comment that ends a line of a macro": "`define Q // \\\n{good}",
    "comment over the end of a macro": "`define Q /*\n{good}`define P */",
    "condition in a macro that is skipped": "`ifdef NO\n`define Q a \\\n`else\n{bad}`endif\n{good}",
    "string in an attribute": '(* k = "*)" *) wire k;\n`ifdef NO\n{bad}`endif\n{good}//"',
    "escaped name like a comment": "wire \\/* ;\n`ifdef NO\n{bad}`endif\n{good}wire \\*/ ;",
    "escaped name like an attribute": 'wire \\(*" ;\n`ifdef NO\n{bad}`endif\n{good}wire \\" ;',
    "three quotes": 'initial $display(""" " """);\n{good}//" """',
    "vertical tab": 'wire \\a\v" ;\n`ifdef NO\n{bad}`endif\n{good}wire \\b\v" ;',
    "line of another number": '`line 1 "x" 0\nwire [`__LINE__ :0] k;\n{good}',
    "own definition of a tool's macro": "`ifdef coverage_block_off\n{good}`else\n{bad}`endif\n"
    "`define coverage_block_off",
}
HONEST = {
    "guards of tools": "`ifndef SYNTHESIS\ninitial $display(1);\n`endif\n"
    "`ifdef VERILATOR\n/* verilator lint_off UNUSED */\n`endif\n{good}",
    "formal properties": "{good}`ifdef FORMAL\n`ifndef YOSYS\nassert property (y == a);\n`endif\n`endif",
    "dump": '`ifdef COCOTB_SIM\ninitial begin $dumpfile("m.vcd"); $dumpvars(0, m); end\n`endif\n{good}',
    "delay that only some simulations have": "`ifdef DELAY\nassign #`DELAY y = a;\n`else\n{good}`endif",
    "a file in a branch that no tool reads": '`ifdef DEBUG\ninteger f;\ninitial f = $fopen("x");\n`endif\n{good}',
    "condition in a comment": "// `ifdef DEBUG\n{good}// `endif\n",
    "include guard": "`ifndef M_SV\n`define M_SV\n`endif\n{good}",
    "option of its own": "`define FAST\n`ifdef FAST\n{good}`else\n{bad}`endif\n`undef FAST",
    "macro with arguments": "`define REG(n, w = 1) \\\n  wire [w-1:0] r_``n``_q; \\\n  wire n``_d;\n`REG(x)\n{good}",
    "condition within a macro": "`define CHECK(x) \\\n`ifdef SIMULATION \\\n  initial $display(x); \\\n"
    "`else \\\n`endif\n`CHECK(1)\n{good}",
    "time scale and nets": "`default_nettype none\n`timescale 1ns / 1ps\n{good}`default_nettype wire",
    "macro of the harness": "`ifdef WIDE\nwire [`WIDE:0] k;\n`endif\n{good}",
    "small macro of the context": "wire [`depth-1:0] k;\n{good}",
    "words in strings and comments": '// `ifdef, `"quotes`", (* and /* of tools */\n'
    'initial $display("a // b, (* c *), 5` d");\n{good}',
    "other languages": "// größe ≥ 1 \u00a0 \u2028 \ufeff\n{good}",
    "attribute": '(* keep = "true", mark_debug = "(*" *) wire k = a;\n{good}',
    "escaped names": "wire \\bus[0] = a; wire \\a+b = \\bus[0] ;\n{good}",
    "line ends of Windows": "`ifdef NO\r\n{bad}`endif\r\n// x\r\n{good}",
    "blanks behind a backslash": "`define W 1 + \\  \n 1\nwire [`W:0] k;\n{good}",
    "delays with units": "initial begin #1ns; #(2.5 us); end\nwire a2s = a;\n{good}",
    "units of time": "timeunit 1ns; timeprecision 1ps;\n{good}",
    "message with its place": '{good}initial if (0) $error("%s:%0d", `__FILE__, `__LINE__);',
}


def written(text):
    """The answer with a text in its module."""
    return PLAIN.format(text.format(good=GOOD, bad=BAD))


def several_tools(text):
    """The text as graded, and the findings of the screen, for a harness that lints and simulates."""
    harness = {"src/run.py": "verilator --lint-only -DWIDE=3; iverilog"}
    context = {"rtl/defs.svh": "`define depth 4\n"}
    problem = a_problem(harness=harness, context=context, targets=["rtl/m.sv"])
    files, _ = as_graded(problem, {"rtl/m.sv": written(text)})
    return files["rtl/m.sv"], screen(files, context, "m")


def preprocessed(folder, text):
    """The code that each preprocessor makes of a text, without white space and comments."""
    (folder / "m.sv").write_text("`define depth 4\n" + text, newline="")
    codes = []
    for command in (
        ("iverilog", "-g2012", "-E", "-DWIDE=3", "-om.i", "m.sv"),
        ("verilator", "-E", "-P", "-DWIDE=3", "m.sv"),
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        code = (folder / "m.i").read_text() if command[0] == "iverilog" else done.stdout
        code = HIDDEN.sub(lambda hidden: " " if hidden[0][0] == "/" else hidden[0], code)
        codes.append("".join(code.split()) if done.returncode == 0 else None)
    return codes


@pytest.mark.parametrize("name", ATTACKS)
def test_two_designs_in_one_text_are_refused_or_become_one(tmp_path, name):
    text, findings = several_tools(ATTACKS[name])
    if not findings:
        simulated, linted = preprocessed(tmp_path, text)
        as_written, _ = preprocessed(tmp_path, written(ATTACKS[name]))
        assert simulated == linted == as_written


@pytest.mark.parametrize("value", ["1ns", "1_0.5us", "2 * 1s"])
def test_no_value_of_a_time_decides_what_a_tool_sees(value):
    """Its number depends on the time unit, which only the simulator is given."""
    _, findings = several_tools(
        f"localparam real T = {value};\nif (T < 2) begin : one {{good}} end else begin : two {{bad}} end\n"
    )
    assert [finding.what for finding in findings] == [
        f"the value of the time {value.split()[-1]}"
    ]


@pytest.mark.parametrize(
    "who",
    ["synopsys", "synthesis", "pragma", "cadence", "ambit synthesis", "verilator", "synopsys_"],
)
def test_no_comment_takes_code_out(who):
    text, _ = several_tools(f"// {who} translate_off\n{{bad}}/*{who} translate_on*/\n")
    assert "translate_o" not in text
    assert BAD in text


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_text_is_not_refused_and_is_the_same_for_all(tmp_path, name):
    text, findings = several_tools(HONEST[name])
    assert findings == []
    simulated, linted = preprocessed(tmp_path, text)
    as_written, _ = preprocessed(tmp_path, written(HONEST[name]))
    assert simulated == linted == as_written
    assert "assigny=a;" in simulated
    assert "assigny=~a;" not in simulated


def test_a_refusal_names_the_macro():
    _, findings = several_tools("wire [`SV_COV_HIER :0] k;")
    assert re.search("the tool macro SV_COV_HIER", str(findings[0]))
