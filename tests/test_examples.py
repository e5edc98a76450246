"""The programs in `examples/` run as documented."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_example_loop_trains(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/loop.py"), "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [
        line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("step ")
    ]
    assert steps == ["step 1", "step 2"]
    assert len((ROOT / "examples/loop.py").read_text().splitlines()) <= 120, (
        "it should be short enough to read at once"
    )
