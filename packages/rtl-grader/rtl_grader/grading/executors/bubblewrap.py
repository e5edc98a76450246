"""The bubblewrap executor: runs the machine's own simulators, each job in its own namespaces.

A cell (`cells.py`) is one bwrap sandbox with a read-only root (system directories, the Python environment,
the agent) and no network. As root, the steps run as an unprivileged user that owns nothing; otherwise user
namespaces are needed.

Limited: network, files, processes, CPU time, memory, disk and output. Not covered: kernel bugs. The limit
of memory is less exact than in a cgroup: it is checked ten times a second, and each process has a limit.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Pipe

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.executors.base import ExecutorDiedError, Job
from rtl_grader.grading.executors.cells import CAPABILITIES, Cell, CellExecutor
from rtl_grader.grading.executors.toolchain import Toolchain, bwrap_path, warn_of_older
from rtl_grader.grading.executors.wire import (
    DESIGN_SLOT,
    GUARD,
    INSIDE,
    agent_at,
    agent_environment,
    job_message,
    plain_command,
    receive,
    send,
    warm_command,
)

START_S = 120.0
_ISOLATION = """--unshare-ipc --unshare-pid --unshare-net --unshare-uts --hostname sandbox
--unshare-cgroup-try --die-with-parent --new-session --clearenv"""
_NO_NAMESPACES = (
    "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0)"
)
_NO_PACKAGES = "`make setup` installs the versions of cocotb and pytest that fit"


class BubblewrapExecutor(CellExecutor):
    """Runs jobs in bwrap cells."""

    name = "bubblewrap"
    derives_images = False
    tries = 2

    def __init__(self, toolchain: Toolchain | None = None, *, warm: bool = True) -> None:
        """Start a first cell to check that the sandbox works here.

        `toolchain` defaults to the installed one (`rtl-grader toolchain install`), else this machine's own
        tools, with one warning if they are older than the simulation image's.

        `warm` keeps a started Python and simulator in each cell and forks every job from them; otherwise
        jobs start their programs anew. The verdicts are the same.

        Raises ToolMissingError if bwrap or a simulator is missing, InfrastructureError if this machine does
        not allow the sandbox.
        """
        super().__init__()
        self.toolchain = toolchain or Toolchain.installed() or Toolchain.of_this_machine()
        if toolchain is None and self.toolchain.root is None:
            warn_of_older(self.toolchain.tools.get("iverilog", "unknown"))
        self._bwrap = bwrap_path()
        self.warm = warm
        # bwrap's --die-with-parent refers to the starting thread, which must live as long as the executor.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cell-starter")
        self._free.append(self._start(None))

    def shell(self, job: Job) -> int:
        """Run the only step of a job on this process' terminal or streams, in its own sandbox; return the exit code."""
        message = job_message(job, self.toolchain)
        command = self._command(plain_command(self.toolchain, "shell.py"))
        ours, theirs = Pipe()
        with ours, theirs:
            # In a thread: a large workspace does not fit into the socket until it is read.
            threading.Thread(target=send, args=(ours, message), daemon=True).start()
            return _run_attached(_with_control(command, theirs.fileno()), theirs.fileno())

    def close(self) -> None:
        super().close()
        self._starter.shutdown(wait=False)

    def _start(self, kind: Hashable) -> Cell:
        try:
            return self._starter.submit(_BubblewrapCell, self._command()).result()
        except RuntimeError as error:
            raise InfrastructureError("the executor was closed") from error

    def _command(self, program: Sequence[str] = ()) -> list[str]:
        """The bwrap command line of a `program`, by default of a cell."""
        command = [self._bwrap, *_ISOLATION.split()]
        if os.geteuid() == 0:
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
            return [*command, "--", *plain_command(self.toolchain, "agent.py")]
        for name, value in agent_environment(self.toolchain.python).items():
            command += ["--setenv", name, value]
        return [*command, "--", *warm_command(self.toolchain)]


def _with_control(command: list[str], theirs: int) -> list[str]:
    """Add the environment variable by which the agent finds its socket; bwrap passes the descriptor on."""
    at = command.index("--")
    setting = ["--setenv", "RTL_CONTROL_FD", str(theirs)]
    return command[:at] + setting + command[at:]


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
            complaint = self._complaint() or error.message
            hint = _NO_PACKAGES
            if complaint.startswith("bwrap:"):
                hint = _NO_NAMESPACES
            raise InfrastructureError(
                f"the sandbox does not start: {complaint}", hint
            ) from error
        assert hello.get("ready"), hello

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Close the socket, which ends the agent; kill the process if it does not end."""
        self.agent.close()
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _complaint(self) -> str:
        assert self._process.stderr is not None
        text = self._process.stderr.read().decode("utf-8", "replace")
        # Without an agent, vvp complains about the placeholder of the design: the cause is in an earlier line.
        lines = [line for line in text.splitlines() if not line.startswith("d" * DESIGN_SLOT)]
        return next(filter(None, map(str.strip, reversed(lines))), "")


def _run_attached(command: Sequence[str], keep: int) -> int:
    """Run a command to its end and return its exit code. It inherits the descriptor `keep`.

    On a terminal it gets a pseudo-terminal, so that it cannot write to ours (TIOCSTI) and has Ctrl-C and job control.
    """
    sys.stdout.flush()
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not has_terminal:
        return subprocess.call(command, pass_fds=[keep])
    os.set_inheritable(keep, True)
    terminals: list[int] = []

    def read(terminal: int) -> bytes:
        if not terminals:
            terminals.append(terminal)
            copy_size()
        return os.read(terminal, 1 << 14)

    def copy_size(*_: object) -> None:
        for terminal in terminals:
            size = fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8)
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)

    previous = signal.signal(signal.SIGWINCH, copy_size)
    try:
        return os.waitstatus_to_exitcode(pty.spawn(command, read))
    finally:
        signal.signal(signal.SIGWINCH, previous)


if sys.platform != "linux":
    raise ImportError("the bubblewrap executor needs Linux")
