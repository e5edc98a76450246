"""Freed tensors stay with the process: the next ones take the same pages."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from rtl_core.localtinker.memory import keep_freed_memory
keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    parts = [torch.ones(1 << 18) for _ in range(8)]  # half of what is kept, in pieces of 1 MiB
for _ in range(5):
    work()
before = faults()
for _ in range(10):
    work()
print(faults() - before)
"""


def page_faults(**environment: str) -> int:
    clean = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=clean | environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.slow
def test_what_is_freed_stays_unless_the_user_says_otherwise():
    pages = 10 * 8 * 2**20 // 4096
    assert page_faults() < pages / 10
    assert page_faults(MALLOC_MMAP_THRESHOLD_="65536") > pages / 2
