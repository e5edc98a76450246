"""Repair tasks: a mutant of a golden answer that the judge tells apart, and a bug report in the judge's words.

Each becomes a row of a file for the source `pairs`, in which the golden answer is the answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rtl_grader.digest import sha256_of
from rtl_grader.errors import ProblemError
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.pool import GraderPool
from rtl_grader.problems.judged import is_judged, surroundings
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome
from rtl_grader.validation.mutants import Mutant, mutants
from rtl_grader.work import Tally, process_all

TRIES = 4
"""Mutants that are graded at most for each repair task."""
MOST_OUTPUTS = 6
_REPORT = """\
The module `{top}` below has a bug. What it gives, and what is expected:

{words}

Correct it, and write the whole file.

```verilog
{text}```
"""
Row = dict[str, Any]


def repair_all(
    problems: Iterable[Problem], pool: GraderPool, per_module: int, seed: int, output: Path
) -> tuple[int, dict[str, str]]:
    """Append the repair tasks of each design to a file, which may have those of earlier calls. Return their number,
    and for each design without any the reason why.

    Raises ProblemError when no problem is judged by its golden answer.
    """
    designs = _designs(problems)
    if not designs:
        raise ProblemError("no problem is judged by its golden answer", "give --source rtl=DIR")
    done = _prefixes(output)
    waiting = {prefix: problem for prefix, problem in designs.items() if prefix not in done}
    written = 0
    left_out: dict[str, str] = {}

    async def work(item: tuple[str, Problem]) -> None:
        nonlocal written
        prefix, problem = item
        rows, reason = await pool.call(
            partial(repairs, problem, pool.grader, prefix, per_module, seed)
        )
        # The rows of a design are written at once, so that a design is done or not begun.
        with output.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
        written += len(rows)
        if not rows:
            left_out[problem.origin or problem.id] = reason

    tally = Tally("designs", len(designs), len(designs) - len(waiting))
    everything = process_all(
        waiting.items(), work, tally, concurrency=pool.threads, name=lambda item: item[0]
    )
    asyncio.run(everything)
    return written, left_out


def repairs(
    problem: Problem, grader: Grader, prefix: str, count: int, seed: int
) -> tuple[list[Row], str]:
    """At most `count` repair tasks about a judged problem's golden answer, and why there are no more."""
    assert problem.interface is not None
    golden = problem.golden or {}
    rows: list[Row] = []
    reason = "no mutation applies"
    for mutant in mutants(golden, problem.interface.module, TRIES * count, seed):
        verdict = grader.grade(problem, Answer(files=mutant.files))
        if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
            return rows, "; ".join(verdict.reasons)[:300]
        if verdict.outcome is Outcome.TESTS_FAILED and verdict.reasons:
            identity = f"{prefix}_{len(rows) + 1}"
            rows.append(_row(problem, mutant, identity, verdict.reasons))
        reason = "the judge tells no mutant apart"
        if len(rows) == count:
            break
    return rows, reason


def _designs(problems: Iterable[Problem]) -> dict[str, Problem]:
    """The judged problems with one file to write, one for each design, by the prefix of its ids."""
    designs: dict[str, Problem] = {}
    for problem in problems:
        golden = problem.golden or {}
        if is_judged(problem.harness) and problem.interface and len(golden) == 1:
            top = problem.interface.module
            digest = sha256_of([top, problem.origin, golden])[:8]
            designs.setdefault(f"{top}_repair_{digest}", problem)
    return designs


def _prefixes(output: Path) -> set[str]:
    """Prefixes of the ids in a file. Raises ProblemError when it holds anything but repair tasks."""
    lines = output.read_text(encoding="utf-8").splitlines() if output.exists() else []
    try:
        return {str(json.loads(line)["id"]).rpartition("_")[0] for line in lines}
    except (ValueError, KeyError, TypeError):
        hint = "choose a new file"
        raise ProblemError(f"{output} holds other lines than repair tasks", hint) from None


def _row(problem: Problem, mutant: Mutant, identity: str, reasons: Sequence[str]) -> Row:
    assert problem.interface is not None
    top = problem.interface.module
    (text,) = mutant.files.values()
    (golden,) = (problem.golden or {}).values()
    return {
        "id": identity,
        "specification": _report(top, text, reasons),
        "golden": golden,
        "top": top,
        **surroundings(problem),
        "task": "repair",
        "mutation": mutant.description,
        "origin": problem.origin,
        "licence": problem.licence,
    }


def _report(top: str, text: str, reasons: Sequence[str]) -> str:
    """The bug report: the first difference of each output, and the file with the bug."""
    first = {reason.partition(", phase ")[0]: reason for reason in reversed(reasons)}
    words = "\n".join(f"- {reason}" for reason in list(first.values())[-MOST_OUTPUTS:])
    return _REPORT.format(top=top, words=words.replace(", golden ", ", expected "), text=text)
