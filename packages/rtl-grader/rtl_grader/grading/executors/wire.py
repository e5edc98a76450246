"""The protocol between executor and agent: JSON messages over a socket, framed by `multiprocessing`."""

from __future__ import annotations

import base64
import json
import socket
import struct
import time
import zlib
from multiprocessing.connection import Connection
from pathlib import Path

from pydantic import TypeAdapter

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.executors.base import (
    Environment,
    ExecutorDiedError,
    Job,
    JobResult,
    Message,
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
_RESULTS = TypeAdapter(tuple[StepResult, ...])


def agent_at(channel: socket.socket) -> Connection:
    """Return our end of an agent's socket. An agent that stalls within a message raises OSError after `GRACE_S`."""
    timeout = divmod(int(GRACE_S * 1e6), 1_000_000)  # seconds, microseconds
    for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        channel.setsockopt(socket.SOL_SOCKET, direction, struct.pack("ll", *timeout))
    return Connection(channel.detach())


def ask(agent: Connection, message: Message, patience_s: float) -> Message:
    """Send a job and wait for its answer. Raises ExecutorDiedError if the agent ends or `patience_s` pass."""
    try:
        send(agent, message)
    except OSError as error:
        raise ExecutorDiedError("the sandbox ended before it took the job") from error
    return receive(agent, patience_s)


def receive(agent: Connection, patience_s: float) -> Message:
    """Return the agent's next message. Raises ExecutorDiedError like `ask`."""
    try:
        if agent.poll(patience_s):
            return json.loads(agent.recv_bytes())
    except (EOFError, OSError) as error:
        raise ExecutorDiedError("the sandbox ended in the middle of a job") from error
    raise ExecutorDiedError("the sandbox gave no answer in time")


def send(agent: Connection, message: Message) -> None:
    """Send one message. Raises OSError if the other end is closed."""
    agent.send_bytes(json.dumps(message).encode())


def job_message(job: Job, toolchain: Toolchain) -> Message:
    """A job as a message to the agent."""
    return {
        **vars(job),
        "files": dict(job.files),
        "harness": dict(job.harness),
        "mounts": list(map(vars, job.mounts)),
        "limits": job.limits.model_dump(),
        "steps": [_step(step, job, toolchain) for step in job.steps],
        "prefixes": toolchain.prefixes,
        "longest_s": SLOWEST * job.limits.wall_s,
    }


def agent_environment(python: str) -> Environment:
    """Environment variables that turn a simulator into a warm agent; `python` is the toolchain's interpreter."""
    return {"PYTHONPATH": f"{GUARD}/warm:{GUARD}:{GUARD}/lib", "PYGPI_PYTHON_BIN": python}


def warm_command(toolchain: Toolchain) -> list[str]:
    """The command line of a warm vvp, with slots for a design and plusargs that
    packages/rtl-grader/rtl_grader/grading/inside/warm.py overwrites."""
    command = ["vvp", "-M", toolchain.libraries, "-m", "libcocotbvpi_icarus"]
    plusarg = "+".ljust(SLOT, "p")
    return [*command, "d" * DESIGN_SLOT, *[plusarg] * SLOTS]


def plain_command(toolchain: Toolchain, script: str) -> list[str]:
    """The command line of a script of the guard directory in a fresh Python."""
    return [toolchain.python, "-E", "-s", "-S", f"{GUARD}/{script}"]


def patience(job: Job) -> float:
    """Seconds after which an agent without an answer is considered dead."""
    return SLOWEST * job.limits.wall_s * len(job.steps) + GRACE_S


def job_result(answer: Message, start: float, *, last: bool) -> JobResult | None:
    """Parse an agent's answer to a job that began at `start` (monotonic); None if the agent failed and
    may be retried.

    Raises InfrastructureError if it failed on the `last` try.
    """
    if "error" in answer:
        if last:
            complaint = answer["error"].strip().splitlines()[-1]
            raise InfrastructureError(f"the sandbox's agent failed: {complaint}")
        return None
    results = _RESULTS.validate_python(answer["steps"])
    waves = tuple(map(_wave, answer.get("waves", ())))
    return JobResult(results, time.monotonic() - start, waves)


def _wave(wave: Message) -> Wave:
    vcd = zlib.decompressobj().decompress(base64.b64decode(wave["vcd"]), MAX_WAVE)
    return Wave(vcd, wave["modules"])


def _step(step: Step, job: Job, toolchain: Toolchain) -> Message:
    environment = _environment(step, job, toolchain)
    ours = toolchain.environment().items()
    return {
        **vars(step),
        "env": environment,
        "warm": job.cocotb == 2 and job.trusted,
        # Our own variables, so that a warm start can tell which ones the harness set.
        "own": [name for name, value in ours if environment.get(name) == value],
    }


def _environment(step: Step, job: Job, toolchain: Toolchain) -> Environment:
    environment = {**toolchain.environment(), **step.env}
    # Our `vvp` comes first: it checks the compiled program before it runs the real one.
    # The path of the waves' programs does not begin with /guard: rewritten test benches skip such directories.
    waves = ""
    if job.waves:
        waves = f"/.{GUARD}/waves:"
    environment["PATH"] = f"{GUARD}/bin:{waves}{environment['PATH']}"
    older = None
    if job.cocotb == 1:
        older = toolchain.cocotb1
    places = step.env.get("PYTHONPATH"), older, f"{GUARD}/lib"
    environment["PYTHONPATH"] = ":".join(filter(None, places))
    if "RANDOM_SEED" not in environment:
        variable = "COCOTB_RANDOM_SEED"
        if job.cocotb == 1:
            variable = "RANDOM_SEED"
        environment.setdefault(variable, str(job.seed))
    return environment
