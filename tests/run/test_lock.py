"""What a run's lock stores about its holder."""

import asyncio
import os

from rtl_core.run.lock import read_holder, run_lock


def test_a_visitor_keeps_the_deployment_in_the_lock_and_a_command_removes_it(tmp_path):
    path = tmp_path / "lock"

    async def hold(holder):
        async with run_lock(path, holder, print):
            return read_holder(path)

    first = asyncio.run(hold({"flow_run": "a", "deployment": "train/nightly"}))
    assert (first["pid"], first["deployment"]) == (os.getpid(), "train/nightly")
    assert asyncio.run(hold({})) == first
    by_hand = asyncio.run(hold({"flow_run": None, "deployment": None}))
    assert by_hand == {**first, "flow_run": None, "deployment": None} == read_holder(path)
