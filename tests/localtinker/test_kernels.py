"""The service keeps its promises with whatever kernels a CPU has: its tests once more, with kernels of other CPUs.

torch's own kernels follow ATEN_CPU_CAPABILITY, oneDNN's (bfloat16) ONEDNN_MAX_CPU_ISA, and MKL's (float32 products; only on CPUs
of its maker) MKL_ENABLE_INSTRUCTIONS. Names that a CPU is too old for are not run there, or mean the best that it has.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = ("test_deterministic.py", "test_sampling.py", "test_sampling_processes.py", "test_models.py")
"""Where kernels matter most: what is promised bit for bit, and what is compared with another implementation."""
OLDEST = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}
"""Each library's plainest kernels. All that this machine has is what the other tests run with."""


@pytest.mark.slow
def test_the_service_keeps_its_promises_with_the_oldest_cpus_kernels(tmp_path):
    environment = {**os.environ, **OLDEST}
    program = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    shown = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "DEFAULT"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "not slow and not timing",
        f"--basetemp={tmp_path / 'tests'}",
    ]
    done = subprocess.run(
        [*command, *(str(HERE / file) for file in FILES)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
