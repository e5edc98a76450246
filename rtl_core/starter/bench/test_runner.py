"""Compile the answer, run its cocotb tests, once for each tested value of its parameter if it has one, up
to the first with a failing test; exit 0 only if all of them ran and passed.
"""

import os
import sys

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner


def tested(value):
    """(tests, failed tests) with this value of the parameter, or with the default where it is None."""
    runner = get_runner(os.environ["SIM"])
    top = os.environ["TOPLEVEL"]
    place = "sim_build" if value is None else f"sim_build_{value}"
    runner.build(
        sources=os.environ["VERILOG_SOURCES"].split(),
        hdl_toplevel=top,
        always=True,
        build_dir=place,
        parameters={} if value is None else {os.environ["PARAMETER"]: int(value)},
        timescale=("1ns", "1ps"),
    )
    environment = {} if value is None else {"TESTED_WIDTH": value}
    return get_results(
        runner.test(
            hdl_toplevel=top,
            test_module=os.environ["MODULE"],
            build_dir=place,
            extra_env=environment,
        )
    )


def main() -> int:
    total = failed = 0
    for value in (None, *os.environ.get("PARAMETER_VALUES", "").split()):
        counts = tested(value)
        total, failed = total + counts[0], failed + counts[1]
        if failed:
            break
    expected = int(os.environ["TESTS"])
    print(f"{total - failed} of {expected} tests passed")
    return 0 if total == expected and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
