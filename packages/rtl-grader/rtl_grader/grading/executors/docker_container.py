"""One container of the Docker executor with the agent as process 1, and its seccomp profile.

The agent keeps the capabilities that it needs to isolate the mounts, processes and user of each job. The
job's steps have none and cannot gain any (inside/namespaces.py). The profile allows fewer system calls than
Docker's default: only the machine's own architecture (calls by another one kill the process), and nothing
that simulators, compilers and Python harnesses do not need: no tracing, other processes' memory, io_uring,
performance counters, keys, or sockets other than local and Internet ones. Refused calls fail with EPERM.
`mount`, `umount2` and `unshare` are for the agent; steps can use neither them nor any other way to a
namespace (`refuse_namespaces` in inside/namespaces.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.executors.base import ExecutorDiedError, Message
from rtl_grader.grading.executors.cells import CAPABILITIES, Cell
from rtl_grader.grading.executors.toolchain import Toolchain
from rtl_grader.grading.executors.wire import (
    GUARD,
    INSIDE,
    agent_at,
    agent_environment,
    receive,
    warm_command,
)

START_S = 120.0
CONTROL = "/control"
CPUS = 2

_FILES = """
read write open openat openat2 close close_range stat fstat lstat newfstatat statx lseek pread64
pwrite64 readv writev preadv pwritev preadv2 pwritev2 access faccessat faccessat2 dup dup2 dup3
fcntl flock fsync fdatasync sync syncfs truncate ftruncate getdents getdents64 getcwd chdir
fchdir rename renameat renameat2 mkdir mkdirat rmdir creat link linkat unlink unlinkat symlink
symlinkat readlink readlinkat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat umask
utime utimes utimensat futimesat mknod mknodat fallocate fadvise64 readahead sendfile splice tee
copy_file_range statfs fstatfs getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr ioctl memfd_create
inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
"""
_MEMORY = """
mmap mprotect munmap brk mremap msync mincore madvise mlock mlock2 munlock mlockall munlockall
membarrier pkey_alloc pkey_free pkey_mprotect shmget shmat shmctl shmdt
"""
_PROCESSES = """
fork vfork clone clone3 execve execveat exit exit_group wait4 waitid kill tkill tgkill getpid
gettid getppid getpgrp getpgid setpgid getsid setsid getrlimit setrlimit prlimit64 getrusage
getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid
setresuid setresgid setgroups setfsuid setfsgid capget capset prctl arch_prctl set_robust_list
get_robust_list set_tid_address rseq sched_yield sched_getaffinity sched_setaffinity
sched_getparam sched_getscheduler sched_setscheduler sched_setparam sched_get_priority_max
sched_get_priority_min sched_rr_get_interval sched_getattr getpriority setpriority getcpu
ioprio_get futex futex_waitv restart_syscall pidfd_open pidfd_send_signal seccomp uname sysinfo
times getrandom
"""
_ISOLATION = "mount umount2 unshare"
_EVENTS = """
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo
rt_tgsigqueueinfo rt_sigsuspend sigaltstack pause poll ppoll select pselect6 epoll_create
epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd signalfd4
pipe pipe2 nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time alarm
setitimer getitimer timerfd_create timerfd_settime timerfd_gettime timer_create timer_settime
timer_gettime timer_getoverrun timer_delete semget semop semtimedop semctl msgget msgsnd msgrcv
msgctl mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
"""
_SOCKETS = """
connect accept accept4 sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown bind listen
getsockname getpeername socketpair setsockopt getsockopt
"""

_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6; the container has no network."""


@dataclass(frozen=True)
class Kind:
    """Containers of equal kind are interchangeable."""

    image: str
    memory_mb: int
    """Of all processes in it, and of a job's files."""
    processes: int


@dataclass(frozen=True)
class Settings:
    """Settings shared by all containers of an executor."""

    api: Any
    folder: Path
    """Contains the directories shared by host and containers."""
    toolchain: Toolchain
    labels: Mapping[str, str]


class Container(Cell):
    """A container with a program as process 1, by default the agent, which waits for jobs."""

    def __init__(
        self, settings: Settings, kind: Kind, program: Sequence[str] = (), **streams: bool
    ) -> None:
        """Create a container without starting it. Raises InfrastructureError if the engine refuses."""
        self.kind = kind
        self._settings = settings
        self.name = f"rtl-distill-{uuid.uuid4().hex[:16]}"
        self._folder = settings.folder / self.name
        """Shared with this host."""
        self._folder.mkdir()
        self._folder.chmod(0o777)  # if the engine remaps users, its root is another user here
        toolchain = settings.toolchain
        agent = {
            **agent_environment(toolchain.python),
            "RTL_CONTROL_SOCKET": f"{CONTROL}/agent.sock",
        }
        binds = [f"{INSIDE}:{GUARD}:ro", f"{self._folder}:{CONTROL}:rw"]
        try:
            settings.api.create_container(
                kind.image,
                entrypoint=list(program or warm_command(toolchain)),
                name=self.name,
                environment={**toolchain.environment(), **agent},
                labels=dict(settings.labels),
                host_config=settings.api.create_host_config(
                    binds=binds,
                    **_confinement(kind.memory_mb, kind.processes),
                ),
                user="0:0",
                working_dir="/",
                network_disabled=True,
                **streams,
            )
        except Exception as error:
            self.close()
            raise InfrastructureError(
                f"the engine cannot create a container: {error}", "is its disk full?"
            ) from error

    def start(self) -> Container:
        """Start it and wait for its agent. Raises InfrastructureError if the engine refuses."""
        try:
            self._settings.api.start(self.name)
            self.agent = self.connect()
            receive(self.agent, START_S)
        except Exception as error:
            self.close()
            raise InfrastructureError(
                f"the engine cannot start a container: {error}", "is its disk full?"
            ) from error
        return self

    def connect(self) -> Connection:
        """Wait until its program listens and return the socket. Raises ExecutorDiedError if it never does."""
        deadline = time.monotonic() + START_S
        look = time.monotonic() + 0.5
        while True:
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                channel.connect(str(self._folder / "agent.sock"))
                return agent_at(channel)
            except OSError as error:
                channel.close()
                now = time.monotonic()
                ended = False
                if now > look:
                    look = now + 0.5
                    ended = self._state().get("Status") not in ("created", "running")
                if now > deadline or ended:
                    raise ExecutorDiedError(
                        f"the container's agent does not answer: {error}"
                    ) from error
                time.sleep(0.01)

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            self._settings.api.kill(self.name)

    def close(self) -> None:
        remove(self._settings.api, self.name)
        shutil.rmtree(self._folder, ignore_errors=True)
        if hasattr(self, "agent"):
            self.agent.close()

    def out_of_memory(self) -> bool:
        """Whether the kernel has killed a process in it for lack of memory."""
        return bool(self._state().get("OOMKilled"))

    def _state(self) -> Message:
        """The engine's description of its state; empty if the engine does not answer."""
        try:
            return dict(self._settings.api.inspect_container(self.name)["State"])
        except Exception:
            return {}


def _confinement(memory_mb: int, processes: int) -> Message:
    """Arguments of `create_host_config`."""
    return {
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "cap_add": list(CAPABILITIES),
        # AppArmor's profile for containers refuses every mount.
        "security_opt": ["no-new-privileges", "apparmor=unconfined", f"seccomp={_profile()}"],
        "read_only": True,
        # Mount points of each job, which an image may lack.
        "tmpfs": dict.fromkeys(("/code", "/src", "/rundir", "/tmp"), "size=1m,mode=755"),
        "mem_limit": memory_mb << 20,
        "memswap_limit": memory_mb << 20,
        "pids_limit": processes,
        "nano_cpus": min(CPUS, os.cpu_count() or 1) * 1_000_000_000,
        "log_config": {"Type": "none", "Config": {}},
    }


def remove(api: Any, container: str) -> None:
    """Remove a container with its volumes, if it exists and the engine answers."""
    with contextlib.suppress(Exception):
        api.remove_container(container, force=True, v=True)


@cache
def _profile() -> str:
    """The seccomp profile in Docker's JSON (`seccomp=...`)."""
    names = " ".join((_FILES, _MEMORY, _PROCESSES, _ISOLATION, _EVENTS, _SOCKETS)).split()
    rules: list[dict[str, object]] = [{"names": names, "action": "SCMP_ACT_ALLOW"}]
    for name, values in (("socket", _FAMILIES), ("personality", (0, 0xFFFFFFFF))):
        for value in values:
            first = {"index": 0, "value": value, "op": "SCMP_CMP_EQ"}
            rules.append({"names": [name], "action": "SCMP_ACT_ALLOW", "args": [first]})
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules})
