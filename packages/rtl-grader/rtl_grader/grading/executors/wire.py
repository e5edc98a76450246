"""The protocol between executor and agent: JSON messages over a socket, framed by `multiprocessing`."""

from __future__ import annotations

import base64
import json
import socket
import struct
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.executors.base import (
    ExecutorDiedError,
    Job,
    JobResult,
    Session,
    Step,
    StepResult,
    Wave,
)
from rtl_grader.grading.executors.toolchain import Toolchain

INSIDE = Path(__file__).resolve().parent.parent / "inside"
GUARD = "/guard"
"""Directory of the agent and its helpers on this machine (INSIDE) and in the sandbox (GUARD)."""
GRACE_S = 40.0
SLOWEST = 20
"""A step ends after this multiple of its time limit, however busy the machine is."""

DESIGN_SLOT, SLOT, SLOTS = 1000, 250, 16
"""The same as in packages/rtl-grader/rtl_grader/grading/inside/warm.py."""
MAX_WAVE = 256 << 20
"""Maximum bytes of one simulation's waves after decompression."""


def agent_at(channel: socket.socket) -> Connection:
    """Return our end of an agent's socket. An agent that stalls within a message raises OSError after `GRACE_S`."""
    for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        channel.setsockopt(
            socket.SOL_SOCKET, direction, struct.pack("ll", *divmod(int(GRACE_S * 1e6), 1_000_000))
        )
    return Connection(channel.detach())


def ask(agent: Connection, message: Mapping[str, Any], patience_s: float) -> dict[str, Any]:
    """Send a job and wait for its answer. Raises ExecutorDiedError if the agent ends or `patience_s` pass."""
    try:
        send(agent, message)
    except OSError as error:
        raise ExecutorDiedError("the sandbox ended before it took the job") from error
    return receive(agent, patience_s)


def receive(agent: Connection, patience_s: float) -> dict[str, Any]:
    """Return the agent's next message. Raises ExecutorDiedError like `ask`."""
    try:
        if agent.poll(patience_s):
            return json.loads(agent.recv_bytes())
    except (EOFError, OSError) as error:
        raise ExecutorDiedError("the sandbox ended in the middle of a job") from error
    raise ExecutorDiedError("the sandbox gave no answer in time")


def send(agent: Connection, message: Mapping[str, Any]) -> None:
    """Send one message. Raises OSError if the other end is closed."""
    agent.send_bytes(json.dumps(message).encode())


def job_message(job: Job, toolchain: Toolchain) -> dict[str, Any]:
    """A job as a message to the agent."""
    return {
        "prefixes": list(toolchain.prefixes),
        "files": dict(job.files),
        "harness": dict(job.harness),
        "mounts": [asdict(mount) for mount in job.mounts],
        "limits": job.limits.model_dump(),
        "budget_s": job.budget_s,
        "longest_s": SLOWEST * job.limits.wall_s,
        "stop_at_failure": job.stop_at_failure,
        "trusted": job.trusted,
        "waves": job.waves,
        "steps": [_step(step, job, toolchain) for step in job.steps],
    }


def agent_environment(python: str) -> dict[str, str]:
    """Environment variables that turn a simulator into a warm agent; `python` is the toolchain's interpreter."""
    return {"PYTHONPATH": f"{GUARD}/warm:{GUARD}:{GUARD}/lib", "PYGPI_PYTHON_BIN": python}


def warm_command(toolchain: Toolchain) -> list[str]:
    """The command line of a warm vvp, with slots for a design and plusargs that
    packages/rtl-grader/rtl_grader/grading/inside/warm.py overwrites."""
    slots = ["d" * DESIGN_SLOT, *["+" + "p" * (SLOT - 1)] * SLOTS]
    return ["vvp", "-M", toolchain.libraries, "-m", "libcocotbvpi_icarus", *slots]


def patience(job: Job) -> float:
    """Seconds after which an agent without an answer is considered dead."""
    return SLOWEST * job.limits.wall_s * len(job.steps) + GRACE_S


def job_result(answer: Mapping[str, Any], started: float, *, last: bool) -> JobResult | None:
    """Parse an agent's answer to a job that began at `started` (monotonic); None if the agent failed and
    may be retried.

    Raises InfrastructureError if it failed on the `last` try.
    """
    if "error" in answer:
        if last:
            raise InfrastructureError(
                f"the sandbox's agent failed: {answer['error'].strip().splitlines()[-1]}"
            )
        return None
    waves = tuple(
        Wave(
            zlib.decompressobj().decompress(base64.b64decode(wave["vcd"]), MAX_WAVE),
            wave["modules"],
        )
        for wave in answer.get("waves", ())
    )
    return JobResult(tuple(map(_step_result, answer["steps"])), time.monotonic() - started, waves)


def _step_result(step: Mapping[str, Any]) -> StepResult:
    lists = {key: tuple(step.get(key, ())) for key in ("builds", "refused", "started")}
    sessions = tuple(
        Session(**{**session, "tests": tuple(session["tests"])})
        for session in step.get("sessions", ())
    )
    return StepResult(**{**step, **lists, "sessions": sessions})


def _step(step: Step, job: Job, toolchain: Toolchain) -> dict[str, Any]:
    environment = _environment(step, job, toolchain)
    return {
        "name": step.name,
        "argv": list(step.argv),
        "cwd": step.cwd,
        "env": environment,
        # Our own variables, so that a warm start can tell which ones the harness set.
        "warm": job.cocotb == 2 and job.trusted,
        "own": [
            name
            for name, value in toolchain.environment().items()
            if environment.get(name) == value
        ],
    }


def _environment(step: Step, job: Job, toolchain: Toolchain) -> dict[str, str]:
    environment = {**toolchain.environment(), **step.env}
    # Our `vvp` comes first: it checks the compiled program before it runs the real one.
    # The path of the waves' programs does not begin with /guard: rewritten test benches skip such directories.
    waves = f"/.{GUARD}/waves:" if job.waves else ""
    environment["PATH"] = f"{GUARD}/bin:{waves}{environment['PATH']}"
    older = toolchain.cocotb1 if job.cocotb == 1 else None
    environment["PYTHONPATH"] = ":".join(
        filter(None, (step.env.get("PYTHONPATH"), older, f"{GUARD}/lib"))
    )
    if "RANDOM_SEED" not in environment:
        environment.setdefault(
            "RANDOM_SEED" if job.cocotb == 1 else "COCOTB_RANDOM_SEED", str(job.seed)
        )
    return environment
