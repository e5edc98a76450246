"""A shortened run of `benchmarks/localtinker_hammer.py`, which takes five minutes for a release."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_eight_clients_at_once_cause_no_error_and_no_growth(tmp_path):
    # A leak of the weights of each loaded state would take 150 MB in the last 250 requests; normal fluctuation is 60 MB.
    sizes = ["--requests", "500", "--warm-up", "250", "--allowed-mb", "80"]
    command = [sys.executable, "-m", "benchmarks.localtinker_hammer", *sizes]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert finished.returncode == 0, finished.stdout + finished.stderr[-2000:]
