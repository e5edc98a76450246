"""Which files of a folder, filelist, core or row are read, and a reason for each other."""

import json

import pytest
from rtl_project import FILES, PASS, of_module, project, read, reasons, settings

from rtl_grader.errors import ProblemError
from rtl_grader.types.answer import Answer


def test_a_module_comes_with_what_it_needs_in_the_order_of_compilation(tmp_path):
    top = of_module(read(project(tmp_path)), "top")
    assert top.targets == ("rtl/src/top.sv",)
    assert settings(top)["compiled"] == ["rtl/src/sizes.sv", "rtl/src/count.sv"]
    assert set(top.context) == {
        "rtl/src/sizes.sv",
        "rtl/src/count.sv",
        "rtl/common/step.svh",
    }


def test_a_package_is_found_by_a_name_in_it_and_a_class_of_the_file_is_none(tmp_path):
    (tmp_path / "p.sv").write_text("package p;\n  localparam int W = 4;\nendpackage\n")
    body = "class c; static int x; endclass\n  initial c::x = std::max(1, $unit::z);"
    text = PASS.format(name="m", body=body).replace("input a", "input [p::W-1:0] a")
    (tmp_path / "m.sv").write_text(text)
    contents = read(tmp_path)
    assert reasons(contents) == {}
    assert {tuple(problem.context) for problem in contents.problems} == {("rtl/p.sv",)}
    (tmp_path / "p.sv").unlink()
    assert reasons(read(tmp_path)) == {"m.sv: m": "no file of its project defines p"}
    (tmp_path / "m.sv").write_text(
        f"`ifdef SIM\n  import q::*;\n`endif\n{PASS.format(name='m', body='')}"
    )
    assert reasons(read(tmp_path)) == {}


def test_a_filelist_is_read_relative_to_itself(tmp_path):
    project(tmp_path, lists__all_dot_f="""\
// everything
+incdir+../include +define+FAST=1+SLOW
-f more.f  # nested
../src/top.sv
$HOME/x.sv -y lib ../src/gone.sv
""", lists__more_dot_f="../src/sizes.sv\n../src/count.sv\n-F all.f\n")  # fmt: skip
    contents = read(tmp_path / "lists" / "all.f")
    assert {problem.interface.module for problem in contents.problems} == {"count", "top"}
    top = of_module(contents, "top")
    assert settings(top)["define"] == {"FAST": "1", "SLOW": "1"}
    assert reasons(contents) == {
        "all.f": "the filelist includes itself",
        "x.sv": "environment variables are not expanded",
        "-y": "the option is not read",
        "lib": "there is no such file",
        "gone.sv": "there is no such file",
    }


CORE = """\
CAPI=2:
name: "vendor:lib:counters:1.0"
filesets:
  rtl:
    files:
      - include/common/step.svh: {is_include_file: true, include_path: include}
      - src/sizes.sv
      - src/count.sv
      - "tool_verilator? (waiver.vlt)": {file_type: vlt}
      - old.vhd: {file_type: vhdlSource}
    file_type: systemVerilogSource
  scripts: {files: [run.tcl], file_type: tclSource}
parameters:
  FAST: {datatype: bool, default: true, paramtype: vlogdefine}
  W: {datatype: int, default: 3, paramtype: vlogparam}
"""


def test_a_core_names_files_and_macros(tmp_path):
    project(tmp_path, counters_dot_core=CORE, old_dot_vhd="entity old is end;")
    contents = read(tmp_path / "counters.core")
    assert {problem.interface.module for problem in contents.problems} == {"count"}
    assert settings(contents.problems[0])["define"] == {"FAST": "1"}
    assert reasons(contents) == {"old.vhd": "VHDL is not read"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CAPI=1\n[main]\n", "it is no core of CAPI2"),
        ("CAPI=2: [", "the core cannot be read: while parsing"),
        ("CAPI=2:\nx: !!python/object/apply:os.system [true]\n", "the core cannot be read: could"),
        ("CAPI=2:\nfilesets: [1]\nparameters: 3\nname: {}\n", "it is no core of CAPI2: filesets: is list, not an object"),
    ],
)  # fmt: skip
def test_an_odd_core_is_named(tmp_path, text, reason):
    (tmp_path / "x.core").write_text(text)
    assert reasons(read(tmp_path / "x.core"))["x.core"].startswith(reason)


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path):
    folder = project(
        tmp_path / "set",
        loop_dot_sv='`include "a.svh"\n' + PASS.format(name="loop", body=""),
        a_dot_svh='`include "b.svh"\n',
        b_dot_svh='`include "a.svh"\n',
        lost_dot_sv='`include "gone.svh"\n' + PASS.format(name="lost", body=""),
        bare_dot_sv=PASS.format(name="bare", body="wire z = `NOWHERE;"),
        open_dot_sv=PASS.format(name="open", body="absent u (a);"),
        task_dot_sv=PASS.format(name="\\$display ", body=""),
        old_dot_vhd="entity old is end;",
        marked_dot_sv=PASS.format(name="marked", body="// ```"),
        deep_dot_sv=PASS.format(name="deep", body=f"wire z = {'(' * 9999}a{')' * 9999};"),
    )
    (folder / "huge.sv").write_text("// " + "x" * (1 << 20))
    outside = tmp_path / "outside.sv"
    outside.write_text(PASS.format(name="outside", body=""))
    (folder / "link.sv").symlink_to(outside)
    (folder / "far").symlink_to(tmp_path)
    contents = read(folder)
    assert {problem.interface.module for problem in contents.problems} == {"count", "top"}
    assert reasons(contents) == {
        "loop.sv: loop": "its includes form a loop at rtl/a.svh",
        "lost.sv: lost": "no file of its project defines the included file gone.svh",
        "bare.sv: bare": "no file of its project defines the macro `NOWHERE",
        "open.sv: open": "no file of its project defines absent",
        "task.sv: \\$display": "its name is no plain name",
        "old.vhd": "VHDL is not read",
        "deep.sv": "no module of it can be read: line 2: language constructs are too deeply nested",
        "marked.sv: marked": "its file has `[MASKED]` or ``` in its text",
        "huge.sv": "it is larger than 1 MiB",
        "link.sv": "it is a link out of the folder",
        "far": "it is a link out of the folder",
        "tb_top.sv: tb_top": "it has no ports",
    }


def test_what_only_a_condition_needs_may_be_missing(tmp_path):
    body = '`ifdef FORMAL\n`include "gone.svh"\n`CHECK(a)\n`endif'
    (tmp_path / "x.sv").write_text(PASS.format(name="x", body=body))
    assert not read(tmp_path).left_out


def test_a_name_in_two_files_is_taken_from_the_own_file_or_folder(tmp_path):
    used = PASS.format(name="used", body="")
    project(
        tmp_path,
        one__used_dot_sv=used,
        two__used_dot_sv=used.replace("!a", "a"),
        two__in__deep__user_dot_sv=PASS.format(name="user", body="used u (a, y);"),
        three__used_dot_sv=used,
        one__near_dot_sv=PASS.format(name="near", body="used u (a, y);"),
        far_dot_sv=PASS.format(name="far", body="used u (a, y);"),
    )
    contents = read(tmp_path)
    assert settings(of_module(contents, "near"))["compiled"] == ["rtl/one/used.sv"]
    assert settings(of_module(contents, "user"))["compiled"] == ["rtl/two/used.sv"]
    assert reasons(contents)["far.sv: far"] == (
        "used is ambiguous: rtl/one/used.sv and rtl/three/used.sv define it"
    )
    files = {p.targets for p in contents.problems if p.interface.module == "used"}
    assert len(files) == 3
    (tmp_path / "two" / "used.sv").write_text(used)
    assert reasons(read(tmp_path)) == {"tb_top.sv: tb_top": "it has no ports"}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8", "utf-8-sig", "utf-16"])
def test_sources_of_other_editors_and_systems_are_read(tmp_path, encoding):
    text = PASS.format(name="old", body="// J\u00f6rg").replace("\n", "\r\n")
    (tmp_path / "OLD.V").write_bytes(text.encode(encoding))
    (problem, *_) = read(tmp_path).problems
    assert problem.targets == ("rtl/OLD.v",)
    assert "// J\u00f6rg\n" in problem.golden["rtl/OLD.v"]


ROM = """\
`include "../../sizes.vh"
module rom (input clk, input [3:0] at, output reg [`WIDE:0] q);
  reg [`WIDE:0] mem [0:15];
  initial $readmemh("mem/rom.hex", mem);
  always @(posedge clk) q <= mem[at];
endmodule
"""


@pytest.mark.parametrize(
    ("path", "header", "place"),
    [
        ("", "sizes.vh", "rtl/sizes.vh"),
        ("all.f", "sizes.vh", "rtl/sizes.vh"),
        ("", "rtl/sizes.vh", "rtl/rtl/sizes.vh"),
    ],
)
def test_data_files_and_headers_above_come_with_a_module(tmp_path, grader, path, header, place):
    project(
        tmp_path,
        lib__mem__rom_dot_v=(text := ROM.replace("sizes.vh", header)),
        all_dot_f="lib/mem/rom.v +incdir+.",
        **{header: "`define WIDE 3\n"},
    )
    (tmp_path / "lib" / "mem" / "rom.hex").write_text("\n".join("5a30f19e72b84dc6"))
    (tmp_path / "lib" / "mem" / "other.hex").write_text("0")
    rom = of_module(read(tmp_path / path, tasks=("module",)), "rom")
    assert set(rom.context) == {place, "rtl/lib/mem/rom.hex"}
    for answer, passes in ((text, True), (text.replace("[at]", "[at ^ 1]"), False)):
        verdict = grader.grade(rom, Answer(files={"rtl/lib/mem/rom.v": answer}))
        assert verdict.passed == passes, verdict.reasons
    short = of_module(read(tmp_path / path, max_lines=10), "rom")
    assert set(short.context) == {place}


def test_what_another_project_defines_is_said_to_be_missing_in_the_own_one(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "a.v").write_text(PASS.format(name="a", body="b u (a, y);"))
    (tmp_path / "two" / "b.v").write_text(PASS.format(name="b", body=""))
    assert reasons(read(tmp_path)) == {"a.v: a": "no file of its project defines b"}


def test_a_file_whose_macros_are_used_without_an_include_is_compiled_before(tmp_path):
    (tmp_path / "defines.v").write_text("`define WIDTH 4\n")
    (tmp_path / "x.v").write_text(PASS.format(name="x", body="wire [`WIDTH:0] z = 0;"))
    (problem, *_) = read(tmp_path).problems
    assert settings(problem)["compiled"] == ["rtl/defines.v"]


def row(**fields):
    files = {
        "inv.v": PASS.format(name="inv", body="part u (a);"),
        "lib.v": "module part (input a);\nendmodule\n",
    }
    combined = {"inv_combined.v": "\n".join(files.values()), "sources.json": "{}"}
    return json.dumps(
        {"task_id": "inv", "top_module": "inv", "files": {**files, **combined}, **fields}
    )


def test_rows_of_designs_are_projects_of_their_own(tmp_path):
    lines = [row(), "{", row(files=3), row(top_module="gone"), row(files={"../x.v": "module"})]
    (tmp_path / "designs.jsonl").write_text("\n".join(lines))
    contents = read(tmp_path)
    assert {(p.interface.module, tuple(p.context)) for p in contents.problems} == {
        ("inv", ("rtl/lib.v",))
    }
    assert [str(line).split(": ", 1)[1] for line in contents.broken] == [
        "is not JSON: column 3: Expecting property name enclosed in double quotes",
        "inv: files: is int, not an object",
        "inv: top_module: no file defines gone",
        "inv: files: `'../x.v'` is not a plain path inside the workspace",
    ]


def test_a_glob_is_a_set_of_files(tmp_path):
    for name in "xyz":
        (tmp_path / f"{name}.v").write_text(PASS.format(name=name, body=""))
    contents = read(tmp_path / "[xy].v")
    assert {problem.interface.module for problem in contents.problems} == {"x", "y"}


def test_a_path_without_rtl_is_an_error(tmp_path):
    (tmp_path / "notes.txt").write_text("no RTL")
    with pytest.raises(ProblemError, match="there is no RTL"):
        read(tmp_path)


def test_licence_and_origin_are_stated(tmp_path):
    problems = read(project(tmp_path)).problems
    stated = {(p.interface.module, p.licence, p.origin.split(": ")[1]) for p in problems}
    assert stated == {
        ("count", "Apache-2.0", "src/count.sv"),
        ("top", "MIT License", "src/top.sv"),
    }
    assert FILES["LICENSE"] not in problems[0].context
