"""Compile the answer, run its cocotb tests, exit 0 only if all of them ran and passed."""

import os
import sys

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner


def main() -> int:
    runner = get_runner(os.environ["SIM"])
    top = os.environ["TOPLEVEL"]
    runner.build(sources=os.environ["VERILOG_SOURCES"].split(), hdl_toplevel=top, always=True, timescale=("1ns", "1ps"))
    total, failed = get_results(runner.test(hdl_toplevel=top, test_module=os.environ["MODULE"]))
    expected = int(os.environ["TESTS"])
    print(f"{total - failed} of {expected} tests passed")
    return 0 if total == expected and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
