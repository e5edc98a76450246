"""The published sets, and one grader for the room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def data() -> Path:
    folder = Path(os.environ.get("RTL_DISTILL_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.fail(
            f"{folder} is missing: set RTL_DISTILL_DATA to the folder that holds `cvdp`, `verilog-eval`, `RTLLM`"
        )
    return folder
