"""A command's terminal shows its progress and real errors, and no internals of Prefect."""

import asyncio
import io
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

from rich.console import Console

from rtl_distill.tasks import artifacts
from rtl_grader.cli.console import ConsoleProgress
from rtl_grader.progress import progress

PROGRAM = """
import logging
from rtl_distill.cli.flow import quiet_logging

quiet_logging()
import prefect.main  # sets the logging up

logging.getLogger("prefect.flow_runs").error("the flow failed, and its whole traceback")
logging.getLogger("prefect.events.utilities").error("an event was lost")
logging.getLogger("sqlalchemy.engine").error("the database is broken")
logging.getLogger("prefect.server").critical("the server is broken")
"""


def test_prefects_copies_of_the_commands_errors_are_suppressed_and_real_errors_are_shown():
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_LOGGING")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "an event was lost" not in done.stderr
    assert "whole traceback" not in done.stderr  # the command itself reports what ended it
    assert "the database is broken" in done.stderr
    assert "the server is broken" in done.stderr


def test_a_server_that_refuses_artifacts_is_reported_once(monkeypatch):
    said: list[str] = []

    async def refuse(*_, **__):
        raise ConnectionError("no server")

    async def two_steps():
        progress.set(SimpleNamespace(line=said.append))
        publisher = artifacts.Publisher(
            SimpleNamespace(run="r", weights=SimpleNamespace(steps=[1, 2]))
        )
        for step in range(2):
            publisher.after_step(step)
            await publisher.settled()

    monkeypatch.setattr(artifacts, "acreate_progress_artifact", refuse)
    asyncio.run(two_steps())
    assert said == ["Prefect's pages are not up to date: ConnectionError: no server"]


def test_a_warning_of_the_project_is_a_line_among_the_others():
    log, out = logging.getLogger("rtl_distill"), io.StringIO()
    before = log.propagate, list(log.handlers)
    with ConsoleProgress(Console(file=out, width=200)) as console:
        console.line("first")
        log.warning("the tools are older")
        log.info("not for a terminal")
    assert [
        line.split("  ", 1)[-1].strip() for line in out.getvalue().splitlines() if line.strip()
    ] == [
        "0:00  first",
        "0:00  warning: the tools are older",
    ]
    assert (log.propagate, list(log.handlers)) == before
