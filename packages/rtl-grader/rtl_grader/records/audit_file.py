"""Audit the passes of a graded file of answers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from rtl_grader.equivalence.effort import Effort
from rtl_grader.equivalence.pair import Comparison
from rtl_grader.errors import ProblemError
from rtl_grader.grading.answer_file import AnswerLine, read_answers
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.pool import GraderPool
from rtl_grader.grading.verdict_record import Record
from rtl_grader.problems.cvdp import read_cvdp
from rtl_grader.records.grade_file import FileGrading
from rtl_grader.validation.doubts import DesignCache, audit_passes
from rtl_grader.work import Tally, process_all

THOROUGH = Effort.of_cycles(24_000, 6, 10.0)
"""Default effort: clock cycles or random patterns for each set of parameters, sets of parameters, CPU
seconds of a proof."""


def audit_file(grading: FileGrading, records: list[Record], output: Path) -> Counter[str]:
    """Audit every answer whose verdict in `records` is a pass, and write the findings to `output`, one JSON
    object per line.

    Returns a mapping of result to number of answers.

    Raises:
        ProblemError: a file cannot be read or written.
        ToolMissingError, InfrastructureError: the executor cannot start, or fails.
    """
    passed = {(record["id"], record["sample"]) for record in records if record["passed"]}
    lines, _ = read_answers(grading.answers, read_cvdp(grading.problems))
    by_problem: dict[str, list[AnswerLine]] = defaultdict(list)
    for line in lines:
        if (line.problem.id, line.sample) in passed:
            by_problem[line.problem.id].append(line)
    grader = Grader(make_executor(grading.executor), limits=grading.limits, seed=grading.seed)
    with closing(GraderPool(grader, grading.jobs)) as pool:
        comparisons = asyncio.run(_audit_lines(pool, by_problem))
    rows = [
        {"id": name, "sample": line.sample, **asdict(comparison)}
        for name, own in by_problem.items()
        for line, comparison in zip(own, comparisons[name], strict=True)
    ]
    try:
        output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    except OSError as error:
        raise ProblemError(
            f"{output} cannot be written: {error.strerror}", "name another file with --audit"
        ) from error
    return Counter(row["result"] for row in rows)


async def _audit_lines(
    pool: GraderPool, lines: dict[str, list[AnswerLine]]
) -> dict[str, list[Comparison]]:
    """Comparisons of the answers of each problem, by its id."""
    cache = DesignCache()
    comparisons: dict[str, list[Comparison]] = {}

    async def audit(name: str) -> None:
        problem = lines[name][0].problem
        answers = [line.answer.files for line in lines[name]]
        comparisons[name] = await pool.call(
            audit_passes, pool.grader, problem, answers, THOROUGH, cache
        )

    tally = Tally("passes audited", sum(map(len, lines.values())))
    await process_all(
        lines, audit, tally, concurrency=pool.threads, size=lambda name: len(lines[name])
    )
    return comparisons
