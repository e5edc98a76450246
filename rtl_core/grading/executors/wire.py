"""How jobs are handed to the agent in a sandbox: messages in JSON over a socket, framed as `multiprocessing` does it."""

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

from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors.base import ExecutorDiedError, Job, JobResult, Session, Step, StepResult, Wave
from rtl_core.grading.executors.toolchain import Toolchain

INSIDE = Path(__file__).resolve().parent.parent / "inside"
GUARD = "/guard"
"""Where the agent and its helpers stand here, and inside."""
GRACE_S = 40.0
SLOWEST = 20
"""A step ends after so many times its limit of time, whatever share of the machine it had."""

DESIGN_SLOT, SLOT, SLOTS = 1000, 250, 16
"""The same as in rtl_core/grading/inside/warm.py."""
MAX_WAVE = 256 << 20
"""Bytes of one simulation's waves that are unpacked: what is packed may stand for far more."""


def agent_at(channel: socket.socket) -> Connection:
    """Our end of an agent's socket. One that stands still in the middle of a message ends as an OSError after `GRACE_S`."""
    for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        channel.setsockopt(socket.SOL_SOCKET, direction, struct.pack("ll", *divmod(int(GRACE_S * 1e6), 1_000_000)))
    return Connection(channel.detach())


def ask(agent: Connection, message: Mapping[str, Any], patience_s: float) -> dict[str, Any]:
    """Sends a job and waits for its answer. Raises ExecutorDiedError when the agent ends or is silent too long."""
    try:
        send(agent, message)
    except OSError as error:
        raise ExecutorDiedError("the sandbox ended before it took the job") from error
    return receive(agent, patience_s)


def receive(agent: Connection, patience_s: float) -> dict[str, Any]:
    """The agent's next message. Raises ExecutorDiedError as `ask` does."""
    try:
        if agent.poll(patience_s):
            return json.loads(agent.recv_bytes())
    except (EOFError, OSError) as error:
        raise ExecutorDiedError("the sandbox ended in the middle of a job") from error
    raise ExecutorDiedError("the sandbox gave no answer in time")


def send(agent: Connection, message: Mapping[str, Any]) -> None:
    """One message. OSError when the other side is gone."""
    agent.send_bytes(json.dumps(message).encode())


def job_message(job: Job, toolchain: Toolchain) -> dict[str, Any]:
    """A job as the agent takes it."""
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
    """What a simulator needs in its environment to become a warm agent; `python` is the interpreter toolchain."""
    return {"PYTHONPATH": f"{GUARD}/warm:{GUARD}:{GUARD}/lib", "PYGPI_PYTHON_BIN": python}


def warm_command(toolchain: Toolchain) -> list[str]:
    """The command line of a warm vvp, with room for a design and plusargs; rtl_core/grading/inside/warm.py writes there."""
    slots = ["d" * DESIGN_SLOT, *["+" + "p" * (SLOT - 1)] * SLOTS]
    return ["vvp", "-M", toolchain.libraries, "-m", "libcocotbvpi_icarus", *slots]


def patience(job: Job) -> float:
    """Seconds after which an agent that has not answered is taken for dead."""
    return SLOWEST * job.limits.wall_s * len(job.steps) + GRACE_S


def job_result(answer: Mapping[str, Any], started: float, *, last: bool) -> JobResult | None:
    """An agent's answer to a job that began at `started` (monotonic); None when the agent failed and there is another try.

    Raises InfrastructureError when it failed at the last one.
    """
    if "error" in answer:
        if last:
            raise InfrastructureError(f"the sandbox's agent failed: {answer['error'].strip().splitlines()[-1]}")
        return None
    waves = tuple(
        Wave(zlib.decompressobj().decompress(base64.b64decode(wave["vcd"]), MAX_WAVE), wave["modules"])
        for wave in answer.get("waves", ())
    )
    return JobResult(tuple(_step_result(step) for step in answer["steps"]), time.monotonic() - started, waves)


def _step_result(step: Mapping[str, Any]) -> StepResult:
    """A step's result as the agent sent it."""
    lists = {key: tuple(step.get(key, ())) for key in ("builds", "refused")}
    sessions = tuple(Session(**{**session, "tests": tuple(session["tests"])}) for session in step.get("sessions", ()))
    return StepResult(**{**step, **lists, "sessions": sessions})


def _step(step: Step, job: Job, toolchain: Toolchain) -> dict[str, Any]:
    environment = _environment(step, job, toolchain)
    return {
        "name": step.name,
        "argv": list(step.argv),
        "cwd": step.cwd,
        "env": environment,
        # What is ours in it, so that a warm start can tell what the harness asked for.
        "warm": job.cocotb == 2 and job.trusted,
        "own": [name for name, value in toolchain.environment().items() if environment.get(name) == value],
    }


def _environment(step: Step, job: Job, toolchain: Toolchain) -> dict[str, str]:
    environment = {**toolchain.environment(), **step.env}
    # A fresh `vvp` is found here first: it looks at the compiled program before it becomes the real one.
    # The detour in the second name is for test benches: they pass over what stands in /guard.
    waves = f"/.{GUARD}/waves:" if job.waves else ""
    environment["PATH"] = f"{GUARD}/bin:{waves}{environment['PATH']}"
    older = toolchain.cocotb1 if job.cocotb == 1 else None
    environment["PYTHONPATH"] = ":".join(filter(None, (step.env.get("PYTHONPATH"), older, f"{GUARD}/lib")))
    if "RANDOM_SEED" not in environment:
        # cocotb 1 reads the one, cocotb 2 the other.
        name = "RANDOM_SEED" if job.cocotb == 1 else "COCOTB_RANDOM_SEED"
        environment.setdefault(name, str(job.seed))
    return environment
