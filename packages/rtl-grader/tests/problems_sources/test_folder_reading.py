"""How folders are found and understood, and what is said about one that cannot be used."""

import os

import pytest
from folders import (
    BENCH,
    INVERTER,
    MAKEFILE,
    PLAIN,
    SPEC,
    TEST,
    WITH_BENCH,
    problem_of,
    reading,
    write_files,
)

from rtl_grader.problems.folder.description import described
from rtl_grader.problems.folder.reader import problem_places
from rtl_grader.problems.judged import is_judged
from rtl_grader.problems.sources import load_problems
from rtl_grader.problems.sources.folder import FolderSource
from tests.command import invoke

OTHER = "module other(input b, output z); assign z = b; endmodule\n"
LACKING = {
    "a key that is not known": ({"problem.toml": "tops = 'inv'"}, "tops: there is no such key; did you mean top?"),
    "a key of another type": ({"problem.toml": "[bench]\nparameters = 3"}, "bench.parameters: Input should be a list"),
    "no regular expression": ({"problem.toml": "[bench]\npass = '('"}, "bench.pass: Input should be a valid regular"),
    "no TOML": ({"problem.toml": "= 3"}, "file: is not TOML: "),
    "a macro that is no word": ({"problem.toml": "define = {A = '1 2'}"}, "define.A: 1 2 is neither a number nor a word"),
    "no specification": ({"spec.md": None}, "spec: there is none: write in spec.md"),
    "no module": ({"rtl/inv.v": "// nothing\n", "tb/tb.v": None}, "top: no Verilog file defines a module: add the golden design"),
    "two candidates": ({"rtl/other.v": OTHER, "tb/tb.v": None}, "top: name the module that an answer defines (inv, other)"),
    "a top that is missing": ({"problem.toml": "top = 'fifo'"}, "top: name the module that an answer defines (inv"),
    "a bench for another module": ({"problem.toml": "top = 'other'\n[bench]\nverilog = ['tb/tb.v']", "rtl/other.v": OTHER}, "bench.top: one top module must hold other; there are ['tb'], which hold inv"),
    "benches for other modules only": ({"problem.toml": "top = 'other'", "rtl/other.v": OTHER}, "bench: none is about other: name one, or say equivalence"),
    "tests that are missing": ({"problem.toml": "[bench]\ncocotb = 'tb/test_x.py'"}, "bench.cocotb: no file is called tb/test_x.py"),
    "a key of another form": ({"problem.toml": "[bench]\nparameters = [{W = 3}]"}, "bench.parameters: has no meaning for a bench by verilog"),
    "a macro of a list that is no word": ({"problem.toml": "filelist = 'a.f'", "a.f": "rtl/inv.v +define+A=8'hff\n"}, "define.A: 8'hff is neither a number nor a word"),
    "two benches": ({"tb/tb2.v": BENCH.replace("tb;", "tb2;")}, "bench.verilog: there are several, name one (tb/tb.v; tb/tb2.v)"),
    "two forms of bench": ({"problem.toml": "[bench]\nequivalence = true\nverilog = ['tb/tb.v']"}, "bench: name one of verilog, equivalence"),
    "a bench that says nothing": ({"tb/tb.v": BENCH.replace("TEST PASSED", "x")}, "bench.pass: say which printed line means"),
    "lines of which each could be meant": ({"tb/tb.v": BENCH.replace("bad = 0;", 'bad = 0; initial $display("self test passed");')}, "bench.pass: say which printed line means that a design passed ("),
    "a missing file": ({"problem.toml": "given = ['rtl/lib.v']"}, "given: no file is called rtl/lib.v"),
    "VHDL": ({"rtl/inv.v": None, "tb/tb.v": None, "rtl/inv.vhd": "entity inv is end;\n"}, "rtl/inv.vhd: is VHDL, which cannot be graded: give Verilog"),
    "VHDL by name": ({"problem.toml": "given = ['x.vhd']", "x.vhd": "entity x is end;\n"}, "x.vhd: is VHDL"),
    "a file list with a missing file": ({"problem.toml": "filelist = 'a.f'", "a.f": "rtl/inv.v\nrtl/gone.v\n"}, "filelist: "),
    "an include loop": ({"tb/tb.v": f'`include "a.vh"\n{BENCH}', "tb/a.vh": '`include "a.vh"\n'}, "bench: a.vh:1: "),
    "an include that is missing": ({"tb/tb.v": f'`include "gone.vh"\n{BENCH}'}, "bench: tb.v:1: 'gone.vh': No such file"),
    "a way out": ({"problem.toml": "given = ['../x.v']"}, "given: no file is called ../x.v"),
    "data outside": ({"tb/tb.v": BENCH.replace("bad = 0;", 'bad = 0; initial if (0) $display("../x.hex", "/abs/x.hex");'), "tb/x.hex": "0\n"}, "data: a text opens /abs/x.hex: write x.hex there"),
    "two data files of one name": ({"problem.toml": "data = ['*/x.hex']", "tb/x.hex": "0\n", "rtl/x.hex": "1\n"}, "data: two files have one name: rtl/x.hex tb/x.hex"),
    "binary data": ({"rtl/inv.v": INVERTER + "\0"}, "rtl/inv.v: is binary: leave it out"),
    "a Makefile for VHDL": ({"tb/tb.v": None, "tb/Makefile": MAKEFILE.replace("?= verilog", "?= vhdl")}, "tb/Makefile: its top level is VHDL"),
    "a Makefile without its tests": ({"tb/tb.v": None, "tb/Makefile": MAKEFILE}, "bench: there is no Python file tb/test_inv.py with its tests"),
}  # fmt: skip


@pytest.mark.parametrize("what", LACKING)
def test_what_a_folder_lacks_is_named_with_key_or_file(what, tmp_path):
    changes, said = LACKING[what]
    files = {path: text for path, text in {**WITH_BENCH, **changes}.items() if text is not None}
    assert str(reading(tmp_path, files).error).startswith(said)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    secret = tmp_path / "secret.v"
    secret.write_text(OTHER)
    folder = write_files(tmp_path / "own", WITH_BENCH)
    os.symlink(secret, folder / "rtl/other.v")
    assert (
        str(reading(tmp_path, {}).error)
        == "rtl/other.v: leads out of the folder: copy the file into it"
    )


def test_one_broken_folder_does_not_stop_the_others(tmp_path):
    write_files(tmp_path / "set/a", WITH_BENCH)
    write_files(tmp_path / "set/b", {**WITH_BENCH, "problem.toml": "top = 'gone'"})
    (tmp_path / "set/c/problem.toml").mkdir(parents=True)
    contents = FolderSource(kind="folder", path=tmp_path / "set").read()
    assert [problem.id for problem in contents.problems] == ["folder_a"]
    assert [str(line) for line in contents.broken] == [
        "b/problem.toml:1: b: top: name the module that an answer defines (inv, tb)",
        "c/problem.toml:1: c: file: cannot be read: Is a directory",
    ]


@pytest.mark.parametrize("split", ["design", "id"])
def test_one_of_few_own_designs_is_held_out(split, tmp_path):
    """`a` and `b` are one design; with them alone nothing can be held out."""
    other = {
        path: text.replace("inv", "buffer").replace("~", "") for path, text in PLAIN.items()
    }
    folders = {
        "a": PLAIN,
        "b": PLAIN,
        "c": {**other, "spec.md": "Module buffer copies a to y."},
    }

    def sides(names, fraction):
        for name in names:
            write_files(tmp_path / names / name, {**folders[name], "problem.toml": ""})
        source = FolderSource(kind="folder", path=tmp_path / names, heldout_fraction=fraction)
        loaded = load_problems([source], 0, split)
        return [sorted(p.id[-1] for p in side) for side in (loaded.train, loaded.heldout)]

    assert sides("abc", 0.001) in ([["c"], ["a", "b"]], [["a", "b"], ["c"]])
    assert sides("abc", 0.0) == [["a", "b", "c"], []]
    assert sides("ab", 0.001) == [["a", "b"], []]


def test_problems_are_found_in_a_folder_itself_or_below(tmp_path):
    def names(files):
        folder = write_files(tmp_path / str(len(list(tmp_path.iterdir()))), files)
        return [name.removeprefix(folder.name) for name, *_ in problem_places(folder)]

    assert names({"x.v": OTHER, "sub/y.v": OTHER}) == [""]
    assert names({"a/rtl/x.v": OTHER, "b/x.v": OTHER, "README.md": ""}) == ["a", "b"]
    assert names({"one.problem.toml": "", "two.problem.toml": "", "a/x.v": OTHER}) == [
        ".one",
        ".two",
    ]


def test_what_is_not_stated_is_guessed(tmp_path):
    files = {
        "README.md": "An inverter of a to y.\n",
        "src/inv.v": f'`include "w.vh"\n{INVERTER.replace("~a", "pkg::not_of(a)")}',
        "src/w.vh": "// widths\n",
        "src/pkg.sv": "package pkg; function [3:0] not_of(input [3:0] a); not_of = ~a; endfunction endpackage\n",
        "src/unused.v": OTHER,
        "sim/tb_inv.v": BENCH,
        "sim/test_other.py": TEST,
        "problem.toml": "top = 'inv'",
    }
    understood = reading(tmp_path, files)
    assert understood.notes == {
        "spec": "README.md",
        "top": "inv",
        "answer": "src/inv.v",
        "given": "rtl/w.vh rtl/pkg.sv",
        "bench": "verilog sim/tb_inv.v",
        "verdict": "a line with TEST.*PASSED",
        "ports": "the header is appended",
    }
    assert "module inv" in understood.problem.prompt


def test_without_a_bench_the_golden_answer_judges(tmp_path):
    files = {
        **PLAIN,
        "spec.md": None,
        "rtl/inv.v": f"// Inverts a of W bits; the output is y.\n{INVERTER}",
    }
    understood = reading(tmp_path, {path: text for path, text in files.items() if text})
    assert is_judged(understood.problem.harness)
    assert understood.problem.prompt.startswith("// Inverts a")


def test_a_file_list_gives_order_macros_and_includes(tmp_path):
    files = {
        **WITH_BENCH,
        "rtl/inv.v": f'`include "w.vh"\n{INVERTER}',
        "rtl/inc/w.vh": "",
        "other/w.vh": "",
        "lib/z.v": OTHER,
        "lib/a.v": OTHER.replace("other", "another"),
        "files.f": "// in this order\n+incdir+rtl/inc +define+FAST=2\nlib/z.v lib/a.v\nrtl/inv.v\n",
        "problem.toml": "filelist = 'files.f'",
    }
    problem = problem_of(tmp_path, files)
    assert list(problem.context) == ["rtl/w.vh", "rtl/lib/z.v", "rtl/lib/a.v"]
    assert "-DFAST=2" in problem.harness["src/.env"]


@pytest.mark.parametrize("bench", ["cocotb", "verilog", "none"])
def test_a_new_folder_can_be_used(bench, tmp_path):
    folder = tmp_path / "adder"
    done = invoke("problems", "new", str(folder), "--bench", bench)
    assert done.exit_code == 0, done.output
    (problem,) = FolderSource(kind="folder", path=folder).read().problems
    assert problem.targets == ("rtl/saturating_adder.sv",)
    again = invoke("problems", "new", str(folder))
    assert "is not empty" in str(again.exception)
    listed = invoke("problems", "list", "--source", f"folder={folder}").stdout
    assert (
        "1 problem; --source holds none out, heldout_fraction of a configuration does" in listed
    )
    assert "to train on" not in listed


def test_check_prints_how_each_folder_is_understood(tmp_path):
    write_files(tmp_path / "set/a", WITH_BENCH)
    write_files(tmp_path / "set/b", {"spec.md": SPEC})
    done = invoke("problems", "check", str(tmp_path / "set"))
    assert done.exit_code == 1
    assert "a line with TEST.*PASSED" in done.stdout
    assert "no Verilog file defines a module" in done.stdout
    assert "1 of 2 folders can be used" in done.stdout


def test_check_judges_a_bench_as_validate_does(tmp_path):
    """The bench takes a constant after one right step, which only the full level of `validate` tries."""
    bench = BENCH.replace("(y !== ~a)", "(y[0] !== ~a[0])").replace("i < 16", "i < 2")
    write_files(tmp_path / "a", {**WITH_BENCH, "tb/tb.v": bench})
    done = invoke("problems", "check", tmp_path, "--validate")
    weak = "weak: a stub is paid: all outputs constant after one right step"
    assert weak in done.stdout
    assert "1 of 1 folders can be used, 1 not fit to train on" in done.stdout
    assert done.exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize("bench", ["cocotb", "verilog"])
def test_check_validates_a_new_folder(bench, tmp_path):
    folder = tmp_path / "adder"
    invoke("problems", "new", str(folder), "--bench", bench)
    done = invoke("problems", "check", str(folder), "--validate", "--mutants", "2")
    assert done.exit_code == 0, done.output
    assert "fit: the golden answer passes, 2 of 2 mutants fail" in done.stdout


def test_one_path_may_stand_without_a_list():
    one = {"answer": "a.v", "data": "rom.hex", "bench": {"verilog": "tb.v"}}
    listed = {"answer": ["a.v"], "data": ["rom.hex"], "bench": {"verilog": ["tb.v"]}}
    assert described(one) == described(listed)
