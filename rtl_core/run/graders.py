"""Executor, grader and limits as a run's configuration sets them."""

from __future__ import annotations

import os
from typing import Protocol

from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError
from rtl_core.grading.cache import MemoryCache
from rtl_core.grading.executors import Executor, make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import KnownGood, Limits


class Cluster(Executor, Protocol):
    """An executor on other machines; `slots` is how many jobs it runs at once."""

    slots: int


def executor_of(config: RunConfig) -> Executor:
    """The executor on this machine; `make_executor` says what it raises."""
    return make_executor(config.grading.executor, config.grading.image)


def graders_of(config: RunConfig, cluster: Cluster | None = None) -> int:
    """How many answers are graded at once. ConfigError when a cluster is configured and none is given."""
    if cluster is not None:
        return cluster.slots
    if isinstance(config.grading.workers, str):
        raise ConfigError(f"grading.workers: {config.grading.workers} cannot be used here", "give a number, or 0")
    return config.grading.workers or os.cpu_count() or 1


def grader_of(
    config: RunConfig, executor: Executor, known_good: KnownGood | None = None, cache: MemoryCache | None = None
) -> Grader:
    """A grader with the limits and seeds that a run's configuration sets."""
    limits, section = limits_of(config), config.grading
    return Grader(executor, limits=limits, seed=section.seed, seeds=section.seeds, cache=cache, known_good=known_good)


def limits_of(config: RunConfig) -> Limits:
    """The grader's limits as the configuration sets them, by the same names but for `wall_s`."""
    same = config.grading.model_dump(include=set(Limits.model_fields))
    return Limits(wall_s=config.grading.timeout_s, **same)
