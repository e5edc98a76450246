"""What becomes of RTL: designs and tasks, seconds, and what is left out and why, for each path.

    python -m benchmarks.own_rtl PATH ... [--per-module 3]

A path is one of the source `rtl`. The seconds are CPU seconds for reading, without the split.
"""

import re
import time
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path

from rtl_grader.problems.sources.rtl import RtlSource

KINDS = {
    "no file of its project defines .*": "need what no file defines",
    ".* is ambiguous: .*": "need what several files define",
    "it is a test bench.*|it has no ports": "test benches",
    "its file and those .*": "too long",
}


def kind_of(reason: str) -> str:
    for pattern, kind in KINDS.items():
        if re.fullmatch(pattern, reason):
            return kind
    return reason


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--per-module", type=int, default=3)
    args = parser.parse_args()
    print("| path | designs | tasks | easy, medium, hard | seconds | left out |")
    print("|---|---|---|---|---|---|")
    for path in args.paths:
        start = time.process_time()
        contents = RtlSource(kind="rtl", path=path, per_module=args.per_module).read()
        seconds = time.process_time() - start
        designs = {(p.origin, p.interface.module) for p in contents.problems if p.interface}
        sizes = Counter(problem.difficulty for problem in contents.problems)
        levels = ", ".join(str(sizes[level]) for level in ("easy", "medium", "hard"))
        kinds = Counter(kind_of(entry.reason) for entry in contents.left_out)
        kinds.update(broken.reason for broken in contents.broken)
        why = "; ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        cells = [path.name, len(designs), len(contents.problems), levels, f"{seconds:.1f}", why]
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
