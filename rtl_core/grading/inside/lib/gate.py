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

    Returns the programs to run in place of those with a test bench of the harness (benches.py): path -> path.
    """
    try:
        harness = frozenset(os.listdir(HARNESS))
    except OSError:
        harness = frozenset()
    reasons, replaced, marks = [], {}, []
    programs = [path for path in paths if os.path.isfile(path)]
    for path in programs:
        with open(path, errors="surrogateescape") as file:
            program = file.read(MAX_PROGRAM + 1)
        if len(program) > MAX_PROGRAM:
            reasons.append(f"the compiled design has more than {MAX_PROGRAM >> 20} MiB")
            continue
        reasons += compiled.refusals(program, _words(environment, "RTL_TASKS"), harness)
        reasons += instances.root_complaints(program, *_shown(environment))
        secret = f"/tmp/rtl-{os.urandom(16).hex()}"
        names = _words(environment, "RTL_BENCH")
        if separated := names and benches.separate(program, names, secret):
            text, created, design, complaints = separated
            # The tasks of the harness' own files are for its bench.
            reasons += complaints + compiled.refusals(design, harness=harness, present=True)
            marks.append(created)
            replaced[path] = secret + ".vvp"
            with open(replaced[path], "w", errors="surrogateescape") as file:
                file.write(text)
    _stop(reasons)
    # A rewritten test bench calls this without the grader's environment, and attests its end itself.
    count = len(programs) if "RTL_BENCH" in environment else 0
    witness.report({"kind": "started", "programs": count, "marks": marks})
    return replaced


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
