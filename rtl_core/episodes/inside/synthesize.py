"""Whether Yosys can synthesize a design, and of what it is then made. Runs in the sandbox: `python3
synthesize.py TOP SOURCE ...`.

Prints the warnings and errors, and how many cells there are of each kind: `$_DLATCH_...` are latches.
"""

import os
import re
import sys

from pyosys import libyosys as ys

top, *sources = sys.argv[1:]
LOG, STAT = "/tmp/log.txt", "/tmp/stat.txt"
_MESSAGE = re.compile(r"^(?!ABC).*\b(?:Warning|warning|ERROR|error)\b:.*$", re.M)


def synthesize():
    design = ys.Design()
    for command in (
        f"read_slang --single-unit --ignore-timing -I rtl --top {top} {' '.join(sources)}",
        f"hierarchy -check -top {top}",
        "proc",
        "check",
        f"synth -top {top}",
        f"tee -q -o {STAT} stat",
    ):
        ys.run_pass(command, design)


# In a process of its own: an error of Yosys ends the process.
child = os.fork()
if not child:
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        synthesize()
        os._exit(0)
    finally:
        os._exit(1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
with open(LOG, errors="replace") as file:
    messages = list(dict.fromkeys(_MESSAGE.findall(file.read())))
print("\n".join(messages) or "no warnings")
if status == 0:
    with open(STAT, errors="replace") as file:
        print(file.read().strip())
sys.exit(1 if status else 0)
