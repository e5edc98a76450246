"""An interactive shell in the workspace of a job, on the sandbox's standard streams. Standard library only.

    RTL_CONTROL_FD=N python -E -s -S shell.py          in a bubblewrap sandbox
    RTL_CONTROL_SOCKET=PATH python -E -s -S shell.py   as process 1 of a container

Mounts, files, user and limits are the same as for grading (agent.py), but simulators' reports are ignored.
"""

import contextlib
import fcntl
import os
import signal
import sys
import termios

import agent
import namespaces


def main():
    control = agent.control_socket()
    job = agent.receive(control)
    control.close()
    agent.enter(job)
    # Process 1 of the job: when it ends, all processes that the shell left behind end.
    first = os.fork()
    if first == 0:
        shell = os.fork()
        if shell == 0:
            become_shell(job)
        end_like(shell)
    end_like(first)


def become_shell(job):
    step = job["steps"][0]
    program = step["argv"][0]
    try:
        os.setsid()
        # Ignored if the program was started in the background; the shell's children would inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if os.isatty(0):
            with contextlib.suppress(OSError):  # terminal of another session: no job control
                fcntl.ioctl(0, termios.TIOCSCTTY, 1)  # in a container, taken from process 1
        os.closerange(3, 1024)
        namespaces.limit(job["limits"])
        namespaces.become(job["uid"])
        os.chdir(step["cwd"])
        os.execvpe(program, step["argv"], step["env"])
    except OSError as error:
        sys.stderr.write(f"{program}: {error}\n")
        sys.stderr.flush()
        os._exit(127)


def end_like(pid):
    """Wait for a process and exit as it did."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


main()
