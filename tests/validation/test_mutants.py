"""Mutants are small and wrong, and change only behaviour."""

import difflib

import pytest

from rtl_core.problems.interface import parse_interface
from rtl_core.problems.starter import starter_problems
from rtl_core.problems.tree import SourceTree
from rtl_core.types.problem import InterfaceSource
from rtl_core.validation.mutants import mutants
from rtl_core.validation.mutation import KINDS

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
    return [(m.kind, m.files["rtl/m.sv"]) for m in mutants({"rtl/m.sv": source}, "m", limit, seed)]


def wrap(body: str, ports: str = "input [3:0] a, input [3:0] b, input clk, input rst, output reg [3:0] y") -> str:
    return f"module m #(parameter W = 3)({ports});\n  {body}\nendmodule\n"


MUTATIONS = """\
operator: always @(*) y = a + b; --> a - b
operator: always @(*) y = a & b; --> a | b
operator: always @(*) y = &a; --> |a
constant: always @(*) y = 4'd0; --> 4'd1
constant: always @(*) y = 4'hc; --> 4'hd
constant: always @(*) y = '0; --> '1
bit order: always @(*) y = {a[1:0], b[1:0]}; --> {b[1:0], a[1:0]}
bit order: integer i; always @(*) for (i = 0; i < 4; i = i + 1) y[i] = a[i]; --> i = (4) - 1; i >= 0; i = i - 1
bit order: always @(*) y = a[2]; --> input [0:3] a
polarity: always @(posedge clk) y <= a; --> negedge clk
polarity: always @(*) y = ~a; --> y = a
polarity: always @(*) if (a > 1) y = b; else y = 0; --> if (!(a > 1))
off by one: always @(*) y = a < b; --> a <= b
off by one: always @(*) y = a == 4'd9; --> 4'd10
off by one: always @(*) y = a[3:1]; --> a[3:2]
dropped branch: always @(*) if (a[0]) y = b; else y = a; --> if (a[0]) y = b; endmodule
dropped branch: always @(*) begin y = 0; if (a[0]) y = b; end --> if (a[0]) ; end
dropped branch: always @(*) case (a) 1: y = b; default: y = 0; endcase --> case (a) default
swap: always @(*) y = a - b; --> b - a
swap: always @(*) y = a[0] ? a : b; --> a[0] ? b : a
swap: sub u(.p(a), .q(b)); --> .p(b), .q(a)
truncation: always @(posedge clk) y <= y + 1; --> reg [2:0] y__short; assign y = y__short;
truncation: reg [13:0] n; always @(posedge clk) {y, n} <= n + 1; --> reg [7:0] n;
saturation: always @(posedge clk) y <= y + 1; --> y <= ((({1'b0, y} + (1)) >> $bits(y)) != 0) ? ~0 : (y) + (1);
saturation: always @(posedge clk) y <= y - b; --> y <= ((y) < (b)) ? 0 : (y) - (b);
saturation: always @(posedge clk) y += a; --> y = ((({1'b0, y} + {1'b0, a}) >> $bits(y)) != 0) ? ~0 : (y) + (a);
saturation: always @(posedge clk) y++; --> y = (&y) ? ~0 : y + 1;
saturation: always @(posedge clk) if (y != 9) y <= y + 1; --> always @(posedge clk) y <= y + 1;
ignored input: always @(*) y = a + b; --> wire [3:0] a__seen = 0; always @(*) y = a__seen + b;
ignored input: always @(*) y = a + b; --> wire [3:0] b__seen = b | (1 << 2);
ignored input: always @(posedge clk) if (!rst) y <= 0; else y <= a; --> wire rst__seen = 1;
ignored parameter: wire [W-1:0] n = a; --> wire [(3)-1:0] n = a;
late reset: always @(posedge clk) if (!rst) y <= 0; else y <= a; --> rst__before <= rst; always @(posedge clk) if (!rst__before)
late reset: always @(posedge clk or negedge rst) if (!rst) y <= 0; --> wire rst__held = rst | rst__before;
late reset: always @(posedge clk) if (rst) y <= 0; else y <= a; --> wire rst__held = rst & rst__before;
missing reset: always @(posedge clk) if (!rst) begin y <= 0; z <= 1; end else y <= a; --> if (!rst) begin y <= 0; ; end else
missing reset: always @(posedge clk or posedge rst) if (rst) y <= 0; else y <= a; --> if (rst) ; else y <= a;
missing reset: always @(posedge clk or negedge rst) if (rst) y <= a; else y <= 0; --> if (rst) y <= a; else ;
priority: always @(*) if (a > 1) y = 1; else if (b > 1) y = 2; --> if (b > 1) y = 2; else if (a > 1) y = 1;
priority: always @(*) y = a > 1 ? 1 : (b > 1) ? 2 : 3; --> y = (b > 1) ? 2 : a > 1 ? 1 : 3;
priority: always @(*) casez (a) 4'b1???: y = 1; 4'b?1??: y = 2; endcase --> casez (a) 4'b?1??: y = 2; 4'b1???: y = 1; endcase
priority: always @(*) begin if (a > 1) y = 1; if (b > 1) y = 2; end --> begin if (b > 1) y = 2; if (a > 1) y = 1; end
"""
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
    kept = ["// a + b < c, posedge clk", "/* if (a) b else c */", '$display("a + b, %0d", a + b);']
    kept += ["`define TWICE(x) (x + x)", "`TWICE(b)"]
    for kind, text in made(DESIGN):
        dropped = [piece for piece in kept if piece not in text]
        assert not dropped or kind in ("dropped branch", "swap", "priority", "saturation"), (dropped, text)
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
        changed = [line for line in difflib.ndiff(golden, text.splitlines()) if line.startswith("+ ")]
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
