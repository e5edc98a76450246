"""An executor whose runs of a problem's own harness are kept, and may be changed before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rtl_core.grading.executors.base import Executor, Job, JobResult
from rtl_core.grading.jobs import harness_steps
from rtl_core.types.problem import Problem


@dataclass
class Watched:
    """An executor that keeps the jobs that ran the problem's own harness, and may change them before."""

    executor: Executor
    problem: Problem
    change: Callable[[Job], Job] = lambda job: job
    runs: list[tuple[Job, JobResult]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name, self.derives_images = self.executor.name, self.executor.derives_images
        self.cpu_s = 0.0
        self._services = {step.name for step in harness_steps(self.problem.harness)[0]}

    def tools(self) -> dict[str, str]:
        return self.executor.tools()

    def has_module(self, name: str) -> bool:
        return self.executor.has_module(name)

    def run(self, job: Job) -> JobResult:
        if {step.name for step in job.steps} != self._services:
            return self.executor.run(job)
        job = self.change(job)
        result = self.executor.run(job)
        self.cpu_s += result.cpu_s
        self.runs.append((job, result))
        return result

    def close(self) -> None:
        self.executor.close()
