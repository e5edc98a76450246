"""Executors run the harness of a problem."""

from __future__ import annotations

from rtl_grader.errors import ConfigError
from rtl_grader.grading.executors.base import Executor

NAMES = ("bubblewrap", "docker")


def make_executor(name: str = "bubblewrap", image: str | None = None) -> Executor:
    """Start the executor of that name and check that it works. `image` is Docker's (None: our own).
    ConfigError for unknown names."""
    if name == "bubblewrap":
        from rtl_grader.grading.executors.bubblewrap import BubblewrapExecutor

        return BubblewrapExecutor()
    if name == "docker":
        from rtl_grader.grading.executors.docker import IMAGE, DockerExecutor

        return DockerExecutor(image or IMAGE)
    raise ConfigError(f"`{name}` is not an executor", f"use one of {', '.join(NAMES)}")
