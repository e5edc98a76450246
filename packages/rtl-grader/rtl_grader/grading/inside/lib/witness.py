"""Loaded by every Python of a job: seeds random generators, and reports simulations and builds to the agent.

The harness itself is not changed. Modules are hooked when they are imported:

- `random` and `numpy` are seeded, since most CVDP harnesses draw their test parameters from an unseeded generator;
- cocotb's results writer reports the start and the results of each simulation over an abstract socket, and
  watches the top level's ports named in RTL_WATCH, to detect a design that never does anything;
- cocotb's runner reports how each build command ended.

Standard library only, with few imports, because this costs time in every process.
"""

import itertools
import os
import sys

import witness_ports

_WATCHED = {
    "random": "_seed_random",
    "numpy": "_seed_numpy",
    "cocotb._xunit_reporter": "_witness_results",
    "cocotb.xunit_reporter": "_witness_results",
    "cocotb_tools.runner": "_witness_builds",
    "cocotb.runner": "_witness_builds",
}
_ADDRESS = "\0rtl-attest"
_MAX_TESTS = 2000
_MAX_TEXT = 2000

simulate = None
"""In a warm process: a function that runs a `vvp` command in a forked simulator, or returns None."""


class _Finder:
    """Finds watched modules through the other finders, and runs the hook after the module is executed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        hook = _WATCHED.pop(name, None)
        if hook is None:
            return None
        if not _WATCHED:
            sys.meta_path.remove(_Finder)
        for finder in sys.meta_path:
            if finder is _Finder:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                execute = spec.loader.exec_module

                def exec_module(module, execute=execute, hook=hook):
                    execute(module)
                    globals()[hook](module)

                try:
                    spec.loader.exec_module = exec_module  # type: ignore[method-assign]
                except AttributeError:
                    return spec
                return spec
        return None


def install():
    """Hook watched modules when they are imported."""
    sys.meta_path.insert(0, _Finder)
    if not os.path.basename(os.path.realpath("/proc/self/exe")).startswith("python"):
        # A new simulator: /proc/self/mem must belong to root, so that the design cannot open it.
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def seed_again():
    """Seed again in a process that was forked after its generators were seeded."""
    for name, hook in (("random", _seed_random), ("numpy", _seed_numpy)):
        if name in sys.modules:
            hook(sys.modules[name])


def _seed():
    text = os.environ.get("RANDOM_SEED") or os.environ.get("COCOTB_RANDOM_SEED") or "0"
    try:
        return int(text) & 0xFFFFFFFF
    except ValueError:
        return 0


def _seed_random(module):
    module.seed(_seed())


def _seed_numpy(module):
    module.random.seed(_seed())


def report(message):
    """Send one message to the agent, if there is one."""
    channel = _connect()
    if channel is not None:
        _tell(channel, message)
        os.close(channel)


def report_tests(tests):
    """Report a simulation that had these tests and that no cocotb looked at."""
    channel = _connect()
    if channel is not None:
        end = {"tests": tests, "digest": None, "changes": 0, "moved": True, "pacer": ""}
        _tell(channel, {"kind": "begin", "file": ""})
        _tell(channel, {"kind": "end", **end})
        os.close(channel)


def _tell(channel, message):
    import json

    data = json.dumps(message).encode() + b"\n"
    try:
        while data:
            data = data[os.write(channel, data) :]
    except OSError:
        return


def _connect():
    import socket

    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.connect(_ADDRESS)
    except OSError:
        channel.close()
        return None
    # A plain descriptor is closed with the process, not with its Python, after which `final` blocks still run.
    return channel.detach()


def _witness_results(module):
    """Wrap XUnitReporter: report `begin` when cocotb opens its results, and `end` with tests and digest
    after it wrote them."""
    reporter = module.XUnitReporter
    construct = reporter.__init__
    write = reporter.write

    def __init__(self, filename="results.xml", **further):
        construct(self, filename, **further)
        self._channel = _connect()
        if self._channel is not None:
            _tell(self._channel, {"kind": "begin", "file": os.path.abspath(filename)})
            self._ports = witness_ports.Ports(os.environ.get("RTL_WATCH", ""))

    def wrapped_write(self):
        write(self)
        if self._channel is None:
            return
        import hashlib

        with open(self.filename, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        cases = itertools.islice(self.results.iter("testcase"), _MAX_TESTS)
        tests = list(map(_test, cases))
        _tell(
            self._channel,
            {"kind": "end", "tests": tests, "digest": digest, **self._ports.report()},
        )

    reporter.__init__ = __init__
    reporter.write = wrapped_write


def _test(case):
    owner = case.get("classname")
    failure = case.find("failure")
    if failure is None:
        failure = case.find("error")
    message = ""
    if failure is not None:
        status = "failed"
        text = failure.get("error_msg") or failure.get("message") or failure.get("msg")
        message = ": ".join(filter(None, (failure.get("error_type"), text)))
    elif case.find("skipped") is not None:
        status = "skipped"
    else:
        status = "passed"
    return {
        "name": "{}.{}".format(owner, case.get("name")),
        "status": status,
        "message": message[:_MAX_TEXT],
        "file": _file_of(owner) or case.get("file") or "",
        "ns": case.get("sim_time_ns") or "",
    }


def _file_of(module):
    """The file of a test's module, since the report's is cocotb's own for parametrised and generated tests; for
    a library of this Python, whose folder no job can write, its path there after `library:`."""
    import sysconfig

    file = os.path.realpath(getattr(sys.modules.get(module), "__file__", None) or "/")
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        if file.startswith(os.path.realpath(folder) + "/") and not os.access(folder, os.W_OK):
            return f"library:{os.path.relpath(file, os.path.realpath(folder))}"
    return "" if file == "/" else file


def _witness_builds(module):
    """Give the runner a `subprocess` whose `run` reports how each build command ended; the rest is unchanged."""
    real = module.subprocess

    class Subprocess:
        def __getattr__(self, name):
            return getattr(real, name)

        @staticmethod
        def run(command, *positional, **named):
            if not _is_build(command):
                code = None
                if simulate is not None and not positional:
                    code = simulate(command, named)
                if code is None:
                    return real.run(command, *positional, **named)
                if named.get("check") and code:
                    raise real.CalledProcessError(code, command)
                return real.CompletedProcess(command, code)
            __tracebackhide__ = True
            _look_into_verilator(real, command, named)
            log = named.get("stdout")
            is_captured = named.get("stderr") is not None or named.get("capture_output")
            is_shown = log is None and not is_captured
            check = named.pop("check", False)
            if is_shown:
                named.update(stdout=real.PIPE, stderr=real.STDOUT)
            result = real.run(command, *positional, **named)
            text = ""
            if is_shown:
                text = result.stdout or ""
                if isinstance(text, bytes):
                    text = text.decode("utf-8", "replace")
                sys.stdout.write(text)
                sys.stdout.flush()
            elif log is not None and isinstance(getattr(log, "name", None), str):
                with open(log.name, errors="replace") as file:
                    text = file.read(1 << 20)
            code = result.returncode
            message = {
                "kind": "build",
                "argv": [str(word)[:300] for word in command][:100],
                "exit_code": code,
                "output": text[-20000:],
                "parameters": [] if code else _changed_parameters(command, named.get("cwd")),
            }
            report(message)
            if check and code:
                raise real.CalledProcessError(code, command)
            return result

    module.subprocess = Subprocess()


def _changed_parameters(command, cwd):
    """Parameters that `iverilog -P top.NAME=VALUE` set without effect, and wrong ones that the harness
    reads back without setting them (RTL_PARAMETERS, see
    packages/rtl-grader/rtl_grader/grading/interface_check.py), each (name, right value, value); and the top
    level's ports, each (name, "", bits).
    """
    words = list(map(str, command))
    settings: dict = {}
    for word in words:
        if word.startswith("-P") and "." in word and "=" in word:
            path, _, value = word[2:].partition("=")
            top, _, name = path.partition(".")
            settings.setdefault(top, {})[name] = value
    demand_text = os.environ.get("RTL_PARAMETERS", "{}")
    if "-o" not in words[:-1] or not (settings or '": [' in demand_text):
        return []
    import json

    import compiled

    output = words[words.index("-o") + 1]
    with open(os.path.join(cwd or ".", output), errors="replace") as file:
        program = file.read()
    changes = []
    for top, own in settings.items():
        changes += compiled.changed_parameters(program, top, own)
    demand = json.loads(demand_text)
    top = demand["top"]
    for name, values in demand.get("values", {}).items():
        if values and name not in settings.get(top, {}):
            right = list(map(str, values))
            further = compiled.changed_parameters(program, top, {name: right[0]})
            changes += [change for change in further if change[2] not in right]
    return changes + [(name, "", bits) for name, bits in compiled.port_widths(program, top)]


def _look_into_verilator(subprocess, command, named):
    """Check a design's text before Verilator compiles it to C++."""
    words = list(map(str, command))
    if "verilator" not in map(os.path.basename, words[:2]) or "--lint-only" in words:
        return
    import gate

    place = {key: named[key] for key in ("cwd", "env") if key in named}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    result = subprocess.run([*words, "-E", "-P"], **output, **place)
    text = result.stdout.decode("utf-8", "replace")
    gate.stop_if_refused_text(text, named.get("env") or os.environ)


def _is_build(command):
    if not isinstance(command, (list, tuple)) or not command:
        return False
    names = [os.path.basename(str(word)) for word in command[:2]]
    return names[0] in ("iverilog", "verilator") or names == ["perl", "verilator"]
