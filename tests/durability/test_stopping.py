"""Work in progress ends quickly when a run is stopped."""

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from prefect.settings import PREFECT_API_URL

from rtl_core.config import load_config
from rtl_core.errors import InfrastructureError
from rtl_core.history import connection
from rtl_core.history.connection import HistoryBusyError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.run import signals
from rtl_core.run.opening import open_session
from rtl_core.run.signals import call_on_signal
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.executors.base import Job, Step
from rtl_grader.grading.limits import Limits
from tests.history.writer_child import holding
from tests.waiting import wait_for


def children() -> set[psutil.Process]:
    """Direct children of this process."""
    return set(psutil.Process().children())


def runs(*command: str) -> bool:
    """Whether some process on this machine runs this command."""
    return any(
        process.info["cmdline"] == list(command) for process in psutil.process_iter(["cmdline"])
    )


def test_closing_the_executor_ends_the_running_job_and_leaves_no_process():
    before = children()
    executor = make_executor("bubblewrap")
    job = Job(
        files={},
        harness={},
        steps=(Step("long", ("sleep", "3599.25"), cwd="/code"),),
        limits=Limits(wall_s=3600),
    )
    running = ThreadPoolExecutor(1).submit(executor.run, job)
    wait_for(lambda: running.done() or runs("sleep", "3599.25"), "the job to start")
    assert not running.done()
    executor.close()
    assert isinstance(running.exception(timeout=300), InfrastructureError)
    with pytest.raises(InfrastructureError):
        executor.run(job)
    wait_for(lambda: children() <= before, "the end of its processes")


def test_a_signal_ends_the_work_immediately_although_the_main_thread_is_busy():
    ended = threading.Event()
    handled = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: handled.append(number))
    try:
        with call_on_signal(ended.set):
            os.kill(os.getpid(), signal.SIGTERM)
            # `sum` is one call into C: a Python handler has to wait for its end.
            sum(range(3_000_000))
            assert ended.wait(300)
        assert handled == [signal.SIGTERM]
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_run_ends_even_if_asyncio_swallows_the_exception_of_a_signal(tmp_path, monkeypatch):
    class Termination(BaseException):
        """Raised by the handler, as by Prefect's."""

    def handle(number, frame):
        raise Termination

    kept = []

    async def run():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: kept.append(context["exception"]))
        places = [f"run.directory={tmp_path}", f"run.history={tmp_path / 'h.duckdb'}"]
        settings = load_config(
            "demo", [*places, "problems.sources.0.train=1", "problems.sources.0.heldout=1"]
        )
        async with open_session(settings, with_policy=False):
            loop.call_soon(os.kill, os.getpid(), signal.SIGTERM)
            await asyncio.sleep(300)

    monkeypatch.setattr(signals, "LOST_S", 0.1)
    before = signal.signal(signal.SIGTERM, handle)
    try:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(run())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [type(error) for error in kept] == [Termination]


@pytest.mark.slow
def test_a_run_that_waits_for_its_history_ends_soon_after_a_signal(
    tmp_path, monkeypatch, caplog
):
    path = tmp_path / "h.duckdb"
    History(path).start_run(RunRecord(name="r"))
    settings = load_config("demo", [f"run.directory={tmp_path}", f"run.history={path}"])

    async def run():
        async with open_session(settings, with_policy=False):
            raise AssertionError("the history is locked")

    def stop():
        wait_for(lambda: caplog.messages, "the wait")
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(connection, "WARN_AFTER_S", 0.0)
    monkeypatch.setattr(connection, "WRITE_PATIENCE_S", 30.0)
    # On a busy machine the run's end may take longer than that, and would be cancelled.
    monkeypatch.setattr(signals, "LOST_S", 300.0)
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    with holding(path):
        try:
            threading.Thread(target=stop).start()
            with pytest.raises(HistoryBusyError, match=r"stayed locked for ([5-9]|[12]\d) s"):
                asyncio.run(run())
        finally:
            signal.signal(signal.SIGTERM, before)
    assert History(path).run("r") is not None  # later calls wait normally again
    assert connection._hurried_at == math.inf


STOPPED = """\
import os, signal
from prefect import flow
from rtl_distill.cli.flow import run_flow

@flow
async def run():
    os.kill(os.getpid(), signal.SIGTERM)

run_flow("__main__:run", title="a run")
"""


@pytest.mark.usefixtures("prefect")
def test_a_signal_during_a_flow_ends_its_command_normally():
    environment = {**os.environ, "PREFECT_API_URL": PREFECT_API_URL.value()}
    done = subprocess.run(
        [sys.executable, "-c", STOPPED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "cancelled; the same command continues from here" in done.stdout, done.stderr
    assert done.returncode == 143
    assert "Traceback" not in done.stderr
