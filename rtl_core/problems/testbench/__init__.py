"""Sets that judge by a Verilog test bench of their own: the bench made into a CVDP harness."""

from rtl_core.problems.testbench.harness import (
    Bench,
    bench_harness,
    bench_modules,
    bench_problem,
    read_benches,
    renamed,
)
from rtl_core.problems.testbench.rewrite import prints, rewritten

__all__ = ["Bench", "bench_harness", "bench_modules", "bench_problem", "prints", "read_benches", "renamed", "rewritten"]
