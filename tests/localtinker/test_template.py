"""The template process, from which sampling processes are forked."""

import subprocess
import sys

MANY_DEATHS = """
import os, signal, time
from rtl_core.localtinker.template import Template

template = Template(lambda connection: connection.poll(None))
killed = 0
while killed < 300:
    connections = [template.fork() for _ in range(6)]
    time.sleep(0.01)
    with open(f"/proc/{template.pid}/task/{template.pid}/children") as children:
        copies = [int(pid) for pid in children.read().split()]
    for pid in copies:
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            pass
    for connection in connections:
        connection.close()
pid = template.pid
template.close()
print("left" if os.path.exists(f"/proc/{pid}") else "gone")
"""


def test_it_survives_the_simultaneous_death_of_copies():
    """In a separate process, because this one has threads."""
    done = subprocess.run([sys.executable, "-c", MANY_DEATHS], capture_output=True, text=True, timeout=600)
    assert done.stdout == "gone\n", done.stderr[-2000:]


FAILURE = """
from rtl_core.localtinker.template import Template

template = Template(lambda connection: 1 / 0)
for _ in range(2):
    try:
        template.fork().recv()
    except EOFError:
        print("ended")
template.close()
print("the service goes on")
"""


def test_a_copy_that_fails_ends_without_running_the_parents_code():
    done = subprocess.run([sys.executable, "-c", FAILURE], capture_output=True, text=True, timeout=600)
    assert done.stdout.splitlines() == ["ended", "ended", "the service goes on"], done.stderr[-2000:]
    assert done.stderr.count("ZeroDivisionError: division by zero") == 2
