"""In every Python of a grade: fixed seeds, and a witness of what simulators and builds really did.

Nothing of the harness is changed. Modules are watched as they are imported:

- the top level's ports named in RTL_WATCH are watched for change, to tell a design that never does anything;
- `random` and `numpy` are seeded, since most CVDP harnesses draw their test parameters from an unseeded generator;
- cocotb's results writer tells the agent, over an abstract socket, when a simulation begins and what its results are;
- cocotb's runner tells it how each build command ended.

Standard library only; imports are kept few, because this costs time in every process.
"""

import os
import sys

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
"""Set in a warm process: runs a `vvp` command by forking a simulator that has already started, or returns None."""


class _Finder:
    """Finds a watched module by the others' means and runs the hook once it is executed."""

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
    """From here on watched modules are hooked as they are imported."""
    sys.meta_path.insert(0, _Finder)
    if not os.path.basename(os.path.realpath("/proc/self/exe")).startswith("python"):
        _close_memory()


def _close_memory():
    """In a simulator that was started afresh: /proc/self/mem belongs to root from here on, so the design cannot open it."""
    import ctypes

    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def seed_again():
    """For a process that was forked after its generators were seeded."""
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
    """One message to the agent; nobody listens outside of a grade."""
    channel = _connect()
    if channel is not None:
        _tell(channel, message)
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
    # A bare descriptor: it ends with the process, not with its Python, after which `final` blocks still run.
    return channel.detach()


def _witness_results(module):
    """Wraps XUnitReporter: `begin` when cocotb opens its results, `end` with the tests and a digest when it wrote them."""
    reporter = module.XUnitReporter
    construct, write = reporter.__init__, reporter.write

    def __init__(self, filename="results.xml", **further):
        construct(self, filename, **further)
        self._channel = _connect()
        if self._channel is not None:
            _tell(self._channel, {"kind": "begin", "file": os.path.abspath(filename)})
            self._ports = _Ports(os.environ.get("RTL_WATCH", ""))

    def wrapped_write(self):
        write(self)
        if self._channel is None:
            return
        import hashlib

        with open(self.filename, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        tests = [_test(case) for case in list(self.results.iter("testcase"))[:_MAX_TESTS]]
        _tell(self._channel, {"kind": "end", "tests": tests, "digest": digest, **self._ports.report()})

    reporter.__init__, reporter.write = __init__, wrapped_write


class _Ports:
    """Whether the top level's outputs do anything while its inputs move.

    `watch` is `input,...;output,...`. Outputs are looked at when an input changes (rises, if it is a single bit), just before
    the change and at the end of its time step. The first input that has changed `ENOUGH` times sets the pace, and only looks
    at its changes count. That is the clock, where there is one: an echo of it, or a pulse between its edges, is no behaviour.
    An output has moved when two looks of one kind gave two values without unknown bits; then nothing is watched any more.
    """

    ENOUGH = 32

    def __init__(self, watch):
        self.changes = 0
        self.moved = False
        self.pacer = ""
        self.counts: dict[str, int] = {}
        self.before: dict[str, dict[str, str]] = {}
        self.after: dict[str, dict[str, str]] = {}
        self.inputs: dict = {}
        self.outputs: dict = {}
        self.waiting: dict = {}
        if ";" not in watch:
            return
        import cocotb
        from cocotb import simulator

        self.register = simulator.register_value_change_callback
        self.settle = simulator.register_readonly_callback
        self.edge = getattr(simulator, "VALUE_CHANGE", 3)
        inputs, outputs = (part.split(",") for part in watch.split(";"))
        try:
            top = cocotb.top._handle
            self.inputs, self.outputs = (
                {n: top.get_handle_by_name(n) for n in names if n} for names in (inputs, outputs)
            )
        except Exception:
            return
        for handles in (self.inputs, self.outputs):
            for name in [n for n, handle in handles.items() if not hasattr(handle, "get_signal_val_binstr")]:
                del handles[name]
        if self.outputs:
            for name in self.inputs:
                self._wait(name)

    def _wait(self, name):
        try:
            self.waiting[name] = self.register(self.inputs[name], self._changed, self.edge, name)
        except Exception:
            self.waiting.pop(name, None)

    def _changed(self, name):
        self.waiting.pop(name, None)
        if self.moved or self.pacer not in ("", name):
            return
        self.changes += 1
        self.counts[name] = self.counts.get(name, 0) + 1
        value = self.inputs[name].get_signal_val_binstr()
        if self.counts[name] == self.ENOUGH:
            self._set_pace(name)
        if len(value) == 1 and value != "1":
            self._wait(name)
            return
        self._look(name, self.before)
        if not self.moved:
            self.waiting[name] = self.settle(self._settled, name)

    def _set_pace(self, name):
        # Callbacks of the other inputs stay: one that is removed while its time step is under way can crash the simulator.
        self.pacer = name
        self.moved = any("" in kind.get(name, {}).values() for kind in (self.before, self.after))

    def _settled(self, name):
        self.waiting.pop(name, None)
        self._look(name, self.after)
        if not self.moved:
            self._wait(name)

    def _look(self, name, kind):
        """Notes the outputs beside those of earlier looks of this kind; "" stands for one that has had two values."""
        seen = kind.setdefault(name, {})
        for output, handle in self.outputs.items():
            value = handle.get_signal_val_binstr()
            if not set(value) - {"0", "1"} and seen.setdefault(output, value) != value:
                seen[output] = ""
        if self.pacer == name:
            self.moved = "" in seen.values()

    def report(self):
        """What was seen. Callbacks that still wait are taken back: a simulator that ends with them may crash."""
        for callback in self.waiting.values():
            if hasattr(callback, "deregister"):
                callback.deregister()
        self.waiting.clear()
        if not self.pacer:
            # Few changes: whatever two looks found different has moved, whichever input they followed.
            values: dict[str, set[str]] = {}
            for seen in (*self.before.values(), *self.after.values()):
                for output, value in seen.items():
                    values.setdefault(output, set()).add(value)
            self.moved = any("" in found or len(found) > 1 for found in values.values())
        return {"changes": self.changes, "moved": self.moved or not self.outputs, "pacer": self.pacer}


def _test(case):
    failure, error = case.find("failure"), case.find("error")
    bad = failure if failure is not None else error
    status = "failed" if bad is not None else "skipped" if case.find("skipped") is not None else "passed"
    message = ""
    if bad is not None:
        parts = (bad.get("error_type") or "", bad.get("error_msg") or bad.get("message") or bad.get("msg") or "")
        message = ": ".join(part for part in parts if part)
    return {
        "name": "{}.{}".format(case.get("classname"), case.get("name")),
        "status": status,
        "message": message[:_MAX_TEXT],
        "file": case.get("file") or "",
        "ns": case.get("sim_time_ns") or "",
    }


def _witness_builds(module):
    """Gives the runner a `subprocess` whose `run` reports how each build command ended; all else is the real one."""
    real = module.subprocess

    class Watched:
        def __getattr__(self, name):
            return getattr(real, name)

        @staticmethod
        def run(command, *positional, **named):
            if not _is_build(command):
                done = simulate(command, named) if simulate is not None and not positional else None
                if done is None:
                    return real.run(command, *positional, **named)
                if named.get("check") and done:
                    raise real.CalledProcessError(done, command)
                return real.CompletedProcess(command, done)
            __tracebackhide__ = True
            _look_into_verilator(real, command, named)
            log = named.get("stdout")
            quiet = named.get("stdout") is None and named.get("stderr") is None and not named.get("capture_output")
            checked = named.pop("check", False)
            if quiet:
                named.update(stdout=real.PIPE, stderr=real.STDOUT)
            done = real.run(command, *positional, **named)
            text = ""
            if quiet:
                text = done.stdout if isinstance(done.stdout, str) else (done.stdout or b"").decode("utf-8", "replace")
                sys.stdout.write(text)
                sys.stdout.flush()
            elif log is not None and isinstance(getattr(log, "name", None), str):
                with open(log.name, errors="replace") as file:
                    text = file.read(1 << 20)
            changed = [] if done.returncode else _changed_parameters(command, named.get("cwd"))
            facts = {"exit_code": done.returncode, "output": text[-20000:], "parameters": changed}
            report({"kind": "build", "argv": [str(word)[:300] for word in command][:100], **facts})
            if checked and done.returncode:
                raise real.CalledProcessError(done.returncode, command)
            return done

    module.subprocess = Watched()


def _changed_parameters(command, cwd):
    """Parameters that an `iverilog -P top.NAME=VALUE` set and that its program does not hold, and those that the harness
    reads back though it did not set them (RTL_PARAMETERS, see rtl_core/grading/interface_check.py) and that are not as demanded.
    """
    words = [str(word) for word in command]
    settings: dict[str, dict[str, str]] = {}
    for word in words:
        if word.startswith("-P") and "." in word and "=" in word:
            path, _, value = word[2:].partition("=")
            top, _, name = path.partition(".")
            settings.setdefault(top, {})[name] = value
    demanded = os.environ.get("RTL_PARAMETERS", "{}")
    if "-o" not in words[:-1] or not (settings or '": [' in demanded):
        return []
    import json

    import compiled

    with open(os.path.join(cwd or ".", words[words.index("-o") + 1]), errors="replace") as file:
        program = file.read()
    found = [list(change) for top, own in settings.items() for change in compiled.changed_parameters(program, top, own)]
    given = json.loads(demanded)
    for name, values in given.get("values", {}).items():
        if name not in settings.get(given["top"], {}):
            for change in compiled.changed_parameters(program, given["top"], {name: str(values[0])}):
                if change[2] not in [str(value) for value in values]:
                    found.append(list(change))
    return found


def _look_into_verilator(subprocess, command, named):
    """Verilator makes C++ of a design, so its text is looked at before it is compiled."""
    words = [str(word) for word in command]
    if "verilator" not in [word.split("/")[-1] for word in words[:2]] or "--lint-only" in words:
        return
    import gate

    where = {key: named[key] for key in ("cwd", "env") if key in named}
    done = subprocess.run([*words, "-E", "-P"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **where)
    gate.stop_if_refused_text(done.stdout.decode("utf-8", "replace"), named.get("env") or os.environ)


def _is_build(command):
    if not isinstance(command, (list, tuple)) or not command:
        return False
    names = [str(word).split("/")[-1] for word in command[:2]]
    return names[0] in ("iverilog", "verilator") or names == ["perl", "verilator"]
