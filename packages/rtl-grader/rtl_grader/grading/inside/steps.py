"""Runs the steps of one job as process 1 of its own process namespace. Standard library only."""

import base64
import contextlib
import json
import os
import select
import selectors
import signal
import socket
import stat
import time
import traceback
import zlib

import attestation
import namespaces
from process_table import all_asleep, cpu_of_children, kill_all, oom_kills, reap_all, usage

WATCH_EVERY_S = 0.1
WAVES = "/tmp/rtl-waves"
MAX_WAVES = 256 << 20
"""Maximum bytes of waves to return. The last simulations come first; the waves that reach the limit are cut off."""


class Output:
    """The beginning and the end of a step's output."""

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
        gap = self.total - len(self.head) - len(tail)
        middle = b""
        if gap:
            middle = b"\n[... %d bytes left out ...]\n" % gap
        return (bytes(self.head) + middle + tail).decode("utf-8", "replace")


def run_steps(job, launch=None):
    """Run the steps in order and yield the result of each. `launch` may start them from warm memory."""
    server = None
    if job["trusted"]:
        server = attestation.listen()
    for step in job["steps"]:
        result = Running(job, step, server, launch).to_end()
        yield result
        if result["overrun"] or (job["stop_at_failure"] and result["exit_code"] != 0):
            # A job that exceeded a limit has failed; further services would only cost as much again.
            break
    if server is not None:
        server.close()


def waves(job):
    """The waves of a job's simulations, in the order of their starts: [{modules, vcd: compressed text}]."""
    results: list = []
    room = MAX_WAVES
    is_folder = os.path.isdir(WAVES) and not os.path.islink(WAVES)
    if not job["waves"] or not is_folder:
        return results
    for name in sorted(os.listdir(WAVES), reverse=True):
        if name.endswith(".vcd") and room > 0:
            compressor = zlib.compressobj(1)
            data = b""
            try:
                with plain(f"{WAVES}/{name}") as file:
                    while part := file.read(min(room, 1 << 20)):
                        data += compressor.compress(part)
                        room -= len(part)
                with plain(f"{WAVES}/{name[:-3]}json") as file:
                    modules = json.loads(file.read(1 << 20))
            except (OSError, ValueError):
                continue  # a simulator was killed between the two, or a harness put something else there
            vcd = base64.b64encode(data + compressor.flush()).decode()
            results.append({"vcd": vcd, "modules": modules})
    return results[::-1]


def plain(path):
    """Open an untrusted file; refuse links and pipes."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(f"{path} is no file")
    return os.fdopen(opened, "rb")


class Running:
    """A running step: an event loop over its output, its end, its simulators and their reports. Its
    processes end with it.

    The limits do not depend on the load of the machine. All processes together may use `cpu_s` seconds of
    CPU, or the job's `budget_s` if given; then they may not all sleep for that long at a stretch either.
    `wall_s` counts the time in which they compute or all sleep; time spent waiting for the machine is not
    counted, up to the job's `longest_s`.

    Not counted: ended children of a process that ignores SIGCHLD. No simulator, compiler or shell does.
    """

    def __init__(self, job, step, server, launch):
        self.job = job
        self.step = step
        self.server = server
        self.launch = launch
        self.limits = job["limits"]
        self.budget_s = job["budget_s"]
        self.own = {int(os.readlink("/proc/self")), *job["own"]}
        self.start = time.monotonic()
        self.cpu_before = cpu_of_children()
        self.cpu_s = self.counted_s = self.asleep_s = self.longest_sleep_s = 0.0
        self.reading, writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.output = Output(self.limits["output_kb"] << 10)
        self.reports = attestation.Reports()
        self.status = self.overrun = None
        self.last_check = self.start
        self.killed_before = oom_kills()
        self.simulators = {}
        self.selector = selectors.DefaultSelector()
        requests = None
        if launch:
            self.pid, requests = launch.start(job, step, writing)
        else:
            self.pid = start(job, step, writing)
        os.close(writing)
        self.register(self.reading, self.on_output)
        if server is not None:
            self.register(server, self.on_connection)
        self.register(os.pidfd_open(self.pid), self.on_end)
        if requests is not None:
            self.register(requests, self.on_request)
        self.pipe_open = True

    def register(self, source, react):
        """Call `react(source)` whenever the source can be read."""
        self.selector.register(source, selectors.EVENT_READ, react)

    def to_end(self):
        events: list = []
        while self.is_open() or self.on_connection(None):
            if self.status is None:
                self.watch(had_event=bool(events))
                if self.output.total > self.limits["output_mb"] << 20:
                    self.overrun = self.overrun or "output"
                if self.overrun:
                    kill_all()
                    self.status = os.waitpid(self.pid, 0)[1]
                    continue
            events = self.selector.select(WATCH_EVERY_S if self.status is None else 0.25)
            for key, _ in events:
                key.data(key.fileobj)
        kill_all()
        reap_all()
        self.reports.close()
        for key in list(self.selector.get_map().values()):
            if key.fileobj is not self.server:
                self.close(key.fileobj)
        self.selector.close()
        return self.result()

    def is_open(self):
        """Whether the step runs or its output or reports have not been read to their ends."""
        return self.status is None or self.pipe_open or self.reports.buffers

    def watch(self, had_event):
        """Check memory, processes and time. The kernel kills what grows faster than these checks.

        `had_event`: there was an event, so the processes may have slept only until we handled it.
        """
        now = time.monotonic()
        interval = now - self.last_check
        if interval < WATCH_EVERY_S:
            return
        self.last_check = now
        count, memory, cpu_s = self.look()
        most_s = self.budget_s or self.limits["cpu_s"]
        if cpu_s > most_s:
            # A process that ended meanwhile may have been counted twice, with its parent.
            cpu_s = min(cpu_s, self.look()[2])
        computed = cpu_s - self.cpu_s
        self.cpu_s = max(cpu_s, self.cpu_s)
        asleep = not had_event and computed <= 0 and all_asleep(self.own)
        # Count at most two intervals as sleep: if this check is late, the machine was busy.
        time_s = min(interval, 2 * WATCH_EVERY_S if asleep else computed)
        self.counted_s += time_s
        self.asleep_s = self.asleep_s + time_s if asleep else 0.0
        self.longest_sleep_s = max(self.longest_sleep_s, self.asleep_s)
        if memory > self.limits["memory_mb"] << 20 or oom_kills() > self.killed_before:
            self.overrun = "memory"
        elif count > self.limits["processes"] + 16:
            self.overrun = "processes"
        elif self.cpu_s > most_s:
            self.overrun = "cpu"
        elif self.budget_s and self.asleep_s > self.budget_s:
            self.overrun = "asleep"
        elif self.counted_s > self.limits["wall_s"] or now - self.start > self.job["longest_s"]:
            self.overrun = "wall"

    def look(self):
        """(processes, resident bytes, CPU seconds) of the step."""
        ended = cpu_of_children()
        count, memory, cpu_s = usage(self.own)
        return count, memory, ended - self.cpu_before + cpu_s

    def result(self):
        assert self.status is not None
        exit_code = os.waitstatus_to_exitcode(self.status)
        if exit_code != 0 and oom_kills() > self.killed_before:
            self.overrun = self.overrun or "memory"
        if exit_code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
            self.overrun = self.overrun or "cpu"
        return {
            "name": self.step["name"],
            "exit_code": None if self.overrun else exit_code,
            "output": self.output.text(),
            "wall_s": time.monotonic() - self.start,
            "cpu_s": max(self.cpu_s, cpu_of_children() - self.cpu_before),
            "asleep_s": self.longest_sleep_s,
            "overrun": self.overrun,
            "sessions": self.reports.sessions,
            "builds": self.reports.builds,
            "refused": self.reports.refused,
            "started": self.reports.started,
            "still": self.reports.still,
        }

    def close(self, source):
        """Unregister, then close: a fork may still hold the descriptor."""
        self.selector.unregister(source)
        if isinstance(source, int):
            os.close(source)
        else:
            source.close()

    def on_output(self, reading):
        try:
            data = os.read(reading, 1 << 16)
        except BlockingIOError:
            return
        if data:
            self.output.add(data)
        else:
            self.close(reading)
            self.pipe_open = False

    def on_connection(self, _):
        """Accept a waiting connection; return whether there was one."""
        if self.server is None:
            return False
        try:
            connection = self.server.accept()[0]
        except OSError:
            return False
        connection.setblocking(False)
        self.reports.begin(connection)
        self.register(connection, self.on_report)
        return True

    def on_report(self, connection):
        if not self.reports.receive(connection):
            self.selector.unregister(connection)
            self.reports.end(connection)

    def on_request(self, requests):
        pid = self.launch.simulate(self.job, requests)
        if pid is None:
            self.close(requests)
            return
        handle = os.pidfd_open(pid)
        self.simulators[handle] = (pid, requests)
        self.register(handle, self.on_simulator)

    def on_simulator(self, handle):
        """A simulator has ended: read its reports before the runner may continue."""
        self.close(handle)
        pid, requests = self.simulators.pop(handle)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == -signal.SIGXCPU:
            self.overrun = self.overrun or "cpu"
        while self.on_connection(None):
            pass
        for connection in list(self.reports.buffers):
            while connection in self.reports.buffers:
                readable, _, _ = select.select([connection], [], [], 0)
                if not readable:
                    break
                self.on_report(connection)
        with contextlib.suppress(OSError):
            requests.send(str(code).encode())

    def on_end(self, handle):
        self.close(handle)
        if self.status is None:
            self.status = os.waitpid(self.pid, 0)[1]
            # Processes that the step left behind end with it, and so does its pipe.
            kill_all()


def start(job, step, writing):
    """Start a step as a new program; return its process id."""
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
    """Set session, output, limits, user and directory of the calling process for a step.

    `writing`, unless None, becomes its output and errors. All other descriptors are closed except the
    socket `keep`, which is returned as a new socket.
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
    namespaces.limit(job["limits"])
    namespaces.become(job["uid"])
    os.chdir(step["cwd"])
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
            signal.signal(number, signal.SIG_DFL)
    if keep is None:
        return None
    return socket.socket(fileno=3)
