"""Stubs have the right interface and no design."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rtl_core.problems.interface import parse_interface
from rtl_core.problems.problem import Interface, InterfaceSource, Port, Problem
from rtl_core.problems.starter import starter_problems
from rtl_core.validation.stubs import STUBS, stubs

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
    return subprocess.run(["iverilog", "-g2012", "-t", "null", *paths], check=False).returncode == 0


def problem(golden: str | None, interface: Interface | None) -> Problem:
    return Problem(
        id="p", source="cvdp", category="cid003", difficulty="easy", prompt="p", targets=("rtl/old.v",), harness={},
        golden={"rtl/old.v": golden} if golden else None, interface=interface,
    )  # fmt: skip


def test_stubs_of_every_starter_family_compile_and_keep_the_interface(tmp_path: Path) -> None:
    for made in starter_problems("train", 18, 1):
        found = stubs(made).files
        assert set(found) == set(STUBS)
        assert made.interface is not None
        for files in found.values():
            assert compiles(files, tmp_path), files
            assert parse_interface(files, made.interface.module, InterfaceSource.GOLDEN) == made.interface


def test_a_clocked_design_with_old_style_ports_keeps_its_parameters(tmp_path: Path) -> None:
    interface = parse_interface({"old.v": NON_ANSI}, "old", InterfaceSource.GOLDEN)
    found = stubs(problem(NON_ANSI, interface)).files
    for files in found.values():
        assert compiles(files, tmp_path), files
        assert "parameter W = 6" in files["rtl/old.v"]
        assert "posedge" not in files["rtl/old.v"]
    assert "assign y = a;" in found["inputs"]["rtl/old.v"]
    assert "assign z = ~0;" in found["ones"]["rtl/old.v"]


def test_without_a_golden_answer_a_stub_is_written_from_the_interface(tmp_path: Path) -> None:
    interface = Interface(
        module="old", source=InterfaceSource.SPECIFICATION,
        ports=(Port(name="clk", direction="input"), Port(name="a", direction="input", width=3), Port(name="y", direction="output", width=3)),
    )  # fmt: skip
    for files in stubs(problem(None, interface)).files.values():
        assert compiles(files, tmp_path)
        assert "output [2:0] y" in files["rtl/old.v"]


@pytest.mark.parametrize(
    ("interface", "reason"),
    [
        (None, "not known"),
        (Interface(module="old", source=InterfaceSource.HARNESS, ports=(Port(name="y"),)), "no output"),
    ],
)
def test_where_none_can_be_made_the_reason_is_told(interface: Interface | None, reason: str) -> None:
    made = stubs(problem(None, interface))
    assert not made.files
    assert reason in made.reason
