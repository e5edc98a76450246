"""Warm starts: programs and simulators are forked from a process that has already imported what every job imports.

The cell's main process is `vvp` with cocotb's VPI library. vvp loads the library, and with it Python, before it opens a
design. Our sitecustomize (warm/) stops it there, imports pytest, cocotb and the runner, and serves jobs.
Process 1 of a job is a fork of it that runs no code of the harness. Forks of process 1 are

- the program: `pytest ...` or `python3 script`, run instead of a new interpreter, and
- each simulator: when the program's runner calls `vvp design`, a fork overwrites vvp's arguments with the
  design's path, returns from sitecustomize, and continues as vvp.

So both start from the same memory, within the job's namespaces and limits, and their changes end with them.
Everything else (other programs, settings that are read at import, modules that shadow the standard library)
is started as in a cold cell.
"""

import atexit
import ctypes
import gc
import importlib.machinery
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import traceback

import gate
import preload
import process_table
import steps
import witness

SLOT = 250
SLOTS = 16
DESIGN_SLOT = 1000
MAX_MESSAGE = 1 << 20
_SHELLS = tuple([shell, "-c"] for shell in ("sh", "bash", "/bin/sh", "/bin/bash"))
_SHELL = set("|&;<>()$`\\\"'*?[]#~%!{}\n")
_OURS = "COCOTB_RANDOM_SEED LIBPYTHON_LOC PYTHONPATH PYTHONHASHSEED PYTHONDONTWRITEBYTECODE"
_READ_AT_IMPORT = ("COCOTB_", "GPI_", "PYGPI_", "LIBPYTHON", "PYTHON", "COVERAGE")
_MODULES = tuple(importlib.machinery.all_suffixes())
_RUN_ARGUMENTS = {"cwd", "env", "check", "stdout", "stderr"}
"""Arguments of `subprocess.run` that a request for a simulator can express."""


class BecomeSimulator(BaseException):
    """Raised in a new fork of process 1; unwinds to `serve`, which continues as vvp."""

    def __init__(self, plan):
        super().__init__()
        self.plan = plan


def serve():
    """Serve jobs. Returns only in a process that continues as a simulator."""
    atexit.register(preload.keep_shared_modules)  # registered first, called last
    import agent

    base = [entry for entry in sys.path if not entry.startswith("/guard")]
    place = _argument_place()
    witness.install()
    preload.preload()
    try:
        agent.serve(Launcher(base))
    except BecomeSimulator as order:
        plan = order.plan
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    else:
        os._exit(0)
    # Free process 1's sockets now: later they would close descriptors that the simulator has reused.
    gc.collect()
    _become_simulator(plan, base, place)


class Launcher:
    """Starts steps from warm memory if this is equivalent to a new process."""

    def __init__(self, base):
        import cocotb_tools.config

        self.base = base
        # The command of this process, without the design.
        self.prefix = [
            "vvp",
            "-M",
            str(cocotb_tools.config.libs_dir),
            "-m",
            "libcocotbvpi_icarus",
        ]

    def start(self, job, step, writing):
        """Start a step; return (process id, socket for simulator requests or None)."""
        program = _program(step)
        if program is None or not step["warm"] or not _same_as_fresh(step, program, self.base):
            return steps.start(job, step, writing), None
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            _run_program(job, step, program, self, writing, theirs)
        theirs.close()
        return pid, ours

    def simulate(self, job, requests):
        """Read one request and fork the simulator; return its process id, or None if there was no request."""
        try:
            data, descriptors, _, _ = socket.recv_fds(requests, MAX_MESSAGE, 2)
            while data and data[-1:] != b"\n":  # a long request comes in parts
                part = requests.recv(MAX_MESSAGE)
                data = data + part if part else b""
        except ConnectionResetError:
            # The program was killed before it read its last simulator's exit code.
            return None
        if not data:
            return None
        pid = os.fork()
        if pid == 0:
            out, error = descriptors
            raise BecomeSimulator({**json.loads(data), "job": job, "out": out, "err": error})
        for descriptor in descriptors:
            os.close(descriptor)
        return pid


def _program(step):
    """Parse a command as (kind, arguments); None if it is not a Python program that a fork can run."""
    argv = list(step["argv"])
    if len(argv) == 3 and argv[:2] in _SHELLS:
        if _SHELL & set(argv[2]):
            return None
        argv = shlex.split(argv[2])
    if not argv or "=" in argv[0]:
        return None
    program, *arguments = argv
    if program in ("pytest", "py.test"):
        return "pytest", arguments
    if program not in ("python", "python3"):
        return None
    if arguments[:2] == ["-m", "pytest"]:
        return "module", arguments[2:]
    if arguments and os.path.isfile(os.path.join(step["cwd"], arguments[0])):
        return "script", arguments
    return None


def _same_as_fresh(step, program, base):
    """Whether no setting that is read at import differs, and no module shadows one of the interpreter."""
    others = set(step["env"]).difference(step["own"], _OURS.split())
    if any(name.startswith(_READ_AT_IMPORT) for name in others):
        return False
    modules = _modules_ahead(step["env"], step["cwd"], base, program)
    return sys.stdlib_module_names.isdisjoint(modules)


def _modules_ahead(environment, cwd, base, program=None):
    """Names of modules in the directories ahead of the interpreter's own."""
    places = [*environment.get("PYTHONPATH", "").split(":"), cwd]
    if program and program[0] == "script":
        script = os.path.join(cwd, program[1][0])
        places.append(os.path.dirname(script))
    names = set()
    for place in places:
        if place and place not in base and not place.startswith("/guard"):
            try:
                entries = os.listdir(place)
            except OSError:
                continue
            for entry in entries:
                # `trace.json` is no module; a folder is.
                name, *rest = entry.split(".", 1)
                if not rest or entry.endswith(_MODULES):
                    names.add(name)
    return names


def _adopt(environment, names, search_path):
    """Take over variables and a search path as a new process would, and seed again. Modules whose names the
    harness uses are unloaded, so that its own are imported."""
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = search_path
    sys.path_importer_cache.clear()
    for name in [loaded for loaded in sys.modules if loaded.split(".")[0] in names]:
        del sys.modules[name]
    witness.seed_again()


def _search_path(environment, base, first=None):
    entries = environment.get("PYTHONPATH", "").split(":") + base
    absolute = map(os.path.abspath, filter(None, entries))
    return ([] if first is None else [first]) + list(dict.fromkeys(absolute))


def _run_program(job, step, program, launcher, writing, requests):
    """In a fork: run the program and exit with its exit code."""
    code = 1
    base = launcher.base
    prefix = launcher.prefix
    try:
        requests = steps.confine(job, step, writing, keep=requests)
        kind, arguments = program
        names = _modules_ahead(step["env"], step["cwd"], base, program)
        if kind == "pytest":
            first = os.path.dirname(sys.executable)
        elif kind == "module":
            first = step["cwd"]
        else:
            first = os.path.dirname(os.path.abspath(arguments[0]))
        _adopt(step["env"], names, _search_path(step["env"], base, first))
        if not job["waves"]:  # simulators that dump waves are started by inside/waves
            witness.simulate = _Simulations(requests, prefix)
        if kind == "script":
            sys.argv = list(arguments)
            import runpy

            runpy.run_path(arguments[0], run_name="__main__")
            code = 0
        else:
            import pytest

            place = os.path.join(os.path.dirname(pytest.__file__), "__main__.py")
            if kind == "pytest":
                place = os.path.join(first, "pytest")
            sys.argv = [place, *arguments]
            code = int(pytest.console_main())
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            code = end.code or 0
        else:
            print(end.code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code & 0xFF)


class _Simulations:
    """In the program: requests simulators for `vvp` commands of cocotb's runner from process 1."""

    def __init__(self, requests, prefix):
        self.requests = requests
        self.prefix = prefix

    def __call__(self, command, named):
        """Return the exit code, or None if the command must be run in the ordinary way."""
        words = list(map(str, command))
        design = (words[5:6] or [""])[0]
        plus = words[6:]
        if words[:5] != self.prefix or not named.keys() <= _RUN_ARGUMENTS:
            return None
        size = len(os.fsencode(design))
        if size == 0 or size >= DESIGN_SLOT or design.startswith("-"):
            return None
        sizes = [len(os.fsencode(word)) for word in plus]
        if len(sizes) > SLOTS or max(sizes, default=0) >= SLOT:
            return None
        sys.stdout.flush()
        sys.stderr.flush()
        out = _descriptor(named.get("stdout"), 1)
        error = named.get("stderr")
        error = out if error == subprocess.STDOUT else _descriptor(error, 2)
        if None in (out, error):
            return None
        variables = (named.get("env") or os.environ).items()
        plan = {
            "design": design,
            "plus": plus,
            "env": {str(key): str(value) for key, value in variables},
            "cwd": str(named.get("cwd") or os.getcwd()),
        }
        data = json.dumps(plan).encode() + b"\n"
        if len(data) > MAX_MESSAGE // 8:
            return None
        length = socket.send_fds(self.requests, [data], [out, error])
        self.requests.sendall(data[length:])
        answer = self.requests.recv(64)
        if answer:
            return int(answer)
        return -signal.SIGKILL


def _descriptor(stream, usual):
    """The descriptor of an argument of `subprocess.run`; None if a request cannot express it."""
    if stream is None:
        return usual
    return stream.fileno() if hasattr(stream, "fileno") else None


def _become_simulator(plan, base, place):
    """Set limits, user, output, environment and arguments before vvp continues."""
    job = plan["job"]
    os.dup2(plan["out"], 1)
    os.dup2(plan["err"], 2)
    step = {"cwd": plan["cwd"]}
    names = _modules_ahead(plan["env"], plan["cwd"], base)
    steps.confine(job, step, None)
    _adopt(plan["env"], names, _search_path(plan["env"], base))
    gate.stop_if_refused([plan["design"]], plan["env"])
    _write_arguments(place, plan["design"], plan["plus"])


def _argument_place():
    """(address, length) of this process' command line in memory."""
    start, end = map(int, process_table.stat_of("self")[45:47])
    return start, end - start


def _write_arguments(place, design, plus):
    """Overwrite the slots for design and plusargs in vvp's command line. vvp ignores empty arguments."""
    start, length = place
    words = ctypes.string_at(start, length).split(b"\0")
    at = start + sum(len(word) + 1 for word in words[:5])
    sizes = [DESIGN_SLOT, *[SLOT] * SLOTS]
    words = [design, *plus, *[""] * SLOTS]
    for word, size in zip(words, sizes, strict=False):
        data = os.fsencode(word)
        ctypes.memset(at, 0, size)
        ctypes.memmove(at, data, len(data))
        at += size + 1
