"""What holds every container of the Docker executor: its limits, and what it may ask of the kernel.

The agent keeps the capabilities that it needs to give each job mounts, processes and a user of its own; the job's steps have none
and cannot gain any (inside/namespaces.py). System calls are fewer than Docker's default profile allows: for the machine's own
architecture alone (what calls the kernel by another one is killed), without what no simulator, compiler or Python harness
needs: tracing, other processes' memory, io_uring, performance counters, keys, and every socket but local and Internet ones.
What is refused fails with EPERM. `mount`, `umount2` and `unshare` are for the agent: its steps are refused them and every other way to a
namespace (`refuse_namespaces` there).
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from rtl_core.grading.executors.cells import CAPABILITIES

CPUS = 2

_FILES = """read write open openat openat2 close close_range stat fstat lstat newfstatat statx lseek pread64 pwrite64 readv writev preadv
pwritev preadv2 pwritev2 access faccessat faccessat2 dup dup2 dup3 fcntl flock fsync fdatasync sync syncfs truncate ftruncate getdents
getdents64 getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir creat link linkat unlink unlinkat symlink symlinkat
readlink readlinkat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat umask utime utimes utimensat futimesat mknod mknodat
fallocate fadvise64 readahead sendfile splice tee copy_file_range statfs fstatfs getxattr lgetxattr fgetxattr listxattr llistxattr
flistxattr setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr ioctl memfd_create
inotify_init inotify_init1 inotify_add_watch inotify_rm_watch"""
_MEMORY = """mmap mprotect munmap brk mremap msync mincore madvise mlock mlock2 munlock mlockall munlockall membarrier pkey_alloc pkey_free
pkey_mprotect shmget shmat shmctl shmdt"""
_PROCESSES = """fork vfork clone clone3 execve execveat exit exit_group wait4 waitid kill tkill tgkill getpid gettid getppid getpgrp getpgid setpgid getsid
setsid getrlimit setrlimit prlimit64 getrusage getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid
setregid setresuid setresgid setgroups setfsuid setfsgid capget capset prctl arch_prctl set_robust_list get_robust_list set_tid_address rseq sched_yield
sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler sched_setscheduler sched_setparam sched_get_priority_max sched_get_priority_min
sched_rr_get_interval sched_getattr getpriority setpriority getcpu ioprio_get futex futex_waitv restart_syscall
pidfd_open pidfd_send_signal seccomp uname sysinfo times getrandom"""
_ISOLATION = "mount umount2 unshare"
_EVENTS = """rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo rt_sigsuspend sigaltstack
pause poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd
signalfd4 pipe pipe2 nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time alarm setitimer getitimer timerfd_create
timerfd_settime timerfd_gettime timer_create timer_settime timer_gettime timer_getoverrun timer_delete
semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr"""
_SOCKETS = """connect accept accept4 sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown bind listen getsockname getpeername
socketpair setsockopt getsockopt"""

_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6: within the container, which has no network."""


def host(memory_mb: int, processes: int) -> dict[str, Any]:
    """Arguments of `create_host_config`."""
    return {
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "cap_add": list(CAPABILITIES),
        # AppArmor's profile for containers refuses every mount.
        "security_opt": ["no-new-privileges", "apparmor=unconfined", f"seccomp={_profile()}"],
        "read_only": True,
        # So that every image has them: what a job mounts its own there.
        "tmpfs": dict.fromkeys(("/code", "/src", "/rundir", "/tmp"), "size=1m,mode=755"),
        "mem_limit": memory_mb << 20,
        "memswap_limit": memory_mb << 20,
        "pids_limit": processes,
        "nano_cpus": min(CPUS, os.cpu_count() or 1) * 1_000_000_000,
        "log_config": {"Type": "none", "Config": {}},
    }


@cache
def _profile() -> str:
    """The profile as Docker takes it (`seccomp=...`)."""
    plain = " ".join((_FILES, _MEMORY, _PROCESSES, _ISOLATION, _EVENTS, _SOCKETS)).split()
    rules: list[dict[str, object]] = [{"names": plain, "action": "SCMP_ACT_ALLOW"}]
    for name, firsts in (("socket", _FAMILIES), ("personality", (0, 0xFFFFFFFF))):
        arguments = ([{"index": 0, "value": value, "op": "SCMP_CMP_EQ"}] for value in firsts)
        rules += [{"names": [name], "action": "SCMP_ACT_ALLOW", "args": given} for given in arguments]
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": rules})
