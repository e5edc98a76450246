"""What is at work ends quickly when a run is stopped."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from rtl_core.errors import InfrastructureError
from rtl_core.grading import Limits, make_executor
from rtl_core.grading.executors.base import Job, Step


def children() -> dict[int, str]:
    """Direct children of this process: id -> program."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            with_name = Path(f"/proc/{pid}/comm")
            found[int(pid)] = with_name.read_text().strip() if with_name.exists() else "?"
    return found


def test_closing_the_executor_ends_the_job_at_work_and_leaves_no_process() -> None:
    before = set(children())
    executor = make_executor("bubblewrap")
    job = Job(files={}, harness={}, steps=(Step("long", ("sleep", "60"), cwd="/code"),), limits=Limits(wall_s=60))
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            executor.run(job)
            ended.append(None)
        except InfrastructureError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1.5)
    assert not ended
    started = time.monotonic()
    executor.close()
    thread.join(5)
    assert time.monotonic() - started < 5
    assert isinstance(ended[0], InfrastructureError)
    with pytest.raises(InfrastructureError):
        executor.run(job)
    deadline = time.monotonic() + 3
    while set(children()) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert set(children()) - before == set()
