"""Child processes of a killed command are ended by the next command, and no other processes are."""

import os
import signal
import subprocess
import sys

import psutil

from rtl_distill.operations import processes
from rtl_distill.operations.processes import OWNER, end_orphans
from tests.waiting import lives, wait_for

# A command that marks itself, starts a child process, prints its id and waits.
COMMAND = """
import subprocess, sys, time
from rtl_distill.operations.processes import mark_this_process
mark_this_process()
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
time.sleep(600)
"""


def start() -> tuple[subprocess.Popen[str], int]:
    environment = {name: value for name, value in os.environ.items() if name != OWNER}
    process = subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def marked_below(pid: int) -> list[int]:
    below = [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return [pid for pid in below if processes.variable(pid, OWNER) is not None]


def test_only_child_processes_of_dead_commands_are_ended():
    killed, orphan = start()
    living, child = start()
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert lives(orphan)
        assert orphan in end_orphans()
        wait_for(lambda: not lives(orphan), "its end")
        assert lives(child)
        assert living.poll() is None
    finally:
        living.kill()
        living.wait()
        os.kill(child, signal.SIGKILL)


def test_a_command_in_a_container_keeps_its_child_processes():
    """Outside the container its process ids are different, so the command looks dead."""
    box = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent"]
    environment = {name: value for name, value in os.environ.items() if name != OWNER}
    command = [*box, sys.executable, "-c", COMMAND]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            # A new process has no environment for a moment.
            inside = wait_for(lambda: marked_below(process.pid), "the child's mark")
            assert not set(inside) & set(end_orphans())
            assert all(lives(pid) for pid in inside)
        finally:
            process.kill()
