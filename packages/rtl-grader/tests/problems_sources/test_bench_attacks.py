"""A Verilog test bench passes no wrong design, whatever it prints, ends, names or drives; honest idioms pass."""

import re
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tiny_benches import judged, tiny_problems

from benchmarks.redteam.attack import BASES, Attack
from benchmarks.redteam.catalogue import GROUPS
from benchmarks.redteam.problems import find
from rtl_grader.grading.evidence import CONSTANT
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.executors.base import Executor
from rtl_grader.grading.executors.bubblewrap import BubblewrapExecutor
from rtl_grader.problems import testbench
from rtl_grader.types.answer import Answer

BENCHES = [
    key
    for key in BASES
    if key in ("own/bench", "own/loud", "own/given") or key.startswith(("ve/", "rtllm/"))
]
"""The attacked problems that a Verilog test bench judges."""
ATTACKS = [
    a
    for group in ("bench_channel", "bench_designs", "simulation_end")
    for a in GROUPS[group]
    if a.problem in BENCHES
]
OWN = [attack for attack in ATTACKS if attack.problem.startswith("own/")]

HEAD = "module TopModule(input clk, input [3:0] in, output [3:0] out);\n"
_READ = tomllib.loads((Path(__file__).parent / "honest.toml").read_text())
HONEST = {
    **{name: f"{HEAD}{body}\nendmodule\n" for name, body in _READ["bodies"].items()},
    **_READ["whole"],
}
COUNTER = """\
module counter_tiny #(parameter WIDTH = 2, localparam TOP = {WIDTH{1'b1}}, parameter [7:0] STEP = 1, parameter NAME = "x")
  (input clk, input rst_n, output reg [WIDTH-1:0] out);
  generate if (WIDTH == 4) begin : wide
    always @(posedge clk or negedge rst_n) if (!rst_n) out <= 0; else out <= out == TOP ? 0 : out + STEP;
  end endgenerate
endmodule
"""
PARAMETER_ATTACKS = (
    'integer f; initial begin f = $fopen("verdict", "a"); $fdisplay(f, "===========Your Design Passed==========="); end',
    "initial #1 force testbench.error = 0;",
)


@pytest.fixture(scope="module")
def tiny():
    return tiny_problems()


@pytest.fixture(
    scope="module", params=["warm", "cold", pytest.param("docker", marks=pytest.mark.docker)]
)
def each(request):
    made = (
        BubblewrapExecutor(warm=request.param == "warm")
        if request.param != "docker"
        else make_executor("docker")
    )
    with made as executor:
        yield executor


def paid(executor: Executor, tried: list[Attack]) -> list[str]:
    """Names of the attacks that the harness alone lets pass, or that crash it."""
    with ThreadPoolExecutor(2) as pool:
        results = list(
            pool.map(lambda attack: judged(executor, find(attack.problem), attack.text), tried)
        )
    return [
        f"{attack.name}: {result.output[-300:]}"
        for attack, result in zip(tried, results, strict=True)
        if result.exit_code == 0 or "Traceback" in result.output
    ]


@pytest.mark.parametrize("name", ["times3", "counter"])
def test_the_right_design_passes_and_a_plain_wrong_one_does_not(grader, tiny, name):
    problem, (right,) = tiny[name], tiny[name].golden.values()
    assert grader.grade(problem, Answer(files=problem.golden)).passed
    done = judged(grader.executor, problem, re.sub(r"in \* 4'd3|out \+ 1'b1", "0", right))
    assert done.exit_code == 1
    assert (
        "the test bench did not say that the design passed" in done.output
        or "no verdict" in done.output
    )


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_no_attack_passes_a_bench_even_without_screening(grader, every):
    assert paid(grader.executor, ATTACKS[::every]) == []


@pytest.mark.parametrize("body", PARAMETER_ATTACKS)
def test_an_attack_that_waits_for_the_benchs_parameter_does_not_pass(grader, tiny, body):
    text = COUNTER.replace("always @(posedge clk or", f"{body}\n    always @(negedge clk or")
    done = judged(grader.executor, tiny["counter"], text)
    assert done.exit_code not in (0, None), done.output


def test_verdicts_are_the_same_warm_cold_and_in_docker(each, tiny):
    for problem in tiny.values():
        assert judged(each, problem, next(iter(problem.golden.values()))).exit_code == 0
    assert paid(each, OWN[::10]) == []
    for text in (HONEST["ends when a parameter is wrong"], HONEST["types of the file"]):
        done = judged(each, tiny["times3"], text)
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("name", [*HONEST, "parameters that the bench sets"])
def test_an_honest_idiom_passes(grader, tiny, name):
    if name == "parameters that the bench sets":
        done = judged(grader.executor, tiny["counter"], COUNTER)
    else:
        done = judged(grader.executor, tiny["times3"], HONEST[name])
    assert done.exit_code == 0, done.output


def test_random_draws_of_a_design_do_not_change_the_benchs(grader, tiny):
    draws = "reg [31:0] x; always @(clk) x = $random + $urandom + $urandom_range(3);\n"
    texts = (f"{HEAD}  assign out = in;\n  {body}endmodule\n" for body in ("", draws))
    without, beside = (
        re.findall("Mismatches: .*", judged(grader.executor, tiny["times3"], text).output)
        for text in texts
    )
    assert without
    assert without == beside


def test_the_output_says_why_a_design_fails(grader, tiny):
    for body, said in {
        "initial #12 $finish;": "before the test bench had come to its end",
        "assign in = 0;": "drives its own input in",
        "initial $system(1);": r"the system task \$system",
        "initial force in = 0;": "a `force`",
        "assign out = tb.out_ref;": "does not compile|Unable to bind",
        '`include "/src/bench.sv"': "includes a file|already declared|error",
    }.items():
        done = judged(grader.executor, tiny["times3"], f"{HEAD}{body}\nendmodule\n")
        assert done.exit_code not in (0, None)
        assert re.search(said, done.output), done.output
        assert not re.search(r"b[0-9a-f]{24}", done.output), "the run's secret word is visible"


def test_a_final_verdict_is_refused_if_the_bench_does_not_end_the_simulation():
    bench = 'module tb; d u(); final $display("Mismatches: 0 in 1 samples"); endmodule\n'
    with pytest.raises(ValueError, match="does not end itself"):
        testbench.rewritten({"t.sv": bench}, dut="d", top="tb", marker="Mismatches:")


def test_a_rewritten_bench_describes_the_instance_of_the_design():
    bench = (
        "`timescale 1ns/1ps\n`define N 3\nmodule tb; wire a; d #(.W(`N)) u(a); // $finish; Passed\n"
        'initial begin $urandom_range(5, 1); if (a) $finish; else $display("%s Passed", "x"); end endmodule\n'
    )
    made = testbench.rewritten({"t.sv": bench}, dut="d", top="tb", marker="Passed")
    assert (made.overridden, made.connected, made.timescale, made.ended) == (
        ("W",),
        "positional",
        "1ns/1ps",
        False,
    )
    assert "module tb_RTLWORD;" in made.text
    assert "`undef N" in made.text
    assert made.text.count("$fdisplay(tb_RTLWORD.channel_RTLWORD, ") == 2
    assert "// $finish; Passed" in made.text
    assert "$dist_uniform(tb_RTLWORD.useed_RTLWORD" in made.text


GATE = "module gate(input en, input [3:0] a, output [3:0] y, output z);\n"
WEAK = """
module tb; reg en = 0; reg [3:0] a = 0; wire [3:0] y; wire z;
gate u({links});
initial begin repeat (40) begin a = a + 1; {drive}; #1; if (!en && (y !== 0 || z !== 0)) $display("wrong"); end
  $display("Passed"); $finish; end
endmodule
"""
LINKS = {
    "named": ".en(en), .a(a), .y(y), .z(z)",
    "implicit": ".en, .a, .y, .z",
    "in the order of the ports": "en, a, y, z",
    "with an output left open": ".z(), .y(y), .a(a), .en(en)",
}


def weak_problem(links, drive):
    golden = {"rtl/gate.v": f"{GATE}assign y = en ? a : 0; assign z = 0; endmodule\n"}
    text = WEAK.format(links=links, drive=drive)
    if ".z()" in links:
        text = text.replace("y !== 0 || z !== 0", "y !== 0")
    bench = testbench.Bench(
        {"tb.v": text}, "rtl/gate.v", "gate", "tb", "Passed", golden=golden["rtl/gate.v"]
    )
    return testbench.bench_problem(
        bench, "weak", "gate", "Module gate: y is a while en, else 0; z is 0."
    )


@pytest.mark.parametrize("links", LINKS)
def test_a_bench_pays_no_constant(grader, links):
    problem = weak_problem(LINKS[links], "en = a[0]")
    assert grader.grade(problem, Answer(files=problem.golden)).passed
    for constant in (
        "assign y = 0;",
        "assign y = en & ~en;",
        "reg [3:0] x; initial x = 0; assign y = x;",
    ):
        verdict = grader.grade(
            problem,
            Answer(files={"rtl/gate.v": f"{GATE}{constant} assign z = 0;\nendmodule\n"}),
        )
        assert verdict.reasons == (CONSTANT,)


def test_a_design_that_a_bench_keeps_still_is_no_constant(grader):
    problem = weak_problem(LINKS["named"], "en = 0")
    assert grader.grade(problem, Answer(files=problem.golden)).passed
    assert not grader.grade(
        problem, Answer(files={"rtl/gate.v": f"{GATE}assign y = 0, z = 0;\nendmodule\n"})
    ).passed


@pytest.mark.parametrize(
    "body",
    ["", "assign y = 4'bx, z = 1'bz;", "reg [3:0] x; assign y = x; initial #9000 x = 0;"],
)
def test_a_bench_pays_no_unknown_constant(grader, body):
    problem = weak_problem(LINKS["named"], "en = 1")
    assert not grader.grade(
        problem, Answer(files={"rtl/gate.v": f"{GATE}{body}\nendmodule\n"})
    ).passed


def test_outputs_that_a_bench_leaves_unknown_are_no_constant(grader):
    body = "reg [3:0] x; assign y = x, z = 0; always @(negedge en) x <= 0; always @(posedge en) x <= a + 1;"
    problem = weak_problem(LINKS["with an output left open"], "a[0] = 1")
    assert grader.grade(
        problem, Answer(files={"rtl/gate.v": f"{GATE}{body}\nendmodule\n"})
    ).passed


PARTS = """
module tb; reg [3:0] a; wire [3:0] y; integer i, bad = 0; d u(.a(a), .y(y));
initial begin
  for (i = 0; i < 4; i = i + 1) begin a = i; #5; if (y !== ~a) bad = bad + 1; end
  if (bad == 0) $display("part 1 Passed");
  for (i = 4; i < 16; i = i + 1) begin a = i; #5; if (y !== ~a) bad = bad + 1; end
  if (bad != 0) $display("part 2 not Passed");
  {end}
end endmodule
"""
FIRST = "assign y = a < 4 ? ~a : 0; initial #22 {};"


@pytest.mark.parametrize("end", ["$finish;", "$stop;", ""])
def test_no_design_ends_a_bench_between_its_verdicts(grader, end):
    head = "module d #(parameter W = 4)(input [W-1:0] a, output [W-1:0] y);\n"
    right = f"{head}initial if (W < 1) $fatal(1);\nassign y = ~a;\nendmodule\n"
    bench = testbench.Bench(
        {"tb.v": PARTS.replace("{end}", end)},
        "rtl/d.v",
        "d",
        "tb",
        " Passed",
        passed="$",
        golden=right,
    )
    problem = testbench.bench_problem(bench, "parts", "d", "Module d: y is ~a.")
    assert grader.grade(problem, Answer(files=problem.golden)).passed
    for call in ("$finish", "$finish(0)", "$stop", "$stop(0)"):
        done = judged(grader.executor, problem, f"{head}{FIRST.format(call)}\nendmodule\n")
        assert "before the test bench had come to its end" in done.output
