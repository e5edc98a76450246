"""The commands that are run for an answer, and the environment that configures witness and gate in the sandbox."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rtl_core.grading.compose import DIRECTORIES, read_services
from rtl_core.grading.executors.base import Executor, Job, JobResult, Step
from rtl_core.grading.inside.lib.compiled import ALLOWED_TASKS
from rtl_core.problems.interface import HDL_SUFFIXES, top_levels
from rtl_core.types.problem import Port, Problem

SOURCE_SUFFIXES = (".v", ".sv")
"""Files that a compiler gets by name; headers are included by them."""


def until_one_fails(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the services of a harness with pytest stopping at the first failing test."""
    return tuple(
        replace(step, env={**step.env, "PYTEST_ADDOPTS": f"{step.env.get('PYTEST_ADDOPTS', '')} -x".strip()})
        for step in steps
    )


def compile_step(problem: Problem, files: Mapping[str, str], *, top_level: bool) -> Step:
    """Elaboration with Icarus of the harness' sources, and with `top_level` from the top level that it names."""
    tops = top_levels(problem.harness)[:1] if top_level else []
    argv = ["iverilog", "-g2012", "-t", "null", "-I", "/code/rtl", *(word for top in tops for word in ("-s", top))]
    return Step("compile", (*argv, *sources(problem, files)))


def sources(problem: Problem, files: Mapping[str, str]) -> list[str]:
    """Source files that the harness names, else all of the design; absolute paths in the sandbox."""
    design = {p for p in (*problem.context, *files) if p.endswith(SOURCE_SUFFIXES) and not p.startswith("verif/")}
    named = [
        word.removeprefix("/code/")
        for path, text in sorted(problem.harness.items())
        if ".env" in path
        for line in re.findall(r"^[ \t]*VERILOG_SOURCES[ \t]*=(.*)$", text, re.M)
        for word in line.split()
    ]
    found = [path for path in dict.fromkeys(named) if path in design or path in problem.harness]
    return [f"/code/{path}" for path in found or sorted(design)]


def placed(harness: Mapping[str, str]) -> dict[str, str]:
    """Files of a harness that go into the workspace, which docker-compose.yml and Dockerfile do not."""
    return {path: text for path, text in harness.items() if path.split("/")[0] in DIRECTORIES}


def instructions(problem: Problem, ports: Sequence[Port] | None, demanded: Mapping[str, list[int]]) -> dict[str, str]:
    """Return environment variables for witness and gate: the answer's ports to watch (none if None), system tasks that the
    problem's own files call, and the right values of parameters.
    """
    watch = ";".join(",".join(p.name for p in ports or () if p.direction == d) for d in ("input", "output"))
    given = [text for p, text in (*problem.context.items(), *problem.harness.items()) if p.endswith(HDL_SUFFIXES)]
    tasks = {task for text in given for task in re.findall(r"\$([a-z]\w*)", text)} - ALLOWED_TASKS
    forced = {"force" for text in given if re.search(r"\bforce\b", text)}
    top = problem.interface.module if problem.interface else ""
    return {
        "RTL_WATCH": "" if ports is None else watch,
        "RTL_TASKS": ",".join(sorted(tasks | forced)),
        "RTL_PARAMETERS": json.dumps({"top": top, "values": demanded}),
    }


@dataclass
class Watched:
    """An executor that records the jobs that run the problem's harness; `change` may alter them first."""

    executor: Executor
    problem: Problem
    change: Callable[[Job], Job] = lambda job: job
    runs: list[tuple[Job, JobResult]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name, self.derives_images = self.executor.name, self.executor.derives_images
        self.cpu_s = 0.0
        self._services = {step.name for step in read_services(self.problem.harness)[0]}

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
