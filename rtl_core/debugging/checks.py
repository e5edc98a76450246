"""The first failing check of a graded answer: its message and its time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rtl_grader.grading.executors.base import StepResult

_NAMED = (
    # Golden answers that judge; starter benches; then what most harnesses write, in either order.
    re.compile(r"\bis (?P<got>\S+), golden (?P<expected>[^\s;]+)"),
    re.compile(r"(?P<signal>\w+) is (?P<got>[01xzXZ]+), expected (?P<expected>[01]+)"),
    re.compile(
        r"expected\s*(?:value)?[:=]?\s*(?P<expected>[-\w']+)[,;.]?\s+(?:but\s+)?"
        r"(?:got|actual|received)\s*[:=]?\s*(?P<got>[-\w']+)",
        re.I,
    ),
    re.compile(
        r"(?:got|actual|received)\s*(?:value)?[:=]?\s*(?P<got>[-\w']+)[,;.]?\s+(?:but\s+)?"
        r"expected\s*[:=]?\s*(?P<expected>[-\w']+)",
        re.I,
    ),
)
_BENCH = re.compile(
    r"Output '(?P<signal>\w+)' has \d+ mismatches\. First mismatch occurred at time (?P<time>\d+)"
)
_ERROR = re.compile(r"^\s*(?:\d\S*\s+)?(\w*(?:Error|Exception|Failure): .*)", re.M)
_UNIT = re.compile(r"(\d+)\s*([munpf]?)s")
_SECONDS = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15}


@dataclass(frozen=True)
class Check:
    """The first failing check of a harness, as far as the harness reports it."""

    words: str
    test: str | None = None
    at_s: float | None = None
    """Simulated time of the failure in seconds; None if the harness does not report it."""
    simulation: int | None = None
    """Index of the cocotb simulation, in the order of their starts; None without cocotb."""
    signal: str | None = None
    got: str | None = None
    expected: str | None = None
    """The signal, its value and the right one, as the harness writes them."""

    @property
    def seen(self) -> str | None:
        """These in words, if the harness reports both values."""
        if self.got is None or self.expected is None:
            return None
        verb = f"{self.signal} is" if self.signal else "got"
        return f"{verb} {self.got}, expected {self.expected}"


def first_failing_check(
    steps: Sequence[StepResult], harness: Mapping[str, str]
) -> Check | None:
    """The first failing check in the results of a harness' services; None if no test failed."""
    number = 0
    for step in steps:
        for session in step.sessions:
            passed_s = 0.0
            for test in session.tests:
                passed_s += float(test.get("ns") or 0) * 1e-9
                if test["status"] == "failed":
                    words = test["message"] or "failed"
                    # cocotb 1 keeps the message out of its results; the log has it.
                    if "Test failed with RANDOM_SEED" in words:
                        line = _ERROR.search(step.output)
                        words = line[1] if line else words
                    # A starter bench continues after its first wrong check and reports its time. It drives
                    # the next inputs at that time, so the values that it checked are those of a picosecond
                    # (its time step) before.
                    at = re.search(r" ns=([\d.]+)\]", words)
                    at_s = float(at[1]) * 1e-9 - 1e-12 if at else passed_s
                    return Check(words, test["name"], at_s, number, **_named(words))
            number += 1
    bench = harness.get("src/bench.json")
    return _mismatch(steps, bench) if bench else None


def _mismatch(steps: Sequence[StepResult], bench: str) -> Check | None:
    """The earliest mismatch that a Verilog bench with this description (JSON) prints."""
    for step in steps:
        lines = _BENCH.finditer(step.output)
        first = min(lines, key=lambda line: int(line["time"]), default=None)
        if first is None:
            continue
        unit = _UNIT.match(json.loads(bench)["timescale"] or "1s")
        unit_s = int(unit[1]) * _SECONDS[unit[2]] if unit else 1.0
        return Check(first[0], at_s=int(first["time"]) * unit_s, signal=first["signal"])
    return None


def _named(words: str) -> dict[str, str]:
    for pattern in _NAMED:
        if match := pattern.search(words):
            return match.groupdict()
    return {}
