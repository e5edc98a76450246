"""Mutants are small and wrong, and change only behaviour."""

import difflib
from pathlib import Path

import pytest

from rtl_core.starter import starter_problems
from rtl_grader.hdl.interface import parse_interface
from rtl_grader.hdl.tree import SourceTree
from rtl_grader.types.problem import InterfaceSource
from rtl_grader.validation.mutants import mutants
from rtl_grader.validation.mutation import KINDS

DESIGN = """\
`define TWICE(x) (x + x)
module m #(parameter W = 8) (input clk, input rst_n, input [7:0] a, input [7:0] b, output reg [7:0] y, output z);
  // a + b < c, posedge clk
  wire [7:0] c = a + b;  /* if (a) b else c */
  wire [3:0] n;
  wire [W-1:0] wide = {W{n[0]}};
  integer k;
  sub u(.p(a[0]), .q(b[1]));
  assign n = {a[3], b[2], a[1:0]};
  assign z = !(a == 8'h10) && `TWICE(b) > 3;
  always @(posedge clk or negedge rst_n)
    if (!rst_n) y <= 8'd0;
    else begin
      case (a[1:0])
        2'd0: y <= b - a;
        2'd1: y <= b << 1;
        default: y <= y;
      endcase
      if (a > 9) y <= 2; else if (b > 9) y <= 1;
      for (k = 0; k < 8; k = k + 1) if (b[k]) y <= k;
    end
  initial $display("a + b, %0d", a + b);
endmodule
"""


def made(source: str, limit: int = 1000, seed: int = 0) -> list[tuple[str, str]]:
    return [
        (m.kind, m.files["rtl/m.sv"]) for m in mutants({"rtl/m.sv": source}, "m", limit, seed)
    ]


def wrap(
    body: str,
    ports: str = "input [3:0] a, input [3:0] b, input clk, input rst, output reg [3:0] y",
) -> str:
    return f"module m #(parameter W = 3)({ports});\n  {body}\nendmodule\n"


MUTATIONS = (Path(__file__).parent / "mutations.txt").read_text()
"""Kind: text before --> part of the text after, ignoring white space."""


@pytest.mark.parametrize("line", MUTATIONS.splitlines())
def test_each_kind_of_mutation_is_made(line):
    kind, _, change = line.partition(": ")
    before, _, after = change.partition(" --> ")
    found = [(other, " ".join(text.split())) for other, text in made(wrap(before))]
    assert any(other == kind and after in text for other, text in found), found


def test_all_kinds_come_from_one_design_and_no_mutant_twice():
    found = made(DESIGN)
    assert {kind for kind, _ in found} == set(KINDS)
    assert len({text for _, text in found}) == len(found)
    assert DESIGN not in {text for _, text in found}


def test_comments_strings_macros_and_printing_are_not_mutated():
    kept = [
        "// a + b < c, posedge clk",
        "/* if (a) b else c */",
        '$display("a + b, %0d", a + b);',
    ]
    kept += ["`define TWICE(x) (x + x)", "`TWICE(b)"]
    for kind, text in made(DESIGN):
        dropped = [piece for piece in kept if piece not in text]
        assert not dropped or kind in ("dropped branch", "swap", "priority", "saturation"), (
            dropped,
            text,
        )
        assert kept[0] in text
        assert kept[2] in text


def test_every_mutant_keeps_the_interface():
    for problem in starter_problems("train", 18, 3):
        expected = problem.interface
        for mutant in mutants(problem.golden, expected.module, 100, 0):
            found = parse_interface(mutant.files, expected.module, InterfaceSource.GOLDEN)
            assert found == expected, mutant.description


def test_mutants_are_small_and_parse():
    golden = DESIGN.splitlines()
    for kind, text in made(DESIGN):
        assert SourceTree(text).errors == SourceTree(DESIGN).errors
        if kind in ("truncation", "ignored input", "ignored parameter", "late reset"):
            continue  # a signal is renamed in many places
        changed = [
            line for line in difflib.ndiff(golden, text.splitlines()) if line.startswith("+ ")
        ]
        assert len(changed) <= 3, changed


def test_the_same_seed_gives_the_same_mutants_and_a_longer_list_begins_with_the_shorter():
    assert made(DESIGN, seed=5) == made(DESIGN, seed=5)
    assert made(DESIGN, seed=5) != made(DESIGN, seed=6)
    assert made(DESIGN, 4, seed=5) == made(DESIGN, 20, seed=5)[:4]


def test_few_mutants_are_spread_over_the_kinds():
    for seed in range(5):
        assert len({kind for kind, _ in made(DESIGN, len(KINDS), seed)}) == len(KINDS)


def test_descriptions_name_file_and_line():
    for mutant in mutants({"rtl/m.sv": DESIGN}, "m", 100, 0):
        path, line, _ = mutant.description.split(":", 2)
        assert path == "rtl/m.sv"
        assert 1 <= int(line) <= len(DESIGN.splitlines())


def test_a_very_long_expression_is_mutated():
    source = wrap(f"always @(*) y = {' + '.join(['a'] * 400)};")
    assert len(made(source, 10)) == 10


def test_a_file_without_hdl_gives_none():
    assert mutants({"docs/readme.md": "a + b"}, "m", 5, 0) == []
