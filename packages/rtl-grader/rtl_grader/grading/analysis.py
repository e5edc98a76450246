"""Static analysis of an answer in a child process with limits; pyslang parses hostile text only there.

A macro that doubles itself forty times, or an expression nested a million deep, crashes the child and not
the grader. They talk like an executor and its agent (executors/wire.py). The child ends when its socket is
closed.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, Pipe

from pydantic import BaseModel

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.executors.base import ExecutorDiedError, Message
from rtl_grader.grading.executors.wire import ask, receive, send
from rtl_grader.grading.screen import ScreenFinding, screen
from rtl_grader.hdl.interface import hdl_files, is_valid, parse_interface
from rtl_grader.traces.unseen import unseen
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Interface, InterfaceSource

MEMORY_MB = 1024
CPU_S = 4.0
TIMEOUT_S = 60.0
START_S = 60.0
END_S = 60.0
"""Time for a child that closed its socket to exit on a stalled machine: without memory it first writes its
traceback."""
IDLE_S = 7 * 24 * 3600.0
"""Time without requests after which a child ends; the next request starts another."""
TRIES = 3
TEXT_EXIT_CODES = (1, -signal.SIGPROF, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS)
"""Exit codes that a text can cause: an exception (no memory), CPU time exceeded, a parser crash. A kill is
not among them."""


@dataclass(frozen=True)
class AnalysisRequest:
    """A request to read the interface of `top` and screen the `design` files of an answer."""

    answer: Files
    top: str | None
    design: Sequence[str]
    context: Files = field(default_factory=dict)
    """The problem's own files; only the names matter for files other than HDL."""
    harness: Sequence[str] = ()
    """Base names of the harness' files."""
    several_tools: bool = True
    """Whether the harness uses more than Icarus."""
    constructs: bool = False
    """Whether to look for what a proof does not see, for `Analysis.constructs`."""
    validity: bool = False
    """Whether to elaborate `answer` for `Analysis.valid`."""


class Analysis(BaseModel, frozen=True):
    """Results of the static analysis of an answer."""

    interface: Interface | None = None
    """The interface of the requested module; None if the module is missing."""
    findings: tuple[ScreenFinding, ...] = ()
    """Forbidden constructs in the design."""
    constructs: dict[str, str] = {}
    """What a proof does not see of the answer with its context (traces/unseen.py): kind -> words."""
    valid: bool = False
    """Whether the answer was elaborated without errors."""
    failed: str | None = None
    """Why the text could not be analysed within the limits; the other fields are then empty."""


class Analyst:
    """A pool of child processes, one per concurrent call. Thread-safe."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        """`timeout_s` is wall time, for stalled machines; the actual limit of an analysis is CPU_S of CPU time."""
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._free: list[_Child] = []
        self._closed = False

    def analyse(self, request: AnalysisRequest) -> Analysis:
        """Read the interface of `top` from the answer and its context, and screen the answer's design files.

        Raises InfrastructureError if children are repeatedly killed from outside or get no CPU time.
        """
        for _ in range(TRIES):
            with self._lock:
                child = None
                if self._free:
                    child = self._free.pop()
            child = child or _Child()
            reply = child.ask(request, self._timeout_s)
            if reply is not None:
                with self._lock:
                    if not self._closed:
                        self._free.append(child)
                        child = None
                if child is not None:
                    child.close()
                return Analysis.model_validate(reply)
            if child.end() in TEXT_EXIT_CODES:
                return Analysis(
                    failed=f"the text cannot be parsed within {CPU_S:g} s and {MEMORY_MB} MiB"
                )
        raise InfrastructureError(f"the analysis of an answer was broken off {TRIES} times")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            children = self._free
            self._free = []
        for child in children:
            child.close()


class _Child:
    def __init__(self) -> None:
        self._too_slow = False
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rtl_grader.grading.analysis", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        try:
            receive(self._connection, START_S)
        except ExecutorDiedError as error:
            self.close()
            raise InfrastructureError(
                "the analysis process does not start", "python -m rtl_grader.grading.analysis"
            ) from error

    def ask(self, request: AnalysisRequest, timeout_s: float) -> Message | None:
        """Return the reply, or None if the child ended or was too slow."""
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(ExecutorDiedError):
            return ask(self._connection, asdict(request), timeout_s)
        self._too_slow = time.monotonic() >= deadline
        return None

    def end(self) -> int | None:
        """Return the exit code (`Popen.returncode`), or None if the child had to be killed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.0 if self._too_slow else END_S)
        code = self._process.returncode
        self.close()
        return code

    def close(self) -> None:
        self._process.kill()
        self._connection.close()
        self._process.wait()


def analyse_here(request: AnalysisRequest) -> Analysis:
    """Analyse in this process, without limits; for the child."""
    answer = request.answer
    context = request.context
    top = request.top
    design = {path: answer[path] for path in answer if path in request.design}
    findings = screen(
        design, context, top, harness=request.harness, several_tools=request.several_tools
    )
    if findings:
        return Analysis(findings=tuple(findings))
    if request.validity:
        return Analysis(valid=is_valid(answer))
    if top is None:
        return Analysis()
    sources = {**context, **answer}
    interface = parse_interface(sources, top, InterfaceSource.CONTEXT)
    constructs = {}
    if request.constructs:
        constructs = unseen("\n".join(hdl_files(sources).values()))
    return Analysis(interface=interface, constructs=constructs)


def _serve() -> None:
    if len(sys.argv) < 2:
        sys.exit("the analysis process can start; only the grader can use it")
    limit = MEMORY_MB << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    grader = Connection(int(sys.argv[1]))
    send(grader, {"ready": True})
    with contextlib.suppress(ExecutorDiedError):  # the grader has closed its end
        while True:
            request = AnalysisRequest(**receive(grader, IDLE_S))
            # SIGPROF ends the process when its CPU time is used up.
            signal.setitimer(signal.ITIMER_PROF, CPU_S)
            send(grader, analyse_here(request).model_dump(mode="json"))
            signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    _serve()
