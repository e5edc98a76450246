"""What a run's lock tells of who works on it."""

import asyncio
import os

from rtl_core.run.lock import read_holder, run_lock


def test_a_visitor_leaves_word_of_the_deployment_that_starts_the_run_again_and_a_command_does_not(tmp_path):
    path = tmp_path / "lock"

    async def hold(holder):
        async with run_lock(path, holder, print):
            return read_holder(path)

    begun = asyncio.run(hold({"flow_run": "a", "deployment": "train/nightly"}))
    assert (begun["pid"], begun["deployment"]) == (os.getpid(), "train/nightly")
    assert asyncio.run(hold({})) == begun
    by_hand = asyncio.run(hold({"flow_run": None, "deployment": None}))
    assert by_hand == {**begun, "flow_run": None, "deployment": None} == read_holder(path)
