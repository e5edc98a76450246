"""Jobs of a grading: the harness' services, our own compile and activity check, and the environment of
witness and gate."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rtl_grader.grading.compose import DIRECTORIES, read_services
from rtl_grader.grading.executors.base import Environment, Executor, Job, JobResult, Step, Steps
from rtl_grader.grading.inside.lib.compiled import ALLOWED_TASKS
from rtl_grader.grading.requirements import is_scripted
from rtl_grader.hdl.clocking import CLOCK_LIKE
from rtl_grader.hdl.interface import hdl_files
from rtl_grader.problems.interface import top_levels
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Interface, InterfaceSource, Port, Problem

SOURCE_SUFFIXES = (".v", ".sv")
"""Files that a compiler gets by name; headers are included by them."""
_COMPILE = "iverilog -g2012 -t null -I /code/rtl"
_SOURCES = re.compile(r"^[ \t]*VERILOG_SOURCES[ \t]*=(.*)$", re.M)
_ARGUMENTS = re.compile(r"^[ \t]*COMPILE_ARGS[ \t]*=(.*)$", re.M)
ACTIVITY_TEST = '''\
"""Drives every input at random and passes when an output took two values; with a clock, at its rising edges."""

import json
import random

import cocotb
from cocotb.handle import ArrayObject
from cocotb.triggers import ReadOnly, Timer

PORTS = json.loads({ports!r})
CYCLES = 600
APART = 1_000_000


def leaves(handle):
    """The handle, or the elements of an unpacked array."""
    return [leaf for part in handle for leaf in leaves(part)] if isinstance(handle, ArrayObject) else [handle]


@cocotb.test()
async def moves(dut):
    rng = random.Random(1)
    inputs = []
    for name, width in PORTS["inputs"]:
        parts = leaves(getattr(dut, name))
        inputs += [(part, width // len(parts)) for part in parts]
    outputs = [(leaf._path, leaf) for name in PORTS["outputs"] for leaf in leaves(getattr(dut, name))]
    clock = getattr(dut, PORTS["clock"]) if PORTS["clock"] else None
    seen = {{}}

    def look(kind):
        """Whether an output has had another value at an earlier look of this kind."""
        for name, handle in outputs:
            value = str(handle.value)
            if set(value) <= {{"0", "1"}} and seen.setdefault((kind, name), value) != value:
                return True
        return False

    density = [0.5] * len(inputs)
    await Timer(APART)
    for cycle in range(CYCLES):
        if cycle % 50 == 0:
            # For a while each single bit is mostly high or mostly low: resets of either level are let go, enables stay.
            density = [rng.choice((0.05, 0.5, 0.95)) for _ in inputs]
        for (handle, width), high in zip(inputs, density):
            handle.value = rng.getrandbits(width) if width > 1 else int(rng.random() < high)
        if clock is not None:
            clock.value = 0
            await Timer(APART)
            if look("before the edge"):
                return
            clock.value = 1
        # At the end of this very time step: what a design does between the edges is not looked at.
        await ReadOnly()
        if look("after it"):
            return
        await Timer(APART)
    raise AssertionError("no output moves")
'''
ACTIVITY_RUNNER = '''\
"""Builds the design with Icarus and runs the test beside it."""

import json

from cocotb_tools.runner import get_runner

settings = json.loads({settings!r})
runner = get_runner("icarus")
runner.build(sources=settings["sources"], hdl_toplevel=settings["top"], includes=["/code/rtl"], always=True)
runner.test(hdl_toplevel=settings["top"], test_module="activity")
'''


def stop_at_first_failure(steps: Steps) -> Steps:
    """Return the services of a harness with pytest stopping at the first failing test."""
    name = "PYTEST_ADDOPTS"
    impatient = []
    for step in steps:
        options = f"{step.env.get(name, '')} -x".strip()
        impatient.append(replace(step, env={**step.env, name: options}))
    return tuple(impatient)


def compile_step(problem: Problem, files: Files, *, top_level: bool) -> Step:
    """Elaboration with Icarus of the harness' sources, and with `top_level` from the top level that it names."""
    argv = _COMPILE.split()
    words = " ".join(_ARGUMENTS.findall(_settings(problem.harness))).split()
    argv += [word for word in words if word.startswith("-D")]
    if top_level:
        for top in top_levels(problem.harness)[:1]:
            argv += ["-s", top]
    return Step("compile", (*argv, *sources(problem, files)))


def sources(problem: Problem, files: Files) -> list[str]:
    """Source files that the harness names, else all of the design; absolute paths in the sandbox."""
    hdl = {path for path in (*problem.context, *files) if path.endswith(SOURCE_SUFFIXES)}
    design = {path for path in hdl if not path.startswith("verif/")}
    harness = problem.harness
    words = " ".join(_SOURCES.findall(_settings(harness))).split()
    paths = dict.fromkeys(word.removeprefix("/code/") for word in words)
    present = [path for path in paths if path in design or path in harness]
    return [f"/code/{path}" for path in present or sorted(design)]


def _settings(harness: Files) -> str:
    """The texts of a harness' env files."""
    return "\n".join(harness[path] for path in sorted(harness) if ".env" in path)


def workspace_files(harness: Files) -> Files:
    """Files of a harness that go into the workspace, which docker-compose.yml and Dockerfile do not."""
    return {path: text for path, text in harness.items() if path.split("/")[0] in DIRECTORIES}


def witness_environment(
    problem: Problem, ports: Sequence[Port] | None, right_values: Mapping[str, list[int]]
) -> Environment:
    """Return environment variables for witness and gate: the answer's ports to watch (none if None), system
    tasks that the problem's own files call, whether scripts of the harness run the simulator, and the right
    values of parameters, none for a port whose width counts.
    """
    watch = [[p.name for p in ports or () if p.direction == d] for d in ("input", "output")]
    texts = [*hdl_files(problem.context).values(), *hdl_files(problem.harness).values()]
    own_hdl = "\n".join(texts)
    tasks = set(re.findall(r"\$([a-z]\w*)", own_hdl)) - ALLOWED_TASKS
    if re.search(r"\bforce\b", own_hdl):
        tasks.add("force")
    demand = problem.interface or Interface(module="", source=InterfaceSource.HARNESS)
    values = {**right_values, **{p.name: [] for p in demand.ports if p.name in right_values}}
    return {
        "RTL_WATCH": "" if ports is None else json.dumps(watch),
        "RTL_TASKS": ",".join(sorted(tasks)),
        "RTL_SCRIPTED": "1" if is_scripted(problem.harness) else "",
        "RTL_PARAMETERS": json.dumps({"top": demand.module, "values": values}),
    }


def activity_check(
    top: str, sources: Sequence[str], ports: Sequence[Port], pacer: str
) -> tuple[Files, Step] | None:
    """Return the harness files and the command of the activity check; None if no output or no input's width is known.

    `sources` are absolute paths inside the workspace; `pacer` is an input, see `Session.pacer`, or empty; then an input
    that is named like a clock is one.
    """
    widths = {
        port.name: port.width for port in ports if port.direction == "input" and port.width
    }
    bits = [name for name, width in widths.items() if width == 1]
    clock = pacer
    if pacer not in bits:
        clock = next(filter(CLOCK_LIKE.search, bits), "")
    outputs = [port.name for port in ports if port.direction == "output"]
    if not widths or not outputs:
        return None
    widths.pop(clock, None)
    driven = json.dumps({"inputs": list(widths.items()), "outputs": outputs, "clock": clock})
    settings = json.dumps({"sources": list(sources), "top": top})
    files = {
        "src/activity.py": ACTIVITY_TEST.format(ports=driven),
        "src/run_activity.py": ACTIVITY_RUNNER.format(settings=settings),
    }
    command = ("python3", "/code/src/run_activity.py")
    return files, Step("activity", command, env={"PYTHONPATH": "/code/src"})


@dataclass
class RecordingExecutor:
    """An executor that records the jobs that run the problem's harness; `change` may alter them first."""

    executor: Executor
    problem: Problem
    change: Callable[[Job], Job] = lambda job: job
    runs: list[tuple[Job, JobResult]] = field(default_factory=list)

    def __post_init__(self) -> None:
        executor = self.executor
        self.name = executor.name
        self.derives_images = executor.derives_images
        self.tools = executor.tools
        self.has_module = executor.has_module
        self.close = executor.close
        self.cpu_s = 0.0
        self._services = {step.name for step in read_services(self.problem.harness)[0]}

    def run(self, job: Job) -> JobResult:
        if {step.name for step in job.steps} != self._services:
            return self.executor.run(job)
        job = self.change(job)
        result = self.executor.run(job)
        self.cpu_s += result.cpu_s
        self.runs.append((job, result))
        return result
