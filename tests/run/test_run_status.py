"""The status of a run in its row, and the holder in its lock."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rtl_core.errors import InfrastructureError
from rtl_core.history.store import History
from rtl_core.run import opening, status
from rtl_core.run.lock import read_holder, run_lock
from rtl_core.run.opening import open_session
from rtl_core.run.recorder import Recorder
from rtl_core.run.session import Session
from tests.nouns import NoExecutor, demo
from tests.waiting import wait_for


def end_of(
    folder: Path, block: Callable[[Session], None], raises: type[BaseException] | None
) -> tuple[str, str | None]:
    """Run `block`, which may raise an error of type `raises`, in a run; returns the run's `status` and `ended_by`."""

    async def run() -> None:
        settings = demo(folder)
        async with (
            open_session(settings, with_policy=False, cluster=NoExecutor()) as session,
            status.run_status(session),
        ):
            block(session)

    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with pytest.raises(raises) if raises else contextlib.nullcontext():
            asyncio.run(run())
    finally:
        signal.signal(signal.SIGTERM, before)
    (record,) = History(folder / "history.duckdb").runs()
    return record.status, record.ended_by


def fail(session: Session) -> None:
    raise ValueError("a bug")


def get_a_signal(session: Session) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    wait_for(
        lambda: session.history.run(session.run).status == "cancelled",
        "the status in the run's row",
    )


def fail_of_a_signal(session: Session) -> None:
    """As Prefect fails if the signal arrives before it has set up a task."""
    get_a_signal(session)
    raise ValueError("Task run is not set")


def fail_of_a_request(session: Session) -> None:
    session.progress.cancelled_by_request()
    raise ValueError("Task run is not set")


def test_an_error_gives_the_status_failed(tmp_path):
    assert end_of(tmp_path, fail, ValueError) == ("failed", None)


@pytest.mark.parametrize(
    ("block", "ended_by"), [(fail_of_a_signal, "signal"), (fail_of_a_request, "request")]
)
def test_an_error_caused_by_a_cancellation_gives_the_status_cancelled(
    tmp_path, block, ended_by
):
    assert end_of(tmp_path, block, asyncio.CancelledError) == ("cancelled", ended_by)


def test_a_signal_is_in_the_row_while_the_run_still_ends(tmp_path):
    assert end_of(tmp_path, get_a_signal, None) == ("finished", None)


def test_a_full_disk_at_one_heartbeat_does_not_stop_later_ones(monkeypatch):
    beats = []

    class Disk:
        def heartbeat(self, run, waits_for):
            beats.append(run)
            if len(beats) == 1:
                raise InfrastructureError("the disk is full")

    async def three_beats():
        beating = asyncio.create_task(
            opening._heartbeat(SimpleNamespace(run="r", history=Disk(), recorder=recorder))
        )
        while len(beats) < 3 and not beating.done():
            await asyncio.sleep(0.01)
        beating.cancel()

    recorder = Recorder(Disk())
    monkeypatch.setattr(opening, "HEARTBEAT_S", 0.0)
    asyncio.run(three_beats())
    assert beats[:3] == ["r", "r", "r"]


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
