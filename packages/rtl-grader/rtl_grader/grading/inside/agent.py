"""The agent of a sandbox: receives jobs over a socket and runs each in its own namespaces and workspace, one at a time.

    RTL_CONTROL_FD=N python -E -s -S agent.py          in a bubblewrap cell
    RTL_CONTROL_SOCKET=PATH python -E -s -S agent.py   as process 1 of a container

Standard library only. Each job runs in a forked child, which enters new namespaces for mounts, IPC and
processes, writes the files to a size-limited tmpfs, and runs the steps below a process 1 whose end ends
them all. The agent ends when the other end of its socket is closed for any reason.
"""

import json
import os
import signal
import socket
import traceback
from multiprocessing.connection import Connection, Pipe, wait

import namespaces
import steps

WORKSPACE = "/code"
DIRECTORIES = ("docs", "rundir", "rtl", "verif", "src")
FIRST_UID = 61000
USERS = 1 << 30
"""Range of the users that jobs run as if the agent is root; a user namespace of 65,536 has fewer."""
SHARED = ("/control", "/dev/mqueue")
"""Directories of a container that outlive a job, and are hidden from it."""


def receive(control):
    """Return one message, or None if the other end is closed."""
    try:
        return json.loads(control.recv_bytes())
    except (EOFError, OSError):
        return None


def send(control, message):
    control.send_bytes(json.dumps(message).encode())


def control_socket():
    """Return the socket to the executor: inherited in a bubblewrap cell, the first connection at a path in
    a container."""
    path = os.environ.get("RTL_CONTROL_SOCKET")
    if path is None:
        return Connection(int(os.environ["RTL_CONTROL_FD"]))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        os.chmod(path, 0o666)
        server.listen(1)
        control = Connection(server.accept()[0].detach())
    os.unlink(path)
    return control


def serve(launch=None):
    """Serve jobs until the other end is closed."""
    if os.uname().machine not in namespaces.MACHINES:
        raise RuntimeError(
            f"system calls of {os.uname().machine} are not known here, so no step could be confined"
        )
    control = control_socket()
    namespaces.prctl(namespaces.PR_SET_DUMPABLE, 0)
    send(control, {"ready": True, "pid": os.getpid()})
    while True:
        job = receive(control)
        if job is None:
            return
        child = os.fork()
        if child == 0:
            try:
                run_job(job, control, launch)
            except Exception:
                send(control, {"error": traceback.format_exc(limit=4)})
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            send(control, {"error": "the job's supervisor was killed"})


def run_job(job, control, launch):
    """In a child of the agent: isolate, prepare the workspace, run the job, and answer."""
    # Process ids in this /proc that are not part of the job: the cell's first process, the agent and this process.
    job["own"] = (1, os.getppid(), os.getpid())
    enter(job)
    reading, writing = Pipe(duplex=False)
    first = os.fork()
    if first == 0:
        reading.close()
        control.close()
        _first_process(job, writing, launch)
    writing.close()
    _supervise(control, first, reading)


def enter(job):
    """Enter new namespaces with the job's workspace, and choose its user."""
    as_root = os.geteuid() == 0
    job["uid"] = own_uid() if as_root else None
    namespaces.isolate(in_user_namespace=not as_root)
    prepare(job)


def own_uid(uid_map="/proc/self/uid_map"):
    """Choose a user for one job. The kernel limits processes per user: jobs of other runs must not count
    against this one."""
    with open(uid_map) as file:
        ranges = [list(map(int, line.split())) for line in file]
    end = max(first + count for first, _, count in ranges)
    number = int.from_bytes(os.urandom(8), "little")
    return FIRST_UID + number % min(USERS, end - FIRST_UID)


def prepare(job):
    """Mount and fill the workspace. The harness overrides other files; `src` is read-only at every mount."""
    disk_mb = job["limits"]["disk_mb"]
    uid = job["uid"]
    keep = job["prefixes"]
    namespaces.tmpfs(WORKSPACE, disk_mb, keep=keep)
    for place, size_mb in (("/tmp", disk_mb), ("/rundir", 16), ("/dev/shm", min(64, disk_mb))):
        namespaces.tmpfs(place, size_mb, mode="1777", keep=keep)
    for shared in SHARED:
        if os.path.isdir(shared):
            namespaces.tmpfs(shared, 1, mode="700")
    for name in DIRECTORIES:
        os.mkdir(WORKSPACE + "/" + name)
    for files in (job["files"], job["harness"]):
        write_files(files)
    if uid is not None:
        for name in DIRECTORIES:
            if name != "src":
                _give(WORKSPACE + "/" + name, uid)
    source = WORKSPACE + "/src"
    namespaces.bind(source, source, True)
    for volume in job["mounts"]:
        folder = volume["source"]
        target = volume["target"]
        read_only = volume["read_only"] or folder.split("/")[0] == "src"
        inside = f"{WORKSPACE}/{folder}"
        if os.path.normpath(inside) != os.path.normpath(target):
            os.makedirs(target, exist_ok=True)
            namespaces.bind(inside, target, read_only)
    namespaces.protect_processes()


def write_files(files):
    for path, text in files.items():
        is_plain = path == os.path.normpath(path)
        if not is_plain or path.startswith("/") or path.split("/")[0] in ("..", "."):
            raise ValueError(f"path outside the workspace: {path!r}")
        full = WORKSPACE + "/" + path
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(text)


def _give(top, uid):
    os.chown(top, uid, uid)
    for directory, names, files in os.walk(top):
        for name in names + files:
            os.lchown(os.path.join(directory, name), uid, uid)


def _first_process(job, writing, launch):
    """Process 1 of the job. If root, it stays root, so that no step can signal it."""
    namespaces.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        results = list(steps.run_steps(job, launch))
        send(writing, {"steps": results, "waves": steps.waves(job)})
    except Exception:
        # Not BaseException: a fork that becomes a simulator unwinds through here.
        send(writing, {"error": traceback.format_exc(limit=4)})
    os._exit(0)


def _supervise(control, first, reading):
    """Wait for process 1 of the job and send the answer; kill the job if the executor closes its end."""
    if control in wait([reading, control]):
        os.kill(first, signal.SIGKILL)
        os._exit(0)
    answer = receive(reading)
    os.waitpid(first, 0)
    send(control, answer or {"error": "process 1 of the job was killed"})


if __name__ == "__main__":
    serve()
