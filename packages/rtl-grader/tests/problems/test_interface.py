"""Interfaces as read by pyslang, and the source of a demanded interface."""

import subprocess
import sys

import pytest

from rtl_grader.hdl.interface import parse_interface
from rtl_grader.hdl.text import module_names
from rtl_grader.problems.interface import derive_interface
from rtl_grader.types.problem import InterfaceSource

HARNESS = {
    "src/.env": "TOPLEVEL        = top\nSIM = icarus\n",
    "src/test_top.py": "async def t(dut):\n    dut.clk.value = 0\n    await RisingEdge(dut.clk)\n    assert dut.q.value == 1\n",
}


def ports(text, top="m", **further):
    found = parse_interface({"rtl/a.sv": text, **further}, top, InterfaceSource.GOLDEN)
    return None if found is None else [(p.name, p.direction, p.width) for p in found.ports]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # directions are inherited, widths follow from parameters
            "module m #(parameter N = 4, localparam L = $clog2(N))(input [N-1:0] a, b, output reg [L:0] y); endmodule",
            [("a", "input", 4), ("b", "input", 4), ("y", "output", 3)],
        ),
        (  # non-ANSI
            "module m(a, b, c); parameter X = 3; input [X-1:0] a; output b; reg b; inout [1:0] c; endmodule",
            [("a", "input", 3), ("b", "output", 1), ("c", "inout", 2)],
        ),
        (  # typedefs of packages and arrays count all their bits
            "package p; typedef struct packed {logic [3:0] a; logic b;} s_t; endpackage\n"
            "module m(input p::s_t s, input [7:0] v [0:3]); endmodule",
            [("s", "input", 5), ("v", "input", 32)],
        ),
        (
            "interface bus; endinterface\nmodule m(bus b, input c); endmodule",
            [("b", None, None), ("c", "input", 1)],
        ),
        ("module m(input unknown_t u); endmodule", [("u", "input", None)]),
        ("module m(input [W-1:0] u); endmodule", [("u", "input", None)]),
        ("module m(input [W-1:0] u); parameter W = 8; endmodule", [("u", "input", 8)]),
        ('`include "nowhere.svh"\nmodule m(input [`W:0] u); endmodule', [("u", "input", None)]),
    ],
)
def test_ports_with_direction_and_width(text, expected):
    assert ports(text) == expected


def test_an_include_is_followed_only_among_the_given_files(tmp_path):
    secret = tmp_path / "secret.svh"
    secret.write_text("`define W 7\n")
    text = f'`include "{secret}"\n`ifdef W\nmodule m(input leaked); endmodule\n`endif'
    assert ports(text) is None
    given = {"rtl/defs.svh": "`define W 7\n"}
    assert ports('`include "defs.svh"\nmodule m(input [`W:0] u); endmodule', **given) == [
        ("u", "input", 8)
    ]


@pytest.mark.parametrize("name", ["in/defs.svh", "../in/defs.svh", "../../top/in/defs.svh"])
def test_an_include_may_name_folders(name):
    given = {"top/in/defs.svh": "`define W 7\n", "top/a/in/defs.svh": "`define W 3\n"}
    text = f'`include "{name}"\nmodule m(input [`W-1:0] u, v); endmodule'
    assert ports(text, **given) == [("u", "input", 7), ("v", "input", 7)]


def test_parameters_with_defaults_and_without_locals():
    text = "module m #(parameter A = 3, parameter real R = 1.5, localparam L = 2, parameter [7:0] B = 8'hAF)(); endmodule"
    found = parse_interface({"a.sv": text}, "m", InterfaceSource.GOLDEN)
    assert [(p.name, p.default) for p in found.parameters] == [
        ("A", 3),
        ("R", None),
        ("B", 175),
    ]


@pytest.mark.parametrize(
    "text",
    ["", "module", "endmodule", "module n; endmodule", "}{", "`define", "\x00\x00", "module m"],
)
def test_invalid_modules_never_crash(text):
    assert ports(text) in (None, [])


def derive(*, prompt="", context=None, targets=("rtl/top.sv",), harness=HARNESS, golden=None):
    return derive_interface(
        prompt=prompt, context=context or {}, targets=targets, harness=harness, golden=golden
    )


HEADER = "module top(input clk, output [3:0] q);"


def test_the_golden_answer_comes_first():
    found = derive(
        prompt=f"```verilog\n{HEADER}\n```",
        golden={"rtl/top.sv": "module top(input x); endmodule"},
    )
    assert (found.source, [p.name for p in found.ports], found.exact) == (
        InterfaceSource.GOLDEN,
        ["x"],
        True,
    )


def test_the_header_in_the_specification_is_used_even_without_endmodule():
    found = derive(context={"docs/spec.md": f"Interface:\n\n```verilog\n{HEADER}\n```\n"})
    assert (found.source, [(p.name, p.width) for p in found.ports]) == (
        InterfaceSource.SPECIFICATION,
        [("clk", 1), ("q", 4)],
    )


def test_the_old_version_of_a_target_is_only_a_hint():
    found = derive(context={"rtl/top.sv": f"{HEADER} endmodule"})
    assert (found.source, found.exact) == (InterfaceSource.CONTEXT, False)


def test_uses_of_dut_in_the_harness_are_the_last_resort():
    found = derive()
    assert (found.source, found.exact) == (InterfaceSource.HARNESS, False)
    assert [(p.name, p.direction) for p in found.ports] == [("clk", "input"), ("q", None)]


def test_a_top_level_that_the_context_gives_is_not_demanded_of_the_answer():
    context = {"rtl/top.sv": "module top(input clk); part p(); endmodule"}
    found = derive(
        context=context,
        targets=("rtl/part.sv",),
        golden={"rtl/part.sv": "module part(input a); endmodule"},
    )
    assert found.module == "part"


def test_nothing_to_derive_from_is_none():
    assert derive(harness={"src/.env": "TOPLEVEL = top"}) is None


def test_names_in_dead_code_of_the_harness_are_not_demanded():
    library = "from cocotb.triggers import RisingEdge\nasync def reset_dut(dut):\n    dut.reset.value = 1\n"
    test = (
        "import harness_library\n@cocotb.test()\nasync def t(dut):\n    # dut.enable.value = 1\n    debug = 0\n"
        "    dut.a.value = 1\n    await RisingEdge(dut.valid)\n    if debug:\n        print(dut.inner.value)\n"
    )
    harness = {
        "src/.env": HARNESS["src/.env"],
        "src/harness_library.py": library,
        "src/test_top.py": test,
    }
    harness["src/.env"] += "MODULE = test_top\n"
    assert [(p.name, p.direction) for p in derive(harness=harness).ports] == [
        ("a", "input"),
        ("valid", None),
    ]


GOLDEN = "// a module for tests\nmodule top #(parameter WIDTH = 4, parameter S_RUN = 1)(input clk, output q);\nendmodule\n"


def test_a_golden_parameter_is_demanded_if_prompt_or_harness_names_it():
    golden = {"rtl/top.sv": GOLDEN}
    assert [
        p.name for p in derive(prompt="The parameter `WIDTH` (4).", golden=golden).parameters
    ] == ["WIDTH"]
    built = {
        **HARNESS,
        "src/test_runner.py": "def test_a():\n    build(parameters={'WIDTH': 8})\n",
    }
    assert [p.name for p in derive(harness=built, golden=golden).parameters] == ["WIDTH"]
    assert derive(golden=golden).parameters == ()


def test_parameters_in_the_body_of_a_golden_answer_are_demanded_only_by_the_harness():
    text = "module top(clk, q); parameter IDLE = 0, RUN = 1; parameter W = 2; input clk; output [W-1:0] q; endmodule"
    found = derive(prompt="From IDLE it goes to RUN.", golden={"rtl/top.sv": text})
    assert (found.parameters, [(p.name, p.width) for p in found.ports]) == (
        (),
        [("clk", 1), ("q", 2)],
    )
    runner = {
        **HARNESS,
        "src/test_runner.py": "def test_a():\n    build(parameters={'W': 8})\n",
    }
    assert [p.name for p in derive(harness=runner, golden={"rtl/top.sv": text}).parameters] == [
        "W"
    ]


def test_an_old_version_gives_directions_but_no_widths_and_parameters():
    old = "module top #(parameter OLD = 1)(input [7:0] clk, input gone, output q); endmodule"
    found = derive(context={"rtl/top.sv": old})
    assert [(p.name, p.direction, p.width) for p in found.ports] == [
        ("clk", "input", None),
        ("q", "output", None),
    ]
    assert found.parameters == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("// the module for it\n{}", ["top"]),
        ("/* module gcd_top */ {}", ["top"]),
        ('initial $display("module x"); {}', ["top"]),
        ("/* module y\n{}", []),
        ("module \\a ; endmodule {}", ["a", "top"]),
        ('wire \\module ; wire \\b" ; {} // "', ["top"]),
    ],
)
def test_module_names_are_read_outside_comments_and_strings(text, expected):
    assert module_names(text.format("module top; endmodule")) == expected


AT_EXIT = """
import ctypes
from rtl_grader.grading import screen
from rtl_grader.hdl import interface
from rtl_grader.hdl import tree
from rtl_grader.types.problem import InterfaceSource

assert interface.parse_interface({"rtl/a.v": "module a(input x); endmodule"}, "a", InterfaceSource.GOLDEN)
assert tree.SourceTree("module a; endmodule").errors == 0
for function in (interface.parse_interface, tree.SourceTree.span, screen.screen):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))  # like a library's thread that outlives the interpreter
"""


def test_pyslang_reports_no_leaked_objects_at_exit():
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")
