"""An examination: runs the cases one after another, each in its own session and with a timeout, and
collects the results."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

import httpx
import tinker
from rich.console import Console

from localtinker.certify import (
    test_against_transformers,
    test_calls,
    test_faults,
    test_numbers,
    test_saved_weights,
)
from localtinker.certify.bench import Bench, Server
from localtinker.certify.cases import CASES, Case, NotTriedError
from localtinker.certify.examination import Examination, Outcome, Result
from localtinker.client import weights
from localtinker.client.failures import first_refusal
from localtinker.errors import SettingsError
from localtinker.quiet import quiet

CASE_S, WHOLE_S, CLEANING_S, CONNECT_S = 300.0, 3600.0, 60.0, 20.0
"""Timeouts of a case, of all cases, of deleting what they saved, and of a connection."""
POLL_S = 0.1
"""Interval of looking for repeated errors of the server."""
ABSENT = (404, 405, 501)
"""HTTP statuses of a missing route."""
ENOUGH = 3
"""Number of 5xx or 409 responses of one route that end a case. A single one may be an accident."""
HANGS = "the SDK retries such a request for five minutes, so a run seems to hang"
MODULES = (test_calls, test_saved_weights, test_numbers, test_against_transformers, test_faults)
"""Modules of cases in their order. Prerequisites of a case come earlier."""


def examine(
    server: Server,
    only: Collection[str] = (),
    *,
    case_s: float = CASE_S,
    whole_s: float = WHOLE_S,
    console: Console | None = None,
) -> Examination:
    """Run the cases against a server.

    Args:
        only: names of cases or groups to run, with their prerequisites. Empty: all.
        case_s, whole_s: timeouts in seconds of one case and of all cases.
        console: prints a line for each case, and on a terminal the current one.

    Raises CredentialError if there is no key, and SettingsError for unknown cases.
    """
    if not __debug__:
        raise SettingsError(
            "cases are assertions, which `python -O` removes",
            "run without -O and PYTHONOPTIMIZE",
        )
    _ = server.credential
    console = console or Console(quiet=True)
    ends = time.monotonic() + whole_s
    cases = _selection(only)
    results = dict[str, Result]()
    with asyncio.Runner() as runner:
        try:
            for number, case in enumerate(cases, 1):
                start = time.monotonic()
                with console.status(f"{number} of {len(cases)}: {case.name}"):
                    outcome: Outcome = "OK"
                    try:
                        _check_can_run(case, server, results)
                        if start >= ends:
                            raise NotTriedError(
                                f"the timeout of {whole_s:.0f} s for all cases is over"
                            )
                        limit_s = min(case_s, ends - start)
                        finding = runner.run(_measurement(case, server, limit_s))
                    except (Exception, asyncio.CancelledError) as error:
                        outcome, finding = _verdict(error, case, server)
                result = results[case.name] = Result(
                    case, outcome, finding, time.monotonic() - start
                )
                console.print(result.line, soft_wrap=True)
                console.file.flush()  # also if the output is not a terminal
        finally:
            runner.run(_clean(server))
    return Examination(server.url, server.student, list(results.values()))


def _selection(names: Collection[str]) -> list[Case]:
    """Return the selected cases or groups and their prerequisites. Without `names`: all. Raises
    SettingsError for unknown names."""
    cases = [case for module in MODULES for case in CASES[module.__name__]]
    options = {name for case in cases for name in (case.name, case.group)}
    for name in names:
        if name not in options:
            choices = ", ".join(sorted(options))
            raise SettingsError(f"no case {name!r}", f"choose one of {choices}")
    selection = set(names or options)
    for case in reversed(cases):
        if not selection.isdisjoint((case.name, case.group)):
            selection.update((case.name, *case.needs))
    return [case for case in cases if case.name in selection]


def _check_can_run(case: Case, server: Server, results: dict[str, Result]) -> None:
    """Raise NotTriedError if a prerequisite failed or the server is gone, for which the SDK would retry for
    minutes in every case."""
    for name in case.needs:
        if results[name].outcome != "OK":
            raise NotTriedError(f"it needs {name}")
    address = httpx.URL(server.url)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        if case.needs:
            socket.create_connection((address.host, port), CONNECT_S).close()
    except OSError:
        raise NotTriedError("the server no longer accepts connections") from None


async def _measurement(case: Case, server: Server, limit_s: float) -> str:
    """Run a case in its own session. Raises AssertionError on timeout, or if the server repeatedly answers 5xx."""

    async def ask() -> str:
        bench = Bench(server)
        async with bench.opened(with_session=bool(case.needs)):
            return await case.run(bench)

    ends = time.monotonic() + limit_s
    task = asyncio.create_task(ask())
    try:
        with _repeated_errors() as messages:
            while not task.done():
                assert not messages, messages[0]
                assert time.monotonic() < ends, f"no answer within {limit_s:.0f} s"
                await asyncio.wait({task}, timeout=POLL_S)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def _repeated_errors() -> Iterator[list[str]]:
    """Yield a list that gets a message when a route has answered `ENOUGH` times with 5xx or 409, which the
    SDK silently retries.

    A filter on httpx's logger reads each response (`HTTP Request: METHOD URL "HTTP/1.1 STATUS REASON"`) and
    suppresses the record.
    """
    own_thread = threading.get_ident()
    messages: list[str] = []
    counts: Counter[tuple[int, str]] = Counter()

    def read(record: logging.LogRecord) -> bool:
        # Cases check the responses to their own requests, which are made on this thread.
        if record.thread == own_thread:
            return False
        match record.args:
            # 408 is part of long polling, and 429 means a busy server: waiting is right.
            case (_, httpx.URL(path=path), _, int(status), _) if status >= 500 or status == 409:
                counts[status, path] += 1
                if counts[status, path] == ENOUGH:
                    messages.append(f"{path} answered {status}, {ENOUGH} times; {HANGS}")
        return False

    log = logging.getLogger("httpx")
    log.addFilter(read)
    try:
        with quiet(logging.INFO, log.name):
            yield messages
    finally:
        log.removeFilter(read)


def _verdict(error: BaseException, case: Case, server: Server) -> tuple[Outcome, str]:
    """Return the outcome of a failed case and its description."""
    if isinstance(error, NotTriedError):
        return "not tried", str(error)
    if isinstance(error, AssertionError) and str(error):
        return "differs", str(error)
    # A case without prerequisites tests whether there is a server at all.
    if not case.needs and isinstance(error, Exception):
        refusal = first_refusal(error, server.url, server.credential[1])
        if refusal is not None:
            return "differs", refusal[1]
    words = " ".join(str(error).split())[:400]
    cause = error.__cause__ if isinstance(error.__cause__, tinker.APIStatusError) else error
    if not isinstance(cause, tinker.APIStatusError):
        return "differs", f"{type(error).__name__}: {words}"
    outcome: Outcome = "missing" if cause.status_code in ABSENT else "differs"
    request = cause.request
    call = f"{request.method} {request.url.path}"
    return outcome, f"{call} answers {cause.status_code}: {words}"


async def _clean(server: Server) -> None:
    """Delete what the cases saved. Weights that cannot be deleted expire (`TTL_S`)."""
    if server.saved:
        with suppress(Exception):
            deletion = weights.delete(await server.rest(), server.saved)
            await asyncio.wait_for(deletion, CLEANING_S)
