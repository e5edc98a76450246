"""Stubs have the right interface but no design."""

import subprocess
from pathlib import Path

import pytest

from rtl_core.starter import starter_problems
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.types.problem import Interface, InterfaceSource, Port, Problem
from rtl_grader.validation.stubs import STUBS, WITHOUT_DESIGN, in_words, kind_of, stubs
from tests.nouns import a_problem

NON_ANSI = """\
module old(a, clk, y, z);
  parameter W = 6;
  input [W-1:0] a; input clk;
  output [W-1:0] y; output reg z = 1;
  reg [W-1:0] y;
  always @(posedge clk) begin y <= a; z <= ~z; end
endmodule
"""


def compiles(files: dict[str, str], folder: Path) -> bool:
    paths = []
    for path, text in files.items():
        (folder / Path(path).name).write_text(text)
        paths.append(str(folder / Path(path).name))
    return (
        subprocess.run(["iverilog", "-g2012", "-t", "null", *paths], check=False).returncode
        == 0
    )


def problem(golden: str | None, interface: Interface | None) -> Problem:
    return a_problem(
        targets=("rtl/old.v",),
        golden={"rtl/old.v": golden} if golden else None,
        interface=interface,
    )


def test_stubs_of_every_starter_family_compile_and_keep_the_interface(tmp_path):
    for made in starter_problems("train", 18, 1):
        found = stubs(made).files
        outputs = [p for p in made.interface.ports if p.direction == "output"]
        clocked = "posedge" in str(made.golden)
        expected = (
            set(STUBS)
            - (set() if clocked else {"clock", "counter"})
            - (set() if len(outputs) > 1 else {"stuck"})
        )
        assert {kind_of(name) for name in found} == expected
        assert len([name for name in found if kind_of(name) == "stuck"]) == (
            2 * len(outputs) if len(outputs) > 1 else 0
        )
        for files in found.values():
            assert compiles(files, tmp_path), files
            assert (
                parse_interface(files, made.interface.module, InterfaceSource.GOLDEN)
                == made.interface
            )


def test_a_clocked_design_with_old_style_ports_keeps_its_parameters(tmp_path):
    interface = parse_interface({"old.v": NON_ANSI}, "old", InterfaceSource.GOLDEN)
    found = stubs(problem(NON_ANSI, interface)).files
    for files in found.values():
        assert compiles(files, tmp_path), files
        assert "parameter W = 6" in files["rtl/old.v"]
    for stub in WITHOUT_DESIGN:
        assert "y <= a" not in found[stub]["rtl/old.v"]
    assert "assign y = a;" in found["inputs"]["rtl/old.v"]
    assert "assign z = ~0;" in found["ones"]["rtl/old.v"]
    assert "assign y = clk ? ~0 : 0;" in found["clock"]["rtl/old.v"]
    assert set(found) > {"stuck y at 0", "stuck y at 1", "stuck z at 0", "stuck z at 1"}
    assert in_words("stuck y at 1") == "output y at 1 for ever, the others right"


def test_without_a_golden_answer_a_stub_is_written_from_the_interface(tmp_path):
    interface = Interface(
        module="old", source=InterfaceSource.SPECIFICATION,
        ports=(Port(name="clk", direction="input"), Port(name="a", direction="input", width=3), Port(name="y", direction="output", width=3)),
    )  # fmt: skip
    found = stubs(problem(None, interface)).files
    assert set(found) >= set(WITHOUT_DESIGN)
    for files in found.values():
        assert compiles(files, tmp_path)
        assert "output [2:0] y" in files["rtl/old.v"]


@pytest.mark.parametrize(
    ("interface", "reason"),
    [
        (None, "not known"),
    ],
)
def test_without_stubs_there_is_a_reason(interface, reason):
    made = stubs(problem(None, interface))
    assert not made.files
    assert reason in made.reason


COUNTER = """\
module old #(parameter W = 4) (input clk, input rst_n, output reg [W-1:0] q, output top);
  always @(posedge clk or negedge rst_n) if (!rst_n) q <= 3; else q <= q + 1;
  assign top = q[W-1];
endmodule
"""
WATCH = """\
`timescale 1ns/1ps
module watch;
  reg clk = 0, rst_n = 1; wire [3:0] q; wire top; integer i;
  old dut(.clk(clk), .rst_n(rst_n), .q(q), .top(top));
  initial begin
    #4 rst_n = 0;
    #5 $write("%0d/%b ", q, top);
    rst_n = 1;
    for (i = 0; i < 6; i = i + 1) begin #5 clk = 1; #5 clk = 0; $write("%0d/%b ", q, top); end
    rst_n = 0; #5 $write("%0d/%b ", q, top);
    $finish(0);
  end
endmodule
"""


def simulate(folder: Path, stub: str, bench: str = WATCH) -> str:
    """Output of a test bench with a stub of COUNTER."""
    interface = parse_interface({"old.v": COUNTER}, "old", InterfaceSource.GOLDEN)
    (folder / "dut.sv").write_text(stubs(problem(COUNTER, interface)).files[stub]["rtl/old.v"])
    (folder / "watch.sv").write_text(bench)
    subprocess.run(
        ["iverilog", "-g2012", "-s", "watch", "-o", "x", "watch.sv", "dut.sv"],
        cwd=folder,
        check=True,
    )
    return subprocess.run(
        ["vvp", "-n", "x"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize(
    ("stub", "seen"),
    [
        ("one step", "3/0 4/0 4/0 4/0 4/0 4/0 4/0 3/0"),
        ("stuck q at 0", "0/0 0/0 0/0 0/0 0/0 0/1 0/1 0/0"),
        ("stuck top at 1", "3/1 4/1 5/1 6/1 7/1 8/1 9/1 3/1"),
        ("blip", "0/0 0/0 0/0 0/0 0/0 0/0 0/0 0/0"),
        ("zeros", "0/0 0/0 0/0 0/0 0/0 0/0 0/0 0/0"),
        ("unknown", "x/x x/x x/x x/x x/x x/x x/x x/x"),
    ],
)
def test_a_stub_does_what_its_name_says(tmp_path, stub, seen):
    assert simulate(tmp_path, stub).split() == seen.split()


def test_an_echo_follows_the_clock_and_a_blip_lasts_a_nanosecond(tmp_path):
    bench = WATCH.replace('$write("%0d/%b ", q, top)', "").replace(
        "initial begin", 'initial $monitor("%0t %b", $time, q); initial begin'
    )
    clock, blip = (
        simulate(tmp_path, stub, bench).splitlines()[:3] for stub in ("clock", "blip")
    )
    assert blip == ["0 0000", "1 1111", "2 0000"] or blip == [
        "0 0000",
        "1000 1111",
        "2000 0000",
    ]
    assert [line.split()[1] for line in clock] == ["0000", "1111", "0000"]
