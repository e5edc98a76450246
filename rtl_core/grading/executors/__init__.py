"""Executors: where the harness of a problem is run."""

from __future__ import annotations

from rtl_core.errors import ConfigError
from rtl_core.grading.executors.base import Executor

NAMES = ("bubblewrap", "docker")


def make_executor(name: str = "bubblewrap", image: str | None = None) -> Executor:
    """The executor of that name, started and proven to work; `image` is Docker's, None our own. Raises ConfigError for a name that is none."""
    if name == "bubblewrap":
        from rtl_core.grading.executors.bubblewrap import BubblewrapExecutor

        return BubblewrapExecutor()
    if name == "docker":
        from rtl_core.grading.executors.docker import IMAGE, DockerExecutor

        return DockerExecutor(image or IMAGE)
    raise ConfigError(f"`{name}` is no executor", f"use one of {', '.join(NAMES)}")
