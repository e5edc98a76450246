"""Cancelling against the clock."""

import pytest


@pytest.mark.timing
def test_no_process_of_a_cancelled_run_lives_after_ten_seconds(deployed):
    assert deployed.cancelled_after("stopwatch", patience_s=30) < 10
