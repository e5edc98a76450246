"""Headers, macros, conditions and paths of RTL, and what the reason for a module that is left out says."""

import pytest
from rtl_project import PASS, of_module, project, read, reasons, settings

from rtl_grader.types.answer import Answer
from tests.command import invoke

CONDITIONS = """\
`include "cfg.vh"
`ifdef HAS_FAST
module m (input clk, a, output y);
`ifdef OUTSIDE
  used u (.clk(clk), .a(a), .y(y));
`else
  gone u (.clk(clk), .a(a), .y(y));
`endif
endmodule
`endif
"""
USED = "module used (input clk, a, output reg y);\n  `FF(y, a)\nendmodule\n"


@pytest.mark.parametrize("list_of_files", [False, True])
def test_headers_and_macros_decide_what_a_file_defines_and_needs(tmp_path, list_of_files):
    (tmp_path / "m.sv").write_text(CONDITIONS)
    (tmp_path / "used.sv").write_text('`include "inc/ff.vh"\n' + USED)
    (tmp_path / "cfg.vh").write_text("`define HAS_FAST\n")
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "ff.vh").write_text("`define FF(q, d) always @(posedge clk) q <= d;\n")
    (tmp_path / "all.f").write_text("+define+OUTSIDE m.sv used.sv")
    contents = (
        read(tmp_path / "all.f") if list_of_files else read(tmp_path, define={"OUTSIDE": "1"})
    )
    assert settings(of_module(contents, "m"))["compiled"] == ["rtl/used.sv"]
    assert "gone" in reasons(read(tmp_path))["m.sv: m"]
    (tmp_path / "cfg.vh").write_text("")
    assert reasons(read(tmp_path))["m.sv"].startswith("its modules stand under conditions")


def test_no_include_reads_this_machine(tmp_path):
    (tmp_path / "secret.vh").write_text(
        "module secret (input a, output y); assign y = a; endmodule"
    )
    for name in (f"{tmp_path}/secret.vh", "../" * 9 + f"{tmp_path}/secret.vh"):
        folder = tmp_path / "rtl"
        folder.mkdir(exist_ok=True)
        (folder / "x.sv").write_text(f'`include "{name}"\n' + PASS.format(name="x", body=""))
        contents = read(folder)
        assert not contents.problems
        assert reasons(contents)["x.sv: x"].startswith("no file of its project defines the inc")


GENERIC = """\
module flop #(parameter TARGET = "GENERIC") (input clk, d, output q);
  generate
    if (TARGET == "VENDOR") begin : vendor
      FDRE flop (.C(clk), .D(d), .Q(q));
    end else begin : generic
      reg state;
      always @(posedge clk) state <= d;
      assign q = state;
    end
  endgenerate
endmodule
"""


def test_a_vendors_cell_in_a_branch_that_is_not_taken_is_not_needed(tmp_path, grader):
    (tmp_path / "flop.v").write_text(GENERIC)
    (tmp_path / "vendor.v").write_text(
        GENERIC.replace("flop #", "own #").replace("GENERIC", "VENDOR")
    )
    contents = read(tmp_path, tasks=("module",))
    assert reasons(contents) == {"vendor.v: own": "no file of its project defines FDRE"}
    assert grader.grade(contents.problems[0], Answer(files={"rtl/flop.v": GENERIC})).passed


def test_paths_may_have_spaces(tmp_path, grader):
    used = PASS.format(name="used", body="")
    text = PASS.format(name="user", body='`include "a b.vh"\n  used u (a, z);')
    project(
        tmp_path, **{"my lib/u (1).v": used, "my lib/user.v": text, "my lib/a b.vh": "wire z;"}
    )
    (tmp_path / "my lib" / "u_(1).v").write_text(used)
    contents = read(tmp_path, modules=("user", "used"), tasks=("module",))
    (user,) = (one for one in contents.problems if one.interface.module == "user")
    assert settings(user)["compiled"] == ["rtl/my_lib/u__1_.v"]
    assert "another file has its path" in "".join(reasons(contents).values())
    verdict = grader.grade(user, Answer(files={"rtl/my_lib/user.v": text}))
    assert verdict.passed, verdict.reasons


def test_a_list_names_all_that_is_left_out(tmp_path):
    for number in range(9):
        (tmp_path / f"m{number}.v").write_text(f"module m{number};\nendmodule\n")
    (tmp_path / "ok.v").write_text(PASS.format(name="ok", body=""))
    printed = invoke("problems", "list", "--source", f"rtl={tmp_path}").stdout
    assert all(f"m{number}.v: m{number}" in printed for number in range(9))


INTERFACE = "interface inter; logic a; modport m (output a); endinterface\n"
BODY = "  assign y = a;\nendmodule\n"
PORTS = "(input a, output y);\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"module m {PORTS}  wire y = a\nendmodule", "no part of it can be read (line 2: "),
        ("module m (a, int);\n  input a;\nendmodule", "no part of it can be read (line 1: "),
        (f"`define M(n) module n {PORTS.strip()} endmodule\n`M(m)", "a macro writes it"),
        (
            f"{INTERFACE}module m (inter.m i, input a);\n  assign i.a = a;\nendmodule",
            "one of its ports is an inter",
        ),
        (f"module m {PORTS}  initial #1 $finish;\n{BODY}", "it is a test bench"),
        ("module test_m (input a);\n  wire y = a;\nendmodule", "it is a test bench"),
        (f"module m_test {PORTS}{BODY}", None),
        (f"module m {PORTS}  always @(a) if (0) #1 $finish;\n{BODY}", None),
        (f"module m {PORTS}  module n {PORTS}{BODY}  n u (a, y);\nendmodule", None),
    ],
)
def test_the_reason_says_what_is_wrong_with_a_module(tmp_path, text, reason):
    (tmp_path / "m.sv").write_text(text)
    left_out = list(reasons(read(tmp_path)).values())
    assert left_out == [] if reason is None else left_out[0].startswith(reason), left_out
