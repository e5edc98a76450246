"""Cancelling against the clock."""

from __future__ import annotations

import pytest

from tests.durability.conftest import Deployed


@pytest.mark.timing
def test_no_process_of_a_cancelled_run_lives_after_ten_seconds(deployed: Deployed) -> None:
    assert deployed.cancelled_after("stopwatch", patience_s=30) < 10
