"""Counts of a problem set."""

from collections import Counter

from rtl_grader.problems.judged import Judging, judged_problem
from rtl_grader.problems.problem_set import BrokenLine, LeftOut, LoadedProblems
from rtl_grader.problems.statistics import in_order, statistics
from tests.command import invoke

COUNTER = """\
module counter(input clk, input rst, output reg [3:0] q);
  reg [1:0] phase; // phase <= 0
  wire full = q <= 4'd9;

  always @(posedge clk)
    if (rst) q <= 0;
    else begin
      phase <= phase + 1;
      q[0] <= full;
    end
endmodule
"""
WIRE = "module thru(input a, output b);\nassign b = a <= 1;\nendmodule\n"


def problem(name, golden, **fields):
    return judged_problem(
        id=f"{name}_{len(fields)}",
        source="own",
        category="cid003",
        difficulty="easy",
        prompt=f"Write {name}.",
        golden={f"rtl/{name}.v": golden},
        top=name,
        **fields,
    )


def test_problems_are_counted_by_size_judge_licence_and_reasons():
    proved = Judging(proof="passes")
    loaded = LoadedProblems(
        train=[problem("counter", COUNTER, judging=proved, licence="MIT", family="repair")],
        heldout=[problem("thru", WIRE)],
        broken=[
            BrokenLine("a.jsonl", line, None, "golden", "is empty", "own") for line in (1, 2)
        ],
        left_out=[LeftOut("x", "it is VHDL", "own")],
    )
    counts = statistics(loaded)
    assert counts["source"] == {"own": 2}
    assert counts["task"] == {"repair": 1, "specification to RTL": 1}
    assert counts["lines of code"] == {"1 to 10": 2}
    assert counts["registers"] == {"0": 1, "1 to 10": 1}
    assert counts["judge"] == {
        "golden answer: simulated, passes proved": 1,
        "golden answer: simulated": 1,
    }
    assert counts["licence"] == {"MIT": 1, "not stated": 1}
    assert counts["broken lines"] == {"golden: is empty": 2}
    assert counts["left out"] == {"it is VHDL": 1}


def test_sizes_stay_in_order_and_rare_values_are_summed_up():
    sizes = Counter({"31 to 100": 5, "0": 1, "1 to 10": 3})
    assert list(in_order(sizes)) == ["0", "1 to 10", "31 to 100"]
    others = Counter({f"licence {n}": 10 - n for n in range(5)})
    assert in_order(others, 3) == {
        "licence 0": 10,
        "licence 1": 9,
        "licence 2": 8,
        "2 others": 13,
    }


def test_the_command_prints_the_counts():
    result = invoke("problems", "stats", "--source", "starter", COLUMNS="200")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["source", "starter", "224", "100.0%"] in rows
    assert ["judge", "harness", "224", "100.0%"] in rows
