"""Collects the reports of a job's simulators and builds, and checks the results files. Standard library only.

The simulator's Python (lib/witness.py) reports over an abstract Unix socket, which HDL cannot open or name
as a file. After the simulator has ended, the results file is compared with what cocotb wrote, to detect
`final` blocks that replace it.
"""

import hashlib
import json
import os
import socket

ADDRESS = "\0rtl-attest"
"""The same as in lib/witness.py, which the agent does not import."""
MAX_MESSAGE = 8 << 20
MAX_SESSIONS = 1000
MAX_RESULTS_FILE = 16 << 20


def listen():
    """Return the non-blocking socket for reports."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(ADDRESS)
    server.listen(64)
    server.setblocking(False)
    return server


class Reports:
    """Reports of simulators and build commands during one step."""

    def __init__(self):
        self.sessions = []
        self.builds = []
        self.refused = []
        self.started = []
        self.still = False
        self.buffers = {}

    def begin(self, connection):
        self.buffers[connection] = {"data": bytearray(), "session": None}

    def receive(self, connection):
        """Read from a connection; return False if it has ended."""
        state = self.buffers[connection]
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
        kind = message["kind"]
        if kind == "build":
            self.builds.append(
                {key: message[key] for key in ("argv", "exit_code", "output", "parameters")}
            )
        elif kind == "started":
            self.started.append(message["programs"])
        elif kind == "still":
            self.still = True
        elif kind == "refused":
            self.refused += [str(reason) for reason in message["reasons"]]
        elif kind == "begin" and len(self.sessions) < MAX_SESSIONS:
            state["session"] = {
                "results_file": message["file"],
                "complete": False,
                "forged": False,
                "tests": [],
                "changes": 0,
                "moved": True,
                "pacer": "",
            }
            self.sessions.append(state["session"])
        elif kind == "end" and state["session"] is not None:
            facts = {
                key: message[key] for key in ("tests", "digest", "changes", "moved", "pacer")
            }
            state["session"].update(facts, complete=True)

    def end(self, connection):
        state = self.buffers.pop(connection, None)
        connection.close()
        if state and state["session"]:
            session = state["session"]
            actual = digest(session["results_file"])
            reported = session.pop("digest", None)
            session["forged"] = actual not in (None, reported)

    def close(self):
        for connection in list(self.buffers):
            self.end(connection)


def digest(path):
    """SHA-256 of a results file; None if it does not exist, `?` if cocotb cannot have written it."""
    try:
        if os.path.islink(path) or not os.path.isfile(path):
            if os.path.lexists(path):
                return "?"
            return None
        if os.path.getsize(path) > MAX_RESULTS_FILE:
            return "?"
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return "?"
