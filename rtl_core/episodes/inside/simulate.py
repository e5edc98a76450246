"""Builds a design with Icarus and runs a cocotb test bench on it. Runs in the sandbox: `python3 simulate.py
TOP BENCH SOURCE ...`."""

import os
import sys

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

top, bench, *sources = sys.argv[1:]
folder, name = os.path.split(os.path.abspath(bench))
sys.path.insert(0, folder)
os.environ["PYTHONPATH"] = folder + os.pathsep + os.environ.get("PYTHONPATH", "")
runner = get_runner("icarus")
place = "/code/rundir/sim_build"
runner.build(
    sources=[os.path.abspath(source) for source in sources],
    includes=["/code/rtl"],
    hdl_toplevel=top,
    build_dir=place,
    build_args=["-g2012"],
    timescale=("1ns", "1ps"),
)
results = runner.test(
    hdl_toplevel=top,
    test_module=name.removesuffix(".py"),
    build_dir=place,
    test_dir="/code/rundir",
)
tests, failed = get_results(results)
sys.exit(1 if failed or not tests else 0)
