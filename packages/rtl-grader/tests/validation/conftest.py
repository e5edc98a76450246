"""Problems with given harnesses."""

from collections.abc import Callable

import pytest

from rtl_grader.types.problem import Problem
from tests.nouns import COMPOSE, read_problem

BENCH = """\
module bench;
  reg [3:0] a; wire [3:0] y; integer i, bad;
  inv dut(.a(a), .y(y));
  initial begin
    bad = 0;
    for (i = 0; i < 16; i = i + 1) begin a = i; #1 if (y !== ~a) bad = bad + 1; end
    if (bad == 0) $display("all good");
    $finish;
  end
endmodule
"""
# Like a rewritten test bench it runs without the grader's environment: the grader refuses scripts that judge by what is printed.
HONEST = """\
import os, subprocess, sys
os.environ.pop("RTL_WATCH")
subprocess.run(["iverilog", "-g2012", "-s", "bench", "-o", "sim", "/src/bench.sv", "/code/rtl/inv.sv"], check=True)
done = subprocess.run(["vvp", "-n", "sim"], stdout=subprocess.PIPE, text=True)
sys.exit(0 if "all good" in done.stdout else 1)
"""


def inverter(value: str = "~a") -> str:
    """A design with the inverter's interface whose output is `value`."""
    return f"module inv(input [3:0] a, output [3:0] y);\n  assign y = {value};\nendmodule\n"


@pytest.fixture
def planted() -> Callable[..., Problem]:
    """Factory of a problem (a four-bit inverter) whose harness is the given Python program, by default an honest one."""

    def make(
        run: str = HONEST,
        *,
        identity: str = "planted",
        golden: str | None = inverter(),
        context: dict[str, str] | None = None,
        files: dict[str, str] | None = None,
        command: str = "python3 /src/run.py",
    ) -> Problem:
        harness = {
            "docker-compose.yml": COMPOSE.format(command),
            "src/.env": "TOPLEVEL = inv\nVERILOG_SOURCES = /code/rtl/inv.sv\n",
            "src/run.py": run,
            "src/bench.sv": BENCH,
            **(files or {}),
        }
        prompt = (
            "Write an inverter:\n```verilog\nmodule inv(input [3:0] a, output [3:0] y);\n```\n"
        )
        return read_problem(
            id=identity, prompt=prompt, context=context or {}, targets=("rtl/inv.sv",), harness=harness,
            golden={"rtl/inv.sv": golden} if golden else None,
        )  # fmt: skip

    return make
