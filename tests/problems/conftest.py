"""The published CVDP files that the reader is tried on; RTL_DISTILL_DATA says where they are."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def cvdp() -> Path:
    folder = Path(os.environ.get("RTL_DISTILL_DATA", REPOSITORY.parent / "shared" / "data")) / "cvdp"
    if not folder.is_dir():
        pytest.fail(f"{folder} is missing: set RTL_DISTILL_DATA to the folder that holds `cvdp`")
    return folder
