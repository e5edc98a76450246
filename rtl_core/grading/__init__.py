"""Grading: files and harness to a verdict.

Names are loaded when they are first used, so that whoever needs only the noun `Verdict` does not load pyslang.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtl_core.grading.cache import MemoryCache, VerdictCache, cache_key
    from rtl_core.grading.executors import Executor, make_executor
    from rtl_core.grading.grader import Grader
    from rtl_core.grading.limits import Limits
    from rtl_core.grading.verdict import Outcome, Stage, StageResult, Verdict

__all__ = [
    "Executor",
    "Grader",
    "Limits",
    "MemoryCache",
    "Outcome",
    "Stage",
    "StageResult",
    "Verdict",
    "VerdictCache",
    "cache_key",
    "make_executor",
]

_HOMES = {
    "Executor": "executors",
    "Grader": "grader",
    "Limits": "limits",
    "MemoryCache": "cache",
    "Outcome": "verdict",
    "Stage": "verdict",
    "StageResult": "verdict",
    "Verdict": "verdict",
    "VerdictCache": "cache",
    "cache_key": "cache",
    "make_executor": "executors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
