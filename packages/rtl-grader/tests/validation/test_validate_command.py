"""The command `rtl-grader validate`, on a set of two adders of which one has a harness without demands."""

import json

import pytest
from typer.testing import CliRunner

from rtl_grader import cli

BENCH = """\
module testbench;
  reg [1:0] a, b; wire [2:0] y; integer i, error = 0;
  {name} dut(.a(a), .b(b), .y(y));
  initial begin
    for (i = 0; i < 16; i = i + 1) begin {{a, b}} = i; #10 if ({wrong}) error = error + 1; end
    if (error == 0) $display("===========Your Design Passed===========");
    else $display("===========Error===========");
    $finish;
  end
endmodule
"""
ADDER = """\
module {name}(input [1:0] a, input [1:0] b, output [2:0] y);
  assign y = a + b;
endmodule
"""


@pytest.fixture
def designs(tmp_path):
    """A folder in RTLLM's format."""
    for name, wrong in (("strict_add", "y !== a + b"), ("any_add", "y === 3'bz")):
        folder = tmp_path / "RTLLM" / "Arithmetic" / "Adder" / name
        folder.mkdir(parents=True)
        description = f"Please act as a professional Verilog designer.\nModule name: {name}\n"
        (folder / "design_description.txt").write_text(description)
        (folder / "testbench.v").write_text(BENCH.format(name=name, wrong=wrong))
        (folder / f"verified_{name}.v").write_text(ADDER.format(name=name))
    return tmp_path / "RTLLM"


def validate(*words):
    cli.register()
    return CliRunner().invoke(cli.app, ["validate", *map(str, words)])


def test_weak_problems_are_named_and_every_problem_is_a_line_of_the_output(designs, tmp_path):
    output = tmp_path / "validation.jsonl"
    quick = ("--mutants", 2, "--seeds", 1, "--jobs", 1, "--output", output)
    done = validate("--source", f"rtllm={designs}", *quick, "--strict")
    assert done.exit_code == 1, done.output
    assert "weak: rtllm_any_add (rtllm): a stub is paid: all outputs 0" in done.stdout
    records = {r["problem_id"]: r for r in map(json.loads, output.read_text().splitlines())}
    assert {name: record["status"] for name, record in records.items()} == {
        "rtllm_strict_add": "fit",
        "rtllm_any_add": "weak",
    }
    assert records["rtllm_strict_add"]["evidence"]["mutants"]["killed"] == 2


def test_errors_come_before_any_work(designs, tmp_path):
    missing = validate()
    assert "which problems?" in str(missing.exception)
    nowhere = tmp_path / "no folder" / "validation.jsonl"
    done = validate("--source", f"rtllm={designs}", "--output", nowhere)
    assert isinstance(done.exception, FileNotFoundError)
    assert "validated" not in done.output
