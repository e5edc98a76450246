"""The verdict cache: the same answer to the same problem with the same tools is graded once.

A run fills a `MemoryCache` from its history and writes there what is new in it. Commands on files and the service
keep whole records instead (verdict_file.py), whose keys are made of the one here.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, Field

from rtl_grader.digest import sha256_of
from rtl_grader.grading.limits import Limits
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Stage, Verdict

GRADER_VERSION = 25
"""Increased whenever the grader may judge an answer differently than before."""
MOST_CACHED = 100_000
"""Number of newest verdicts that a process keeps, about 130 MB. A run of many days produces millions."""


class MemoryCache:
    """In-memory cache of verdicts by key, filled before a run and drained after it. Thread-safe. Ignores
    infrastructure errors.

    Verdicts are kept as JSON, which takes a quarter of the memory. Beyond `most` entries the oldest is evicted.
    """

    def __init__(
        self, verdicts: Iterable[tuple[str, str]] = (), most: int = MOST_CACHED
    ) -> None:
        """`verdicts` are (key, verdict as JSON), the oldest first."""
        self._texts = OrderedDict(verdicts)
        self._most = most
        self._new: dict[str, Verdict] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> Verdict | None:
        text = self._texts.get(key)
        if text is None:
            return None
        return Verdict.model_validate(json.loads(text))

    def put(self, key: str, verdict: Verdict) -> None:
        if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
            return
        with self._lock:
            self._new[key] = verdict
            self._texts[key] = json.dumps(verdict.model_dump(mode="json"))
            if len(self._texts) > self._most:
                self._texts.popitem(last=False)

    def drain(self) -> dict[str, Verdict]:
        """Verdicts put since the last drain, by key."""
        with self._lock:
            new = self._new
            self._new = {}
        return new

    def __len__(self) -> int:
        return len(self._texts)


class Conditions(BaseModel, frozen=True):
    """What a verdict depends on besides problem, answer and tools."""

    grader: int = GRADER_VERSION
    seed: int = Field(ge=0)
    """The first seed; the seed of a verdict is the deciding one."""
    seeds: int = Field(ge=1)
    """Maximum number of seeds."""
    limits: Limits
    until: Stage
    repeat: int = Field(default=1, ge=1)
    """Number of gradings; the worst verdict counts."""


def cache_key(
    problem: Problem,
    files: Files,
    conditions: Conditions,
    executor: str,
    tools: Mapping[str, str],
) -> str:
    """SHA-256 (hex) of everything that decides the verdict of one grading. Line endings and trailing white space do
    not matter."""
    parts = {
        **conditions.model_dump(mode="json", exclude={"repeat"}),
        "problem": problem.fingerprint,
        "interface": interface_of(problem),
        "files": {path: normalised(text) for path, text in files.items()},
        "executor": executor,
        "tools": dict(tools),
    }
    return sha256_of(parts)


def interface_of(problem: Problem) -> object:
    """The interface that a problem demands, as it is hashed."""
    return problem.interface and problem.interface.model_dump(mode="json")


def normalised(text: str) -> str:
    """The text without what compilers ignore: carriage returns, trailing blanks and tabs, empty lines at the end.

    Other Unicode white space (no-break space, line separator, ...) is an error for simulators and stays.
    """
    # White space after a backslash stays: a backslash continues the line only if nothing follows it.
    lines = re.sub(r"(?<![\\ \t])[ \t]+$", "", text.replace("\r\n", "\n"), flags=re.M)
    return lines.rstrip("\n") + "\n"
