"""Executors: where the harness of a problem is run."""

from __future__ import annotations

from rtl_core.errors import ConfigError
from rtl_core.grading.executors.base import Executor

NAMES = ("bubblewrap",)


def make_executor(name: str = "bubblewrap") -> Executor:
    """The executor of that name, started and proven to work. Raises ConfigError for a name that is none."""
    if name == "bubblewrap":
        from rtl_core.grading.executors.bubblewrap import BubblewrapExecutor

        return BubblewrapExecutor()
    raise ConfigError(f"`{name}` is no executor", f"use one of {', '.join(NAMES)}")
