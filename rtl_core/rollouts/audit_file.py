"""The passing answers of a file held against the golden answers of their problems, or against one another: `rtl-distill grade --audit`."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rtl_core.equivalence.pair import Comparison
from rtl_core.errors import ProblemError
from rtl_core.grading.answer_file import AnswerLine, read_answers
from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.rollouts.auditing import THOROUGH
from rtl_core.rollouts.grade_file import FileGrading
from rtl_core.rollouts.resumable import Tally, daemon_threads, work_off
from rtl_core.validation.doubts import Once, hold


def audit_file(asked: FileGrading, records: list[dict[str, Any]], output: Path) -> Counter[str]:
    """Looks at every answer whose verdict in `records` is a pass, and writes what was found to `output`, one JSON object a line.

    Returns result -> answers.

    Raises:
        ProblemError: a file cannot be read or written.
        ToolMissingError, InfrastructureError: the executor cannot start, or fails.
    """
    passed = {(record["id"], record["sample"]) for record in records if record["passed"]}
    lines, _ = read_answers(asked.answers, read_cvdp(asked.problems))
    by_problem: dict[str, list[AnswerLine]] = defaultdict(list)
    for line in lines:
        if (line.problem.id, line.sample) in passed:
            by_problem[line.problem.id].append(line)
    found: dict[str, list[Comparison]] = {}
    with (
        closing(make_executor(asked.executor)) as executor,
        closing(Grader(executor, limits=asked.limits, seed=asked.seed)) as grader,
    ):
        asyncio.run(_look_at_all(grader, by_problem, found, asked.jobs or os.cpu_count() or 1))
    rows = [
        {"id": line.problem.id, "sample": line.sample, **asdict(one)}
        for name, own in by_problem.items()
        for line, one in zip(own, found[name], strict=True)
    ]
    try:
        output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    except OSError as error:
        raise ProblemError(f"{output} cannot be written: {error.strerror}", "name another file with --audit") from error
    return Counter(row["result"] for row in rows)


async def _look_at_all(
    grader: Grader, lines: dict[str, list[AnswerLine]], found: dict[str, list[Comparison]], at_once: int
) -> None:
    once = Once()
    with daemon_threads(grader.executor) as call:

        async def look(name: str) -> None:
            answers = [line.answer.files for line in lines[name]]
            found[name] = await call(hold, grader, lines[name][0].problem, answers, THOROUGH, once)

        total = sum(map(len, lines.values()))
        await work_off(
            lines, look, Tally("passes looked at", total), at_once=at_once, size=lambda name: len(lines[name])
        )
