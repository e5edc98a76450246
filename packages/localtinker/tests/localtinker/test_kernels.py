"""The tests whose results may depend on kernels, repeated with the kernels of older CPUs.

ATEN_CPU_CAPABILITY selects torch's own kernels, ONEDNN_MAX_CPU_ISA those of oneDNN (bfloat16), and MKL_ENABLE_INSTRUCTIONS those of
MKL (float32 products; on Intel CPUs only).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = (
    "test_deterministic.py",
    "test_sampling.py",
    "test_sampling_processes.py",
    "test_models.py",
)
"""Tests of bitwise equality and comparisons with other implementations."""
OLDEST = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
}
"""The oldest kernels of each library. All other tests use the newest kernels of this machine."""


@pytest.mark.slow
def test_the_tests_pass_with_the_oldest_kernels(tmp_path):
    environment = {**os.environ, **OLDEST}
    program = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == "DEFAULT"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow"]
    command += [f"--basetemp={tmp_path / 'tests'}", *(str(HERE / file) for file in FILES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
