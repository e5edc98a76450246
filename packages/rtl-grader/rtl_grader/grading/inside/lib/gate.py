"""Stops programs that `compiled.refusals` or `instances.root_complaints` refuses from being simulated.
Standard library only.

A warm simulator calls it before it reads a design, the `vvp` in `bin/` before it starts a new simulator.
"""

import json
import os
import sys

import compiled
import instances
import witness

MAX_PROGRAM = 64 << 20
HARNESS = "/code/src"


def stop_if_refused(paths, environment):
    """Report to the agent and exit with `compiled.REFUSED` if one of the compiled programs must not be run."""
    try:
        harness = frozenset(os.listdir(HARNESS))
    except OSError:
        harness = frozenset()
    reasons = []
    programs = [path for path in paths if os.path.isfile(path)]
    for path in programs:
        with open(path, errors="surrogateescape") as file:
            program = file.read(MAX_PROGRAM + 1)
        if len(program) > MAX_PROGRAM:
            reasons.append(f"the compiled design has more than {MAX_PROGRAM >> 20} MiB")
        else:
            reasons += compiled.refusals(program, _tasks(environment), harness)
            reasons += instances.root_complaints(program, *_analysed(environment))
    _stop(reasons)
    # A rewritten test bench asks without the grader's environment: it attests its own end.
    count = 0
    if "RTL_WATCH" in environment:
        count = len(programs)
    witness.report({"kind": "started", "programs": count})


def real_program(name, with_waves=True):
    """The first program of this name in PATH outside of /guard. `with_waves` also takes the one of ours that dumps
    waves: its folder stands there as /./guard/waves."""
    for place in os.environ.get("PATH", "").split(":"):
        program = os.path.join(place, name)
        plain = place if with_waves else os.path.abspath(place)
        if place and not plain.startswith("/guard") and os.access(program, os.X_OK):
            return program
    sys.exit(f"{name}: not found")


def stop_if_refused_text(text, environment):
    """The same for a text that Verilator will compile."""
    _stop(compiled.refusals_of_text(text, _tasks(environment)))


def _analysed(environment):
    """The module that the grader analysed, and its (inputs, outputs); None in their place if it analysed none."""
    ports = environment.get("RTL_WATCH", "")
    if not ports:
        return "", None
    return json.loads(environment["RTL_PARAMETERS"])["top"], json.loads(ports)


def _tasks(environment):
    """The system tasks that the problem's own files call."""
    return frozenset(filter(None, environment.get("RTL_TASKS", "").split(",")))


def _stop(reasons):
    if reasons:
        reasons = [reason.encode("utf-8", "replace").decode() for reason in reasons[:20]]
        witness.report({"kind": "refused", "reasons": reasons})
        text = "; ".join(reasons).encode("ascii", "replace").decode()
        sys.stderr.write(f"refused: {text}\n")
        sys.stderr.flush()
        os._exit(compiled.REFUSED)
