"""Simulates one design with the bench and stimuli of `trace.json`. Runs in the sandbox: `python3 simulating.py FILES`,
with the design's HDL files in the order of compilation.

Standard output gets one line of JSON: {compiles, said, ended, lines}; `lines` are compressed.
"""

import json
import sys

import tracing

SOURCE = "/code/src/"


def main(files):
    design = tracing.Design(files, ["-I", "/code/rtl"])
    stimuli = tracing.unpacked(tracing.read(f"{SOURCE}stimuli0"))
    said, compiles, _ = design.compile({0: stimuli})
    traces, ended = design.simulate([0]) if compiles else ([[]], "")
    lines = tracing.packed(b"\n".join(traces[0]))
    result = {"compiles": compiles, "said": said[-4000:], "ended": ended, "lines": lines}
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
