"""A small RTL project: a package, a header, modules that use one another, and a test bench."""

import json
from pathlib import Path
from typing import Any

from rtl_grader.problems.judged import JUDGE_FILE
from rtl_grader.problems.problem_set import ProblemSet
from rtl_grader.problems.sources import SOURCES
from rtl_grader.types.problem import Problem

FILES = {
    "LICENSE": "\nMIT License\n\nCopyright\n",
    "src/sizes.sv": "package sizes;\n  localparam int W = 4;\nendpackage\n",
    "include/common/step.svh": "`define STEP(x) ((x) + 1'b1)\n",
    "src/count.sv": """\
// SPDX-License-Identifier: Apache-2.0
// Counts up, while `up` is 1.
`include "common/step.svh"
module count import sizes::*; (input logic clk, rst, up, output logic [W-1:0] q);
  logic [W-1:0] following;
  assign following = `STEP(q);
  always_ff @(posedge clk)
    if (rst) q <= '0;
    else if (up) q <= following;
endmodule
""",
    "src/top.sv": """\
module top (input logic clk, rst, a, b, output logic [3:0] q, output logic [1:0] y);
  count u_count (.clk, .rst, .up(a ^ b), .q);
  always_comb
    case ({a, b})
      2'b00: y = 2'd3;
      2'b01: y = 2'd1;
      default: y = {b, a};
    endcase
endmodule
""",
    "src/tb_top.sv": "module tb_top;\n  initial begin #10 $finish; end\nendmodule\n",
}


PASS = "module {name} (input a, output y);\n  {body}\n  assign y = !a;\nendmodule\n"


def settings(problem: Problem) -> Any:
    """What the judge of a problem reads."""
    return json.loads(problem.harness[JUDGE_FILE])


def of_module(contents: ProblemSet, name: str) -> Problem:
    """The first problem about a module."""
    return next(problem for problem in contents.problems if problem.interface.module == name)


def project(folder: Path, **more: str) -> Path:
    """Write the project's files, and more with `__` for `/` in their names."""
    named = {path.replace("__", "/").replace("_dot_", "."): text for path, text in more.items()}
    for path, text in {**FILES, **named}.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def read(path: Path, **settings: object) -> ProblemSet:
    return SOURCES.find("rtl")(kind="rtl", path=path, **settings).read()


def reasons(contents: ProblemSet) -> dict[str, str]:
    """What is left out -> why."""
    return {Path(entry.id).name: entry.reason for entry in contents.left_out}
