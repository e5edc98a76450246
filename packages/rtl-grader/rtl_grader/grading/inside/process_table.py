"""The processes of a sandbox, from /proc, and their ends. Standard library only."""

import contextlib
import os
import resource
import signal


def usage(own):
    """(processes, resident bytes, CPU seconds with ended children) of all processes except `own`; a sandbox
    runs one job at a time. Parents are read before their younger children, so that none is counted twice.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    tick = os.sysconf("SC_CLK_TCK")
    count = memory = ticks = 0
    for pid in processes(own):
        try:
            ticks += sum(map(int, stat_of(pid)[11:15]))
            with open(f"/proc/{pid}/statm", "rb") as file:
                fields = file.read().split()
            memory += (int(fields[1]) - int(fields[2])) * page
            count += 1
        except (OSError, IndexError):
            continue
    return count, memory, ticks / tick


def all_asleep(own):
    """Whether no thread of a process outside `own` computes or waits for a processor (R) or a disk (D)."""
    for pid in processes(own):
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                if stat_of(f"{pid}/task/{thread}")[0] in (b"R", b"D"):
                    return False
    return True


def stat_of(process):
    """The fields of a process' or thread's `stat` in /proc after its name. The first one is its state."""
    with open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def processes(own):
    """Ids of all processes except `own`, the oldest first."""
    numbers = filter(str.isdigit, os.listdir("/proc"))
    return sorted(set(map(int, numbers)) - own)


def oom_kills():
    """Number of processes of this container that the kernel killed for memory; 0 without a cgroup of its own."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            kills = (line for line in file if line.startswith("oom_kill "))
            return sum(int(line.split()[1]) for line in kills)
    return 0


def cpu_of_children():
    """CPU seconds of all ended children and their descendants."""
    total = resource.getrusage(resource.RUSAGE_CHILDREN)
    return total.ru_utime + total.ru_stime


def kill_all():
    """Kill every other process of this namespace, which `-1` means for process 1."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def reap_all():
    """Wait for every killed process; only then is their CPU time known."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
