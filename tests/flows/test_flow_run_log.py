"""A run's lines reach the log of the triggered flow run, each once, also from subflows, tasks and plain threads."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from prefect import flow, get_client, task
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL

from rtl_core.errors import ConfigError
from rtl_distill.tasks.logs import LOG_FILE, lines_in_flow_run_log
from rtl_grader.progress import LogProgress

pytestmark = pytest.mark.usefixtures("prefect")

PATIENCE_S = 300


@task
def in_a_task() -> None:
    LogProgress().line("from a task")


@flow
async def in_a_subflow() -> None:
    LogProgress().line("from a subflow")
    in_a_task()


@flow
async def told(name: str) -> str:
    with lines_in_flow_run_log():
        progress = LogProgress()
        progress.stage(f"stage of {name}")
        thread = threading.Thread(target=progress.line, args=("from a thread",))
        thread.start()
        thread.join()
        await asyncio.to_thread(progress.line, "from a thread with a context")
        await in_a_subflow()
        return str(flow_run.id)


def test_an_error_for_the_user_is_logged_with_its_remedy_and_without_a_traceback():
    from rtl_distill.flows.train import train

    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("prefect.flow_runs")
    level = logger.level
    logger.setLevel(logging.ERROR)
    logger.addHandler(handler)
    try:
        with pytest.raises(ConfigError, match="nofile"):
            asyncio.run(train("nofile.toml"))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    told = [line.getMessage() for line in records if line.levelno == logging.ERROR]
    assert told[0].startswith("there is no configuration 'nofile.toml'\n  -> ")
    assert not any(line.exc_info for line in records)


EVERY_LINE = {"from a thread", "from a thread with a context", "from a subflow", "from a task"}


def ours_in_log(flow_run_id: str, enough: Callable[[list[str]], bool]) -> list[str]:
    """Wait until the lines of the logger `rtl_distill` at INFO in a flow run's log satisfy `enough`, and return them."""

    async def read() -> list[str]:
        wanted = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run_id]))
        deadline = time.monotonic() + PATIENCE_S
        async with get_client() as client:
            while True:
                logs = await client.read_logs(wanted, limit=200)
                found = [
                    log.message for log in logs if log.name == "rtl_distill" and log.level == 20
                ]
                if enough(found):
                    return found
                assert time.monotonic() < deadline, found
                await asyncio.sleep(0.2)

    return asyncio.run(read())


@pytest.mark.slow
def test_lines_of_subflows_tasks_and_threads_are_in_the_log_of_the_triggered_run(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LOG_FILE, "worker.log")
    flow_run_id = asyncio.run(told("one"))
    expected = EVERY_LINE | {"== stage of one"}
    found = ours_in_log(flow_run_id, lambda lines: set(lines) >= expected)
    assert sorted(found) == sorted(expected)  # each once
    written = (tmp_path / "worker.log").read_text().splitlines()
    assert sorted(line.rsplit(" - ", 1)[1] for line in written) == sorted(expected)
    assert all(" | INFO    | Flow run '" in line for line in written)
    assert "without a flow run id" not in capfd.readouterr().err


@pytest.mark.slow
def test_concurrent_runs_keep_their_lines_separate():
    async def both():
        return await asyncio.gather(told("left"), told("right"))

    left, right = asyncio.run(both())
    for flow_run_id, name in ((left, "left"), (right, "right")):
        found = ours_in_log(flow_run_id, lambda lines: "from a task" in lines)
        assert [line for line in found if line.startswith("==")] == [f"== stage of {name}"]


def test_a_run_that_ends_does_not_disturb_the_lines_of_another():
    opened, started, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @flow
    async def ends_first():
        with lines_in_flow_run_log():
            opened.set()
            await started.wait()
        ended.set()

    @flow
    async def goes_on():
        with lines_in_flow_run_log():
            started.set()
            await ended.wait()
            LogProgress().line("after the other's end")
            return str(flow_run.id)

    async def both():
        first = asyncio.create_task(ends_first())
        await opened.wait()
        found = await goes_on()
        await first
        return found

    assert ours_in_log(asyncio.run(both()), bool) == ["after the other's end"]


PROGRAM = """
import asyncio, logging, sys
from tests.flows.test_flow_run_log import told
asyncio.run(told("one"))
logging.getLogger("rtl_distill").info("after the flow")
logging.getLogger("rtl_distill").warning("a warning after the flow")
"""


@pytest.mark.slow
def test_a_flow_in_a_process_of_its_own_prints_each_line_once():
    environment = {**os.environ, "PREFECT_API_URL": PREFECT_API_URL.value()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    for line in (*EVERY_LINE, "== stage of one"):
        shown = [
            text for text in done.stderr.splitlines() if text.endswith(f"rtl_distill - {line}")
        ]
        assert len(shown) == 1, (line, done.stderr)
    assert (
        done.stderr.count("after the flow")
        == done.stderr.count("a warning after the flow")
        == 1
    )
    assert "without a flow run id" not in done.stderr
    assert done.stdout == ""
