"""The bubblewrap executor: the machine's own simulators, each grade in namespaces of its own.

A cell (`cells.py`) is one bwrap sandbox with a read-only root (system directories, the Python environment, the agent) and
no network. As root the steps run as an unprivileged user that owns nothing; otherwise user namespaces are needed.

Covered: network, files, processes, CPU time, memory, disk and output. Not covered: kernel bugs; a cgroup's exactness
(memory is watched ten times a second, besides the limit on each process).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Pipe

from rtl_core.errors import InfrastructureError, ToolMissingError
from rtl_core.grading.executors.attached import attached
from rtl_core.grading.executors.base import ExecutorDiedError, Job
from rtl_core.grading.executors.cells import CAPABILITIES, Cell, CellExecutor
from rtl_core.grading.executors.toolchain import Toolchain, warn_of_older
from rtl_core.grading.executors.wire import (
    DESIGN_SLOT,
    GUARD,
    INSIDE,
    agent_at,
    agent_environment,
    job_message,
    receive,
    send,
    warm_command,
)

START_S = 120.0


class BubblewrapExecutor(CellExecutor):
    """Runs jobs in bwrap cells."""

    name = "bubblewrap"
    derives_images = False
    tries = 2

    def __init__(self, toolchain: Toolchain | None = None, *, warm: bool = True) -> None:
        """Proves with a first cell that the sandbox works here.

        Without a `toolchain` the installed one is used where there is one (`rtl-distill toolchain install`), else this
        machine's own tools, with one warning when they are older than the simulation image's.

        `warm` keeps a started Python and simulator in each cell, from which every grade is forked; without it each
        grade starts its programs afresh. The verdicts are the same.

        Raises ToolMissingError when bwrap or a simulator is missing, InfrastructureError when this machine does not
        allow the sandbox.
        """
        super().__init__()
        self.toolchain = toolchain or Toolchain.installed() or Toolchain.of_this_machine()
        if toolchain is None and self.toolchain.root is None:
            warn_of_older(self.toolchain.tools.get("iverilog", "unknown"))
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise ToolMissingError("bwrap is not installed", "apt-get install bubblewrap")
        self._bwrap = bwrap
        self.warm = warm
        # bwrap's --die-with-parent looks at the thread that started it: one that lives as long as the executor.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cell-starter")
        self._free.append(self._new(None))

    def shell(self, job: Job) -> int:
        """Runs the only step of a job on this process' terminal or streams, in a sandbox of its own; its exit code."""
        message = job_message(job, self.toolchain)
        plain = [self.toolchain.python, "-E", "-s", "-S", f"{GUARD}/shell.py"]
        ours, theirs = Pipe()
        with ours, theirs:
            # Beside the start: a large workspace does not fit into the socket before somebody reads.
            sender = threading.Thread(target=send, args=(ours, message), daemon=True)
            sender.start()
            command = _with_control([*self._command(plain)], theirs.fileno())
            return attached(command, [theirs.fileno()])

    def close(self) -> None:
        super().close()
        self._starter.shutdown(wait=False)

    def _start(self, kind: Hashable) -> Cell:
        try:
            return self._starter.submit(_BubblewrapCell, self._command()).result()
        except RuntimeError as error:
            raise InfrastructureError("the executor was closed") from error

    def _command(self, program: Sequence[str] = ()) -> list[str]:
        """The bwrap command line; without a `program` that of a cell."""
        command = [self._bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        command += ["--hostname", "sandbox", "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--clearenv"]
        if os.geteuid() == 0:
            # The agent keeps what it needs to mount, and to become nobody before anything of a job runs.
            command += ["--cap-drop", "ALL"]
            for capability in CAPABILITIES:
                command += ["--cap-add", f"CAP_{capability}"]
        else:
            command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
        command += self.toolchain.binds()
        command += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", str(INSIDE), GUARD]
        for directory in ("/tmp", "/code", "/src", "/rundir"):
            command += ["--dir", directory]
        command += ["--remount-ro", "/", "--chdir", "/"]
        for name, value in self.toolchain.environment().items():
            command += ["--setenv", name, value]
        if program:
            return [*command, "--", *program]
        if not self.warm:
            return [*command, "--", self.toolchain.python, "-E", "-s", "-S", f"{GUARD}/agent.py"]
        for name, value in agent_environment(self.toolchain.python).items():
            command += ["--setenv", name, value]
        return [*command, "--", *warm_command(self.toolchain)]


def _with_control(command: list[str], theirs: int) -> list[str]:
    """The agent finds its socket by the environment: bwrap hands it on as it is."""
    at = command.index("--")
    return [*command[:at], "--setenv", "RTL_CONTROL_FD", str(theirs), *command[at:]]


class _BubblewrapCell(Cell):
    """One bwrap process with the agent inside."""

    def __init__(self, command: list[str]) -> None:
        self.kind = None
        ours, theirs = socket.socketpair()
        self.agent = agent_at(ours)
        with theirs:
            self._process = subprocess.Popen(
                _with_control(command, theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        try:
            hello = receive(self.agent, START_S)
        except ExecutorDiedError as error:
            self.close()
            why = self._complaint() or error.message
            hint = (
                "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
                "kernel.apparmor_restrict_unprivileged_userns=0)"
                if why.startswith("bwrap:")
                else "`make setup` installs the versions of cocotb and pytest that fit"
            )
            raise InfrastructureError(f"the sandbox does not start: {why}", hint) from error
        assert hello.get("ready"), hello

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Closes the socket, upon which the agent ends; what does not end by itself is killed."""
        self.agent.close()
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _complaint(self) -> str:
        text = self._process.stderr.read().decode("utf-8", "replace") if self._process.stderr else ""
        # A vvp that no agent takes over goes on with the design's slot, which is no file: the cause stands before that.
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("d" * DESIGN_SLOT)]
        return lines[-1].strip() if lines else ""


if sys.platform != "linux":
    raise ImportError("the bubblewrap executor needs Linux")
