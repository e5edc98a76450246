"""Settings of grading, the configuration section `[grading]`, and the executor and grader that they describe."""

from __future__ import annotations

import os
from typing import Annotated, Literal, Protocol

from pydantic import Field

from rtl_grader.errors import ConfigError
from rtl_grader.grading.cache import MemoryCache
from rtl_grader.grading.executors import Executor, make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import KnownGood, Limits
from rtl_grader.types.section import Section


class GradingSection(Section):
    executor: Literal["bubblewrap", "docker"] = "bubblewrap"
    """Sandbox for simulators: `bubblewrap` with this machine's tools, or `docker` with an image."""
    image: str = "rtl-distill-sim"
    """Image for `docker`: ours (`make sim-image`), or another one with the same tools and cocotb 2, such as
    the public benchmark's."""
    workers: (
        Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^dask://[^\s/]+:\d+$")]
    ) = 0
    """Number of answers graded in parallel on this machine (0: one per core), or the scheduler of a Dask
    cluster, `dask://host:port`."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Timeout of one harness service, in seconds. Counts computing and sleeping, not waiting for a busy
    machine. CVDP uses 600."""
    cpu_s: float = Field(default=60.0, gt=0)
    """CPU limit of one harness service, in seconds summed over its processes."""
    cpu_floor_s: float = Field(default=2.0, gt=0)
    """An answer may use `cpu_factor` times the CPU time of the known-good answer, or of the slowest passing
    answer if there is none. The limit is at least this many seconds and at most `cpu_s`. Before any answer
    has passed it is `cpu_s`."""
    cpu_factor: float = Field(default=10.0, ge=1)
    """How many times slower than the known-good answer an answer may simulate. See `cpu_floor_s`."""
    memory_mb: int = Field(default=4096, ge=256)
    """Memory limit of a harness, in MiB."""
    disk_mb: int = Field(default=512, ge=8)
    """Maximum disk space of a harness, in MiB."""
    processes: int = Field(default=128, ge=16)
    """Maximum number of concurrent processes of a harness."""
    seed: int = Field(default=1, ge=0)
    """Seed passed to every harness (COCOTB_RANDOM_SEED), so that the same answer gets the same verdict."""
    seeds: int = Field(default=3, ge=1, le=15)
    """For problems without a golden answer: number of seeds that decide by majority on an answer that fails
    a harness with random stimuli. Some such harnesses fail correct designs under some seeds. 1: only the
    first seed."""
    retries: int = Field(default=3, ge=0)
    """How often grading is retried after an infrastructure error before the run stops."""
    until: Literal["format", "interface", "syntax", "tests"] = "tests"
    """Last grading stage in training, for early steps. The reward counts stages up to it. Evaluations
    always run the tests."""
    until_steps: int = Field(default=0, ge=0)
    """Number of initial steps to which `until` applies. Later steps run the tests. 0: all steps."""

    def last_stage(self, purpose: str, step: int) -> str:
        """Return the last grading stage of a batch: `until` in the training steps that it applies to,
        otherwise `tests`."""
        early = self.until_steps == 0 or step < self.until_steps
        return self.until if purpose == "train" and early else "tests"


class Cluster(Executor, Protocol):
    """An executor on other machines; `slots` is the number of jobs it runs concurrently."""

    slots: int


def executor_of(settings: GradingSection) -> Executor:
    """Start the executor on this machine. Raises what `make_executor` raises."""
    return make_executor(settings.executor, settings.image)


def graders_of(settings: GradingSection, cluster: Cluster | None = None) -> int:
    """Return the number of answers graded concurrently. ConfigError if a cluster is configured and none is given."""
    if cluster is not None:
        return cluster.slots
    if isinstance(settings.workers, str):
        raise ConfigError(
            f"grading.workers: {settings.workers} cannot be used here", "give a number, or 0"
        )
    return settings.workers or os.cpu_count() or 1


def grader_of(
    settings: GradingSection,
    executor: Executor,
    known_good: KnownGood | None = None,
    cache: MemoryCache | None = None,
) -> Grader:
    """Return a grader with the limits and seeds of the settings."""
    return Grader(
        executor,
        limits=limits_of(settings),
        seed=settings.seed,
        seeds=settings.seeds,
        cache=cache,
        known_good=known_good,
    )


def limits_of(settings: GradingSection) -> Limits:
    """Return the limits of the grader; the names are equal except for `wall_s`."""
    same = settings.model_dump(include=set(Limits.model_fields))
    return Limits(wall_s=settings.timeout_s, **same)
