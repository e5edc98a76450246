"""Static analysis of an answer in a bounded process of its own: pyslang meets hostile text only there.

    python -m rtl_core.grading.analysis

A macro that doubles itself forty times, or an expression nested a million deep, takes down this process and not the
grader. It reads one JSON request a line and writes one JSON reply a line, and ends with its standard input.
"""

from __future__ import annotations

import contextlib
import json
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pydantic import BaseModel, ConfigDict

from rtl_core.errors import InfrastructureError
from rtl_core.grading.screen import ScreenFinding, screen
from rtl_core.problems.interface import module_names, parse_interface
from rtl_core.types.problem import Interface, InterfaceSource

MEMORY_MB = 1024
CPU_S = 4.0
TIMEOUT_S = 60.0
START_S = 60.0
END_S = 1.0
TRIES = 3
BY_THE_TEXT = (1, -signal.SIGPROF, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS)
"""Ends that a text can cause: an exception (no memory), no CPU time left, a crash of the parser. A kill says nothing about it."""


@dataclass(frozen=True)
class AnalysisRequest:
    """What is to be analysed: the interface of `top`, and the `design` files among the answer's."""

    answer: Mapping[str, str]
    top: str | None
    design: Sequence[str]
    context: Mapping[str, str] = field(default_factory=dict)
    """The problem's own files; of those that are no HDL only the names matter."""
    beside_hdl: bool = False
    """Whether the harness brings HDL, into which a name of the design could lead."""
    several_tools: bool = True
    """Whether the harness uses more than Icarus."""


class Analysis(BaseModel):
    """What an answer's text shows without running it."""

    model_config = ConfigDict(frozen=True)
    interface: Interface | None = None
    """The interface of the module that was asked for; None when it is not there."""
    findings: tuple[ScreenFinding, ...] = ()
    """What a design may not hold."""
    failed: str | None = None
    """Why the text could not be analysed within the bounds, in words; the other fields are then empty."""


class Analyst:
    """Asks a bounded child process. Thread-safe: as many children as calls were ever made at one time."""

    def __init__(self, memory_mb: int = MEMORY_MB, timeout_s: float = TIMEOUT_S) -> None:
        """`timeout_s` is wall time, for a machine that stalls; what bounds an analysis is CPU_S of CPU time."""
        self._memory_mb = memory_mb
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._free: list[_Child] = []
        self._closed = False

    def analyse(self, request: AnalysisRequest) -> Analysis:
        """Reads the interface of `top` from the answer, with the context beside it, and screens its design files.

        Raises:
            InfrastructureError: children were killed from outside, or got no CPU time, several times in a row.
        """
        for _ in range(TRIES):
            with self._lock:
                child = self._free.pop() if self._free else None
            child = child or _Child(self._memory_mb)
            reply = child.ask(request, self._timeout_s)
            if reply is not None:
                self._give_back(child)
                return Analysis.model_validate_json(reply)
            if child.end() in BY_THE_TEXT:
                bounds = f"{CPU_S:g} s and {self._memory_mb} MiB"
                return Analysis(failed=f"the text cannot be parsed within {bounds}")
        raise InfrastructureError(f"the analysis of an answer was broken off {TRIES} times")

    def _give_back(self, child: _Child) -> None:
        with self._lock:
            if not self._closed:
                self._free.append(child)
                return
        child.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            children, self._free = self._free, []
        for child in children:
            child.close()


class _Child:
    def __init__(self, memory_mb: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rtl_core.grading.analysis", str(memory_mb)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if self._line(START_S) is None:
            self.close()
            raise InfrastructureError("the analysis process does not start", "python -m rtl_core.grading.analysis")

    def ask(self, request: AnalysisRequest, timeout_s: float) -> bytes | None:
        """Its reply in JSON, or None when it ended or was too slow."""
        assert self._process.stdin is not None
        try:
            # By the standard library: a text may hold half a character, which pydantic refuses.
            self._process.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return None
        return self._line(timeout_s)

    def _line(self, timeout_s: float) -> bytes | None:
        """One line of the child, or None when it ended or was too slow."""
        stream = self._process.stdout
        assert stream is not None
        data = bytearray()
        deadline = time.monotonic() + timeout_s
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                return None
            part = stream.read1(1 << 20)  # type: ignore[attr-defined]
            if not part:
                return None
            data += part
        return bytes(data)

    def end(self) -> int | None:
        """How it ended by itself, as `Popen.returncode` tells; None when it had to be ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        code = self._process.returncode
        self.close()
        return code

    def close(self) -> None:
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()


def analyse_here(request: AnalysisRequest) -> Analysis:
    """The analysis itself, unbounded: for the child process."""
    design = {path: text for path, text in request.answer.items() if path in request.design}
    findings = screen(
        design, request.context, request.top, beside_hdl=request.beside_hdl, several_tools=request.several_tools
    )
    if findings:
        return Analysis(findings=tuple(findings))
    interface = None
    if request.top is not None and any(request.top in module_names(text) for text in request.answer.values()):
        interface = parse_interface({**request.context, **request.answer}, request.top, InterfaceSource.CONTEXT)
    return Analysis(interface=interface)


def _serve() -> None:
    limit = (int(sys.argv[1]) if len(sys.argv) > 1 else MEMORY_MB) << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = sys.stdout
    print("ready", flush=True)
    for line in sys.stdin:
        request = AnalysisRequest(**json.loads(line))
        # SIGPROF ends the process when the CPU time is over, whatever it is doing.
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        found = analyse_here(request)
        out.write(found.model_dump_json() + "\n")
        out.flush()
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    _serve()
