"""The pytest plugin of an examination: selects cases, runs each in its own session with a timeout, and collects the results.

A case is a coroutine function with `@case` that takes a `Bench`. Its docstring states the required behaviour. It returns a short measurement,
fails an assertion that says what happened instead, is skipped if it does not apply to this server, or raises an SDK error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import tinker
from rich.console import Console

from rtl_core.backend.certify.bench import Bench, Server
from rtl_core.backend.certify.examination import Case, Examination, Outcome, Result
from rtl_core.backend.tinker import checkpoints
from rtl_core.backend.tinker.faults import status_of
from rtl_core.backend.tinker.readiness import refusal
from rtl_core.errors import ConfigError

CASE_S, WHOLE_S, CLEANING_S, CONNECT_S = 300.0, 3600.0, 60.0, 20.0
"""Timeouts of a case, of all cases, of deleting what they saved, and of a connection."""
ABSENT = (404, 405, 501)
"""HTTP statuses of a missing route."""
ENOUGH = 3
"""Number of 5xx or 409 responses of one route that end a case. A single one may be an accident."""
MODULES = ("test_calls", "test_saved_weights", "test_numbers", "test_against_transformers", "test_faults")
"""Modules of cases in their order. Prerequisites of a case come earlier."""
BLOCKED = (
    "terminalreporter",
    "cacheprovider",
    "logging",
    "warnings",
    "faulthandler",
    "threadexception",
    "unraisableexception",
)
"""pytest plugins that would print or change this process."""
CASE, FOUND = pytest.StashKey[Case](), pytest.StashKey[str]()


def case(name: str, *, without: str, needs: Sequence[str] = ("session",), needed: bool = True) -> pytest.MarkDecorator:
    """Mark a test function as a case; see `Case`."""
    return pytest.mark.case(name=name, without=without, needs=tuple(needs), needed=needed)


option = partial(case, needed=False)
"""Mark a case that only some options of a run, or other programs, need."""


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

    Raises PolicyError if there is no key, and ConfigError for unknown cases.
    """
    if not __debug__:
        raise ConfigError("cases are assertions, which `python -O` removes", "run without -O and PYTHONOPTIMIZE")
    _ = server.credential
    folder = Path(__file__).parent
    settings = [
        "--import-mode=append",
        "--assert=plain",
        "--capture=no",
        "--tb=no",
        "--noconftest",
        "-c",
        os.devnull,
        f"--rootdir={folder}",
    ]
    settings += [f"-pno:{part}" for part in BLOCKED]
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_CURRENT_TEST"):
            environment.delenv(name, raising=False)
        examiner = Examiner(server, only, case_s, whole_s, console or Console(quiet=True), runner)
        try:
            pytest.main([*settings, *(str(folder / f"{name}.py") for name in MODULES)], plugins=[examiner])
        finally:
            runner.run(_clean(server))
    if examiner.error is not None:
        raise examiner.error
    return Examination(server.url, server.student, list(examiner.results.values()))


@dataclass(eq=False)
class Examiner:
    """The plugin: pytest's hooks around one examination."""

    server: Server
    only: Collection[str]
    case_s: float
    whole_s: float
    console: Console
    runner: asyncio.Runner
    results: dict[str, Result] = field(default_factory=dict)
    error: BaseException | None = None
    """Error that ended pytest itself."""
    begun: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        return self.begun + self.whole_s - time.monotonic()

    @pytest.fixture
    def bench(self) -> Bench:
        return Bench(self.server)

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "case: something that a server is asked to do")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            raise RuntimeError(report.longreprtext)

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        for item in items:
            item.stash[CASE] = _case_of(item)
        wanted = _chosen([item.stash[CASE] for item in items], self.only)
        items[:] = [item for item in items if item.stash[CASE].name in wanted]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Function) -> Iterator[None]:
        name = item.stash[CASE].name
        with self.console.status(f"{len(self.results) + 1} of {item.session.testscollected}: {name}"):
            result = yield
        self.console.print(self.results[name].line, soft_wrap=True)
        self.console.file.flush()  # also if the output is not a terminal
        return result

    def pytest_runtest_setup(self, item: pytest.Function) -> None:
        needs = item.stash[CASE].needs
        if lacking := [name for name in needs if self.results[name].outcome != "OK"]:
            pytest.skip(f"it needs {lacking[0]}")
        if needs and not self.runner.run(_listens(self.server.url)):
            pytest.skip("the server no longer accepts connections")
        if self.left_s <= 0:
            pytest.skip(f"the timeout of {self.whole_s:.0f} s for all cases is over")

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        bench = cast(Bench, pyfuncitem.funcargs["bench"])

        async def ask() -> str:
            async with bench.opened(with_session=bool(pyfuncitem.stash[CASE].needs)):
                return str(await pyfuncitem.obj(**pyfuncitem.funcargs))

        limit_s = min(self.case_s, self.left_s)
        pyfuncitem.stash[FOUND] = self.runner.run(_limited(ask(), limit_s))
        return True

    def pytest_runtest_makereport(self, item: pytest.Function, call: pytest.CallInfo[None]) -> None:
        if call.when == "call" or call.excinfo:
            case = item.stash[CASE]
            outcome, found = self._read(call.excinfo.value, case) if call.excinfo else ("OK", item.stash[FOUND])
            self.results[case.name] = Result(case, outcome, found, call.duration)

    def _read(self, error: BaseException, case: Case) -> tuple[Outcome, str]:
        """Return the outcome of a failed case and its description."""
        if isinstance(error, pytest.skip.Exception):
            return "not tried", str(error)
        if isinstance(error, AssertionError) and str(error):
            return "differs", str(error)
        # A case without prerequisites tests whether there is a server at all.
        if not case.needs and isinstance(error, Exception):
            kept_from_answering = refusal(error, self.server.url, self.server.credential[1])
            if kept_from_answering is not None:
                return "differs", kept_from_answering.text
        causes = [one for one in (error, error.__cause__) if isinstance(one, Exception)]
        refused = next((one for one in causes if isinstance(one, tinker.APIStatusError)), None)
        status = next((code for one in causes if (code := status_of(one))), None)
        said = " ".join(str(error).split())[:400]
        outcome: Outcome = "missing" if status in ABSENT else "differs"
        if refused is not None:
            return outcome, f"{refused.request.method} {refused.request.url.path} answers {status}: {said}"
        return outcome, f"{type(error).__name__}: {said}"

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
        self.error = excinfo.value
        return True

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.error = excinfo.value


def _case_of(item: pytest.Function) -> Case:
    """Return the case of a test function. Braces in the docstring of a parametrized one are replaced by parameters."""
    (mark,) = item.iter_markers("case")
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    promise = " ".join((item.obj.__doc__ or "").split()).format_map(parameters)
    group = item.module.__name__.rpartition(".test_")[2].replace("_", " ")
    return Case(group=group, promise=promise, **mark.kwargs)


def _chosen(cases: Sequence[Case], names: Collection[str]) -> set[str]:
    """Return the names of the selected cases or groups and of their prerequisites. Without `names`: all. Raises ConfigError for unknown names."""
    known = {name for case in cases for name in (case.name, case.group)}
    for name in names:
        if name not in known:
            raise ConfigError(f"no case {name!r}", f"choose one of {', '.join(sorted(known))}")
    wanted = {case.name for case in cases if not names or case.name in names or case.group in names}
    for case in reversed(cases):
        if case.name in wanted:
            wanted.update(case.needs)
    return wanted


async def _listens(url: str) -> bool:
    """Whether the server accepts connections. The SDK would retry for minutes in every remaining case."""
    address = httpx.URL(url)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(address.host, port)
    except OSError:  # including TimeoutError
        return False
    writer.close()
    return True


async def _limited(work: Coroutine[Any, Any, str], limit_s: float) -> str:
    """Await a case. Raises AssertionError on timeout, or if the server repeatedly answers 5xx."""
    task = asyncio.create_task(work)
    try:
        with _repeated_errors() as told:
            await asyncio.wait({task, told}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise AssertionError(told.result() if told.done() else f"no answer within {limit_s:.0f} s")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def _repeated_errors() -> Iterator[asyncio.Future[str]]:
    """Yield a future that is set to a message when a route has answered `ENOUGH` times with 5xx or 409, which the SDK silently retries.

    A filter on httpx's logger reads each response (`HTTP Request: METHOD URL "HTTP/1.1 STATUS REASON"`) and suppresses the record.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    told: asyncio.Future[str] = loop.create_future()
    seen: Counter[tuple[int, str]] = Counter()

    def tell(status: int, path: str) -> None:
        seen[status, path] += 1
        if seen[status, path] == ENOUGH and not told.done():
            told.set_result(
                f"{path} answered {status}, {ENOUGH} times; the SDK retries such a request for five minutes, so a run seems to hang"
            )

    def read(record: logging.LogRecord) -> bool:
        # Cases check the responses to their own requests, which are made on this thread.
        if record.thread != thread and isinstance(record.args, tuple) and len(record.args) == 5:
            _, url, _, status, _ = record.args
            # 408 is part of long polling, and 429 means a busy server: waiting is right.
            if isinstance(status, int) and (status >= 500 or status == 409):
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(tell, status, str(getattr(url, "path", url)))
        return False

    log = logging.getLogger("httpx")
    level = log.level
    log.addFilter(read)
    log.setLevel(logging.INFO)
    try:
        yield told
    finally:
        log.removeFilter(read)
        log.setLevel(level)


async def _clean(server: Server) -> None:
    """Delete what the cases saved. Weights that cannot be deleted expire (`TTL_S`)."""
    if server.saved:
        with suppress(Exception):
            await asyncio.wait_for(checkpoints.delete(await server.rest(), server.saved), CLEANING_S)
