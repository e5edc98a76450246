"""What all tests share: where the published problem sets are, and what happens without them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PUBLISHED = Path(os.environ.get("RTL_DISTILL_DATA", REPOSITORY.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of published problem sets: `cvdp`, `verilog-eval`, `RTLLM`."""
    if not PUBLISHED.is_dir():
        pytest.fail(
            f"{PUBLISHED} is missing: set RTL_DISTILL_DATA to the folder that holds cvdp, verilog-eval and RTLLM"
        )
    return PUBLISHED


@pytest.fixture(scope="session")
def cvdp(data: Path) -> Path:
    """The folder of CVDP's JSON Lines files."""
    return data / "cvdp"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a machine without the published sets their tests are left out, loudly; in CI they fail instead."""
    if PUBLISHED.is_dir() or os.environ.get("CI"):
        return
    needing = [item for item in items if {"data", "cvdp"} & set(getattr(item, "fixturenames", ()))]
    items[:] = [item for item in items if item not in needing]
    config.hook.pytest_deselected(items=needing)
    config.stash[_LEFT_OUT] = len(needing)


_LEFT_OUT = pytest.StashKey[int]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(_LEFT_OUT, 0):
        terminalreporter.write_line(
            f"LEFT OUT: {count} tests of published problem sets, which are not at {PUBLISHED}; set RTL_DISTILL_DATA to run them",
            yellow=True,
            bold=True,
        )
