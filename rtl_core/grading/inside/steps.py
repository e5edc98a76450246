"""Runs the steps of one job as process 1 of its own process namespace. Standard library only.

The results of a simulation are attested here: the simulator's own Python (lib/sitecustomize.py) reports over an
abstract Unix socket, which HDL can neither open nor name as a file. When the simulator is gone, the results file is
compared with what cocotb had written; a `final` block that wrote another one is found out.
"""

import contextlib
import hashlib
import json
import os
import resource
import selectors
import signal
import socket
import time
import traceback

import namespaces

ATTEST_ADDRESS = "\0rtl-attest"
MAX_MESSAGE = 8 << 20
MAX_SESSIONS = 1000
MAX_RESULTS_FILE = 16 << 20


class Output:
    """The beginning and the end of what a step wrote."""

    def __init__(self, keep):
        self.half = keep // 2
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0

    def add(self, data):
        self.total += len(data)
        room = self.half - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        if len(self.tail) > 4 * self.half:
            del self.tail[: -self.half]

    def text(self):
        tail = bytes(self.tail[-self.half :])
        cut = self.total - len(self.head) - len(tail)
        middle = b"\n[... %d bytes left out ...]\n" % cut if cut else b""
        return (bytes(self.head) + middle + tail).decode("utf-8", "replace")


class Witness:
    """Collects what simulators and build commands report during one step."""

    def __init__(self):
        self.sessions = []
        self.builds = []
        self.buffers = {}

    def receive(self, connection):
        """Takes what a connection has to say; False when it has ended."""
        state = self.buffers.setdefault(connection, {"data": bytearray(), "session": None})
        try:
            data = connection.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        state["data"] += data
        if not data or len(state["data"]) > MAX_MESSAGE:
            return False
        while b"\n" in state["data"]:
            line, _, rest = bytes(state["data"]).partition(b"\n")
            state["data"] = bytearray(rest)
            try:
                self.take(state, json.loads(line.decode()))
            except (ValueError, KeyError, TypeError):
                continue
        return True

    def take(self, state, message):
        if message["kind"] == "build":
            self.builds.append(
                {"argv": message["argv"], "exit_code": message["exit_code"], "output": message["output"]}
            )
        elif message["kind"] == "begin" and len(self.sessions) < MAX_SESSIONS:
            state["session"] = {"results_file": message["file"], "complete": False, "forged": False, "tests": []}
            self.sessions.append(state["session"])
        elif message["kind"] == "end" and state["session"] is not None:
            state["session"].update(complete=True, tests=message["tests"], digest=message["digest"])

    def end(self, connection):
        state = self.buffers.pop(connection, None)
        connection.close()
        if state and state["session"]:
            session = state["session"]
            found = digest(session["results_file"])
            session["forged"] = found is not None and found != session.pop("digest", None)

    def close(self):
        for connection in list(self.buffers):
            self.end(connection)


def digest(path):
    """SHA-256 of a results file, None when there is none, `?` when it is none that cocotb would write."""
    try:
        if os.path.islink(path) or not os.path.isfile(path):
            return "?" if os.path.lexists(path) else None
        if os.path.getsize(path) > MAX_RESULTS_FILE:
            return "?"
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return "?"


def listen():
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(ATTEST_ADDRESS)
    server.listen(64)
    server.setblocking(False)
    return server


def run_steps(job, report, launch=None):
    """Runs the steps in order and calls `report(result)` after each. `launch` may start them from warm memory."""
    server = listen()
    for step in job["steps"]:
        result = run_step(job, step, server, launch)
        report(result)
        if job["stop_at_failure"] and result["exit_code"] != 0:
            break
    server.close()


def run_step(job, step, server, launch):
    limits = job["limits"]
    started = time.monotonic()
    cpu_before = cpu_of_children()
    deadline = started + limits["wall_s"]
    reading, writing = os.pipe()
    pid, requests = launch.start(job, step, writing) if launch else (start(job, step, writing), None)
    os.close(writing)
    simulators = {}
    os.set_blocking(reading, False)
    output, witness = Output(limits["output_kb"] << 10), Witness()
    ended = os.pidfd_open(pid)
    selector = selectors.DefaultSelector()
    selector.register(reading, selectors.EVENT_READ, "output")
    selector.register(server, selectors.EVENT_READ, "server")
    selector.register(ended, selectors.EVENT_READ, "ended")
    if requests is not None:
        selector.register(requests, selectors.EVENT_READ, "request")
    status = overrun = None
    pipe_open = True
    while status is None or pipe_open or witness.buffers or accept(server, selector, witness):
        left = deadline - time.monotonic()
        if left <= 0 and overrun is None and status is None:
            overrun = "wall"
        if output.total > limits["output_mb"] << 20 and overrun is None:
            overrun = "output"
        if overrun is not None and status is None:
            kill_all()
            status = os.waitpid(pid, 0)[1]
            continue
        for key, _ in selector.select(max(0.0, left) if status is None else 0.25):
            if key.data == "output":
                try:
                    data = os.read(reading, 1 << 16)
                except BlockingIOError:
                    continue
                if data:
                    output.add(data)
                else:
                    selector.unregister(reading)
                    pipe_open = False
            elif key.data == "server":
                accept(server, selector, witness)
            elif key.data == "session":
                connection = key.fileobj
                if not witness.receive(connection):
                    # First out of the selector: a fork may still hold the descriptor that is closed here.
                    selector.unregister(connection)
                    witness.end(connection)
            elif key.data == "request":
                simulator = launch.simulate(job, key.fileobj)
                if simulator is None:
                    selector.unregister(key.fileobj)
                    continue
                handle = os.pidfd_open(simulator)
                simulators[handle] = (simulator, key.fileobj)
                selector.register(handle, selectors.EVENT_READ, "simulator")
            elif key.data == "simulator":
                selector.unregister(key.fd)
                simulator, asker = simulators.pop(key.fd)
                os.close(key.fd)
                with contextlib.suppress(ChildProcessError, OSError):
                    code = os.waitstatus_to_exitcode(os.waitpid(simulator, 0)[1])
                    asker.send(str(code).encode())
            elif key.data == "ended" and status is None:
                status = os.waitpid(pid, 0)[1]
                selector.unregister(ended)
                # Nothing that the step left behind outlives it, and its pipe ends with it.
                kill_all()
    kill_all()
    reap_all()
    witness.close()
    selector.close()
    for handle in (reading, ended, *simulators):
        os.close(handle)
    if requests is not None:
        requests.close()
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code == -signal.SIGXCPU or (exit_code == 128 + signal.SIGXCPU):
        overrun = overrun or "cpu"
    return {
        "name": step["name"],
        "exit_code": None if overrun else exit_code,
        "output": output.text(),
        "wall_s": time.monotonic() - started,
        "cpu_s": cpu_of_children() - cpu_before,
        "overrun": overrun,
        "sessions": witness.sessions,
        "builds": witness.builds,
    }


def cpu_of_children():
    """CPU seconds of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def accept(server, selector, witness):
    """Takes a waiting connection, if there is one; whether there was."""
    try:
        connection = server.accept()[0]
    except OSError:
        return False
    connection.setblocking(False)
    witness.buffers[connection] = {"data": bytearray(), "session": None}
    selector.register(connection, selectors.EVENT_READ, "session")
    return True


def kill_all():
    """Ends every other process of this namespace; as process 1, `-1` reaches them all and nothing else."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def reap_all():
    """Takes the exit status of every child that has ended."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def start(job, step, writing):
    """Starts a step as a fresh program; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        confine(job, step, writing)
        os.execvpe(step["argv"][0], step["argv"], step["env"])
    except FileNotFoundError:
        os.write(2, b"%s: not found\n" % os.fsencode(step["argv"][0]))
        os._exit(127)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        os._exit(126)


def confine(job, step, writing, keep=None):
    """Makes the calling process the one that runs a step: its session, output, limits, user and directory.

    `writing` becomes its output and errors, unless it is None. Everything else is closed, but for the socket `keep`,
    which is returned as a socket of its own.
    """
    os.setsid()
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    if writing is not None:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
    first = 3
    if keep is not None:
        os.dup2(keep.detach(), first, inheritable=False)
        first += 1
    os.closerange(first, 1024)
    namespaces.prctl(namespaces.PR_SET_DUMPABLE, 1)
    namespaces.limit(job["limits"])
    namespaces.become(job["uid"])
    os.chdir(step["cwd"])
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            signal.signal(number, signal.SIG_DFL)
    return None if keep is None else socket.socket(fileno=3)
