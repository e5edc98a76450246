"""Whether real designs are equal to themselves: no design is ever different from itself.

    python -m benchmarks.itself ../shared/data/rtl-benchls/slice_01.jsonl [MORE...] [--limit 100]
    [--rewrites] [--proof 10] [--proof-first] [--quick] [--jobs 2] [--log FILE.jsonl]

Reads designs from JSONL with `files` and `top_module` (RTL-BenchLS) or `instruction` and `output` (pairs).
Each is compared with itself and, with `--rewrites`, with three texts of the same behaviour (renamed internal
signals; blocks in another order; `always` blocks instead of `assign`), by simulation and then by proof.
`--limit` takes so many designs, evenly spread; with `--log` an interrupted call is continued. The exit code is
1 if a comparison says `different`.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import Log, options, show
from benchmarks.equivalence import LIMITS, answers
from rtl_grader.equivalence.differential import compare
from rtl_grader.equivalence.effort import USUAL, Effort
from rtl_grader.grading.executors import Executor, make_executor
from rtl_grader.problems.judged import judged_problem, tops_of
from rtl_grader.traces import stimuli
from rtl_grader.types.problem import Problem

WIDTH = 160


def designs(paths: list[Path]) -> list[tuple[str, str, str | None]]:
    """(name, text, top module) of each design in files of JSONL."""
    results = []
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            results.append(_design(f"{path.stem}:{number}", json.loads(line)))
    return results


def _design(name: str, row: dict[str, Any]) -> tuple[str, str, str | None]:
    if "output" in row:
        *_, top = [None, *tops_of(row["output"])]
        return name, row["output"], top
    files: dict[str, str] = row["files"]
    whole = [text for path, text in files.items() if path.endswith("_combined.v")]
    parts = [text for path, text in files.items() if path.endswith(".v") and ".v1." not in path]
    return row["task_id"], "\n".join(whole or parts), row["top_module"]


def problem_of(name: str, text: str, top: str | None) -> Problem:
    """The design as a problem that its golden answer judges. Raises ValueError."""
    if top is None:
        raise ValueError("no module")
    return judged_problem(
        id=name,
        source="designs",
        category="complete",
        difficulty="easy",
        prompt=f"Write the module {top}.",
        golden={"rtl/design.sv": text},
        top=top,
    )


def spread(rows: list[Any], limit: int) -> Iterator[Any]:
    """At most `limit` rows, evenly spread; all if it is 0."""
    step = max(1, len(rows) // limit) if limit else 1
    return islice(rows, 0, None, step)


class Row(NamedTuple):
    """A comparison of a design with a text of the same behaviour."""

    name: str
    kind: str
    result: str
    cpu_s: float
    detail: str


def in_groups(result: Row) -> tuple[str, str]:
    """A result and its reason, without what is particular to one design."""
    if result.result == "equal":
        way = "" if "proved" in result.detail else result.detail
        return ("proved" if result.cpu_s <= 10 else "proved, > 10 s"), way
    _, separator, why = result.detail.partition("not proved: ")
    reason = why if separator else result.detail
    reason = re.sub(r"\\?[\w$.\\]*[\d_$\\][\w$.\\]*|/\S+", "…", reason)
    return result.result, reason[:110]


def rows_of(
    executor: Executor, kinds: int, effort: Effort, design: tuple[str, str, str | None]
) -> list[Row]:
    """Compare a design with itself and with the rewrites up to `kinds` answers."""
    name = design[0]
    try:
        problem = problem_of(*design)
    except ValueError as error:
        return [Row(name, "itself", "unknown", 0.0, str(error))]
    golden = dict(problem.golden or {})
    rows = []
    for kind, files in islice(answers(problem, 0), kinds):
        result = compare(executor, problem, golden, files, LIMITS, effort)
        rows.append(Row(name, kind, result.result, round(result.cpu_s, 2), result.detail))
    return rows


def report(count: int, rows: list[Row]) -> None:
    """Print results and CPU seconds by kind of answer."""
    groups: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    seconds: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        groups[row.kind][in_groups(row)] += 1
        seconds[row.kind].append(row.cpu_s)
    lines = []
    for kind, counts in groups.items():
        for (outcome, reason), number in counts.most_common():
            share = f"{100 * number / sum(counts.values()):.1f} %"
            lines.append((kind, outcome, number, share, reason))
    show(f"{count} designs", ("against", "result", "pairs", "", "reason"), lines, WIDTH)
    for kind, spent in seconds.items():
        spent.sort()
        print(f"{kind}: CPU seconds median {spent[len(spent) // 2]:.2f}, sum {sum(spent):.0f}")


def main() -> None:
    parser = options(
        __doc__,
        limit=(0, "designs; 0 means all"),
        rewrites=(False, "also three rewrites of each"),
        proof=(10.0, "CPU seconds of each proof"),
        proof_first=(False, "simulate only what a proof does not decide"),
        quick=(False, "simulate as long as the judge does by default"),
        jobs=(2, "comparisons at a time"),
        executor="bubblewrap",
        log=(Path, "file of results; designs that it has are not compared again"),
    )
    parser.add_argument("paths", nargs="+", type=Path, help="files of JSONL")
    arguments = parser.parse_args()
    longest = Effort(**vars(stimuli.USUAL)) if arguments.quick else USUAL
    effort = replace(longest, proof_cpu_s=arguments.proof, proof_first=arguments.proof_first)
    kinds = 4 if arguments.rewrites else 1
    log = Log(arguments.log)
    done = {name for name, *_ in log.rows}
    designs_to_do = list(spread(designs(arguments.paths), arguments.limit))
    todo = [design for design in designs_to_do if design[0] not in done]
    with (
        make_executor(arguments.executor) as executor,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        for new in pool.map(partial(rows_of, executor, kinds, effort), todo):
            log.add(new)
    rows = [Row(*row) for row in log.rows]
    report(len(designs_to_do), rows)
    different = [row for row in rows if row.result == "different"]
    for row in different:
        print("DIFFERENT", *row)
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
