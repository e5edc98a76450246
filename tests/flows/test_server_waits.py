"""A Prefect server that is busy for a while costs a run time and one log line, without a traceback."""

import asyncio
import logging
from contextlib import contextmanager

import pytest
from prefect.client.base import PrefectHttpxAsyncClient
from prefect.exceptions import PrefectHTTPStatusError

from rtl_core.errors import MalformedAnswerError
from rtl_core.run import opening
from rtl_core.run.stopping import is_transient
from rtl_distill.tasks import logs, steps
from tests.answering import answering
from tests.command import run


@contextmanager
def busy_for(refusals):
    """The URL of a server that refuses `refusals` requests before it serves one."""
    left = iter(range(refusals))
    with answering(
        lambda *_: (503 if next(left, None) is not None else 200, {"Retry-After": "0"}, b"{}")
    ) as url:
        yield url


async def ask(url: str) -> int:
    async with PrefectHttpxAsyncClient(
        base_url=url, timeout=300
    ) as client:  # the machine may be slow
        return (await client.get("/")).status_code


@pytest.mark.parametrize(("refusals", "lines"), [(1, 0), (4, 1)])
def test_a_server_that_is_busy_for_long_gives_a_warning_once_a_minute(
    refusals, lines, monkeypatch, caplog
):
    client = logging.getLogger("prefect.client")
    monkeypatch.setattr(client, "level", client.level)
    monkeypatch.setattr(client, "filters", list(client.filters))
    monkeypatch.setattr(logs, "_warned_at", [])
    logs.warn_of_busy_server()
    with busy_for(refusals) as url:
        assert asyncio.run(ask(url)) == 200
    told = [record.getMessage() for record in caplog.records if record.name == "rtl_distill"]
    assert len(told) == lines
    assert all("waiting for Prefect's server" in line and "503" in line for line in told)


def test_the_error_of_a_busy_server_is_transient():
    with busy_for(1000) as url, pytest.raises(PrefectHTTPStatusError) as caught:
        asyncio.run(ask(url))
    assert is_transient(caught.value)


@pytest.mark.usefixtures("prefect")
def test_a_task_that_waits_for_its_next_attempt_logs_the_reason(monkeypatch, caplog):
    monkeypatch.setattr(steps, "PAUSES_S", (0.01, 0.02, 0.03))
    monkeypatch.setattr(steps, "LOGGED_FROM_S", 0.02)
    attempts = []

    async def sample(problem_id):
        attempts.append(problem_id)
        if len(attempts) < 4:
            raise MalformedAnswerError("a sample has the token 861", "ask again")
        return len(attempts)

    with caplog.at_level("INFO", logger="rtl_distill"):
        assert (
            asyncio.run(steps.step_task("sample group", "sample {problem_id}")(sample)("p1"))
            == 4
        )
    waits = [record.message for record in caplog.records if "next attempt" in record.message]
    why = "sample p1: a sample has the token 861; next attempt in about"
    assert waits == [f"{why} 0.02 s", f"{why} 0.03 s"]


@pytest.mark.usefixtures("prefect")
def test_a_task_that_takes_long_is_logged(monkeypatch, caplog):
    monkeypatch.setattr(opening, "LOG_S", 0.0)

    async def sample(problem_id):
        opening.log_slow_steps()

    with caplog.at_level("INFO", logger="rtl_distill"):
        asyncio.run(steps.step_task("sample group", "sample {problem_id}")(sample)("p1"))
        opening.log_slow_steps()
    (told,) = [record.message for record in caplog.records if "in progress" in record.message]
    assert told.startswith("still in progress: sample p1 (")


@pytest.mark.slow
def test_a_command_whose_server_stays_busy_ends_with_one_sentence(tmp_path):
    with busy_for(10**6) as url:
        busy = {"PREFECT_API_URL": f"{url}/api", "PREFECT_CLIENT_MAX_RETRIES": "1"}
        done = run(
            "train",
            "demo",
            sets=[f"run.directory={tmp_path}"],
            env=busy,
            cwd=tmp_path,
            timeout=300,
        )
    said = done.stdout + done.stderr
    assert f"Prefect's server at {url}/api fails" in said
    assert "503" in said
    assert "the same command then continues from here" in said
    assert "Traceback" not in said
    assert done.returncode == 2
