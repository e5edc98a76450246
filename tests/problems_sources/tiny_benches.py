"""Two problems in the formats of VerilogEval and RTLLM, without a data set, and a function that runs an answer against a bench."""

from pathlib import Path

from rtl_core.grading.compose import read_services
from rtl_core.grading.executors.base import Executor, Job, StepResult
from rtl_core.grading.limits import Limits
from rtl_core.problems.sources.rtllm import read_rtllm
from rtl_core.problems.sources.verilog_eval import read_verilog_eval
from rtl_core.types.problem import Problem

_VERILOG_EVAL = {
    "Prob001_times3_prompt.txt": "A module named TopModule: out is in times 3, modulo 16.\n",
    "Prob001_times3_ref.sv": "module RefModule(input clk, input [3:0] in, output [3:0] out);\n"
    "  assign out = in * 4'd3;\nendmodule\n",
    "Prob001_times3_test.sv": """\
`timescale 1 ps/1 ps
`define OK 12
module stimulus_gen(input clk, output logic [3:0] in);
  task wavedrom_stop; #1; endtask
  initial begin
    repeat(100) @(posedge clk, negedge clk) in <= $random;
    wavedrom_stop();
    $finish;
  end
endmodule
module tb();
  typedef struct packed { int errors; int clocks; } stats;
  stats stats1;
  reg clk = 0;
  initial forever #5 clk = ~clk;
  logic [3:0] in;
  logic [3:0] out_ref;
  logic [3:0] out_dut;
  initial begin $dumpfile("wave.vcd"); $dumpvars(1, stim1.clk, tb_match); end
  wire tb_match;
  stimulus_gen stim1(.clk, .*, .in);
  RefModule good1(.clk, .in, .out(out_ref));
  TopModule top_module1(.clk, .in, .out(out_dut));
  final begin
    $display("Hint: Total mismatched samples is %1d out of %1d samples\\n", stats1.errors, stats1.clocks);
    $display("Mismatches: %1d in %1d samples", stats1.errors, stats1.clocks);
  end
  assign tb_match = ({out_ref} === ({out_ref} ^ {out_dut} ^ {out_ref}));
  always @(posedge clk, negedge clk) begin
    stats1.clocks++;
    if (!tb_match) stats1.errors++;
  end
  initial begin #1000000 $display("TIMEOUT"); $finish(); end
endmodule
""",
}
_RTLLM = {
    "design_description.txt": "A counter of WIDTH bits with an asynchronous reset, active low. Module name: counter_tiny\n",
    "verified_counter_tiny.v": """\
module verified_counter_tiny #(parameter WIDTH = 2)(input clk, input rst_n, output reg [WIDTH-1:0] out);
  always @(posedge clk or negedge rst_n) if (!rst_n) out <= 0; else out <= out + 1'b1;
endmodule
""",
    "testbench.v": """\
module testbench;
  parameter BITS = 4;
  reg clk, rst_n;
  wire [BITS-1:0] out;
  integer i, error;
  counter_tiny #(.WIDTH(BITS)) dut(.clk(clk), .rst_n(rst_n), .out(out));
  initial begin
    clk = 0; rst_n = 1; error = 0;
    #2 rst_n = 0;
    #2 rst_n = 1;
    for (i = 0; i < 40; i = i + 1) begin
      if (out !== i % 16) error = error + 1;
      #5 clk = 1;
      #5 clk = 0;
    end
    if (error == 0) $display("===========Your Design Passed===========");
    else $display("===========Failed===========", error);
  end
endmodule
""",
}


def write_tiny(folder: Path) -> None:
    """Write both problems; `folder` then looks like a clone of either set."""
    (folder / "counter_tiny").mkdir()
    for place, files in ((folder, _VERILOG_EVAL), (folder / "counter_tiny", _RTLLM)):
        for name, text in files.items():
            (place / name).write_text(text)


def tiny_problems(folder: Path) -> dict[str, Problem]:
    """Write and read the two problems: name -> problem."""
    write_tiny(folder)
    sets = read_verilog_eval(folder), read_rtllm(folder)
    assert not any(found.broken for found in sets), [found.broken for found in sets]
    return dict(zip(("times3", "counter"), (problem for found in sets for problem in found.problems), strict=True))


def judged(executor: Executor, problem: Problem, text: str) -> StepResult:
    """Run the harness alone on an answer, without screening its text."""
    services, mounts = read_services(problem.harness)
    job = Job(
        files={problem.targets[0]: text},
        harness={path: text for path, text in problem.harness.items() if path.startswith("src/")},
        steps=services,
        mounts=mounts,
        limits=Limits(wall_s=20, cpu_s=3),
    )
    return executor.run(job).steps[0]
