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
            reasons += compiled.refusals(program, _more(environment), harness)
            reasons += instances.root_complaints(program, *_shown(environment))
    _stop(reasons)
    # A rewritten test bench asks without the grader's environment: it attests its own end.
    witness.report(
        {"kind": "started", "programs": len(programs) if "RTL_WATCH" in environment else 0}
    )


def stop_if_refused_text(text, environment):
    """The same for a text that Verilator will compile."""
    _stop(compiled.refusals_of_text(text, _more(environment)))


def _shown(environment):
    """The module that the grader analysed, and its (inputs, outputs); None in their place if it analysed none."""
    shown = environment.get("RTL_WATCH", "")
    return (
        (json.loads(environment["RTL_PARAMETERS"])["top"], json.loads(shown))
        if shown
        else ("", None)
    )


def _more(environment):
    return frozenset(filter(None, environment.get("RTL_TASKS", "").split(",")))


def _stop(reasons):
    if reasons:
        witness.report(
            {
                "kind": "refused",
                "reasons": [reason.encode("utf-8", "replace").decode() for reason in reasons[:20]],
            }
        )
        sys.stderr.write(
            "refused: " + "; ".join(reasons[:20]).encode("ascii", "replace").decode() + "\n"
        )
        sys.stderr.flush()
        os._exit(compiled.REFUSED)
