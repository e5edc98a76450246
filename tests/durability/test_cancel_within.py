"""The time that a cancellation takes."""

import pytest


@pytest.mark.timing
def test_all_processes_of_a_cancelled_run_end_within_ten_seconds(deployed):
    assert deployed.cancelled_after("stopwatch", patience_s=30) < 10
