"""Stops programs that `compiled.refusals` or `instances.root_complaints` refuses from being simulated. Standard library only.

A warm simulator calls it before it reads a design, the `vvp` in `bin/` before it starts a new simulator.
"""

import json
import os
import sys

import benches
import compiled
import instances
import witness

MAX_PROGRAM = 64 << 20
HARNESS = "/code/src"


def stop_if_refused(paths, environment):
    """Report to the agent and exit with `compiled.REFUSED` if one of the compiled programs must not be run.

    Returns the paths of the programs to run in place of those with a test bench of the harness (benches.py).
    """
    try:
        harness = frozenset(os.listdir(HARNESS))
    except OSError:
        harness = frozenset()
    reasons, separated, programs = [], {}, 0
    bench = _words(environment, "RTL_BENCH")
    for path in filter(os.path.isfile, paths):
        with open(path, errors="surrogateescape") as file:
            program = file.read(MAX_PROGRAM + 1)
        if len(program) > MAX_PROGRAM:
            reasons.append(f"the compiled design has more than {MAX_PROGRAM >> 20} MiB")
            continue
        reasons += compiled.refusals(program, _words(environment, "RTL_TASKS"), harness)
        reasons += instances.root_complaints(program, *_shown(environment))
        programs += 1
        apart = bench and benches.separate(program, bench, f"/tmp/rtl-{os.urandom(16).hex()}")
        if apart:
            separated[path] = apart
            # The tasks of the harness' own files are for its bench.
            reasons += compiled.refusals(apart.design, frozenset(), harness)
            reasons += ["a name that leads into the test bench, or a message from outside the modules"] * apart.reaches
    _stop(reasons)
    # A rewritten test bench calls this without the grader's environment, and attests its end itself.
    counted = programs if "RTL_PARAMETERS" in environment else 0
    witness.report({"kind": "started", "programs": counted, "marks": [apart.marks for apart in separated.values()]})
    return {path: _written(apart) for path, apart in separated.items()}


def _written(apart):
    path = f"/tmp/rtl-{os.urandom(16).hex()}.vvp"
    with open(path, "w", errors="surrogateescape") as file:
        file.write(apart.text)
    return path


def stop_if_refused_text(text, environment):
    """The same for a text that Verilator will compile."""
    _stop(compiled.refusals_of_text(text, _words(environment, "RTL_TASKS")))


def _shown(environment):
    """The module that the grader analysed, and its (inputs, outputs); None in their place if it analysed none."""
    shown = environment.get("RTL_WATCH", "")
    if ";" not in shown:
        return "", None
    return json.loads(environment["RTL_PARAMETERS"])["top"], [
        list(filter(None, p.split(","))) for p in shown.split(";")
    ]


def _words(environment, name):
    return frozenset(filter(None, environment.get(name, "").split(",")))


def _stop(reasons):
    if reasons:
        witness.report(
            {"kind": "refused", "reasons": [reason.encode("utf-8", "replace").decode() for reason in reasons[:20]]}
        )
        sys.stderr.write("refused: " + "; ".join(reasons[:20]).encode("ascii", "replace").decode() + "\n")
        sys.stderr.flush()
        os._exit(compiled.REFUSED)
