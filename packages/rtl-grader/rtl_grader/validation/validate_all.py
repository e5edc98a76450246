"""Validate many problems, without a history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TextIO

from rtl_grader.grading.pool import GraderPool
from rtl_grader.types.problem import Problem
from rtl_grader.validation.level import Level
from rtl_grader.validation.record import ValidationRecord
from rtl_grader.validation.validate import validate_problem
from rtl_grader.work import Tally, process_all


def validate_all(
    problems: Sequence[Problem], pool: GraderPool, level: Level, output: TextIO | None = None
) -> dict[str, ValidationRecord]:
    """Return the record of each problem by id, with progress lines. `output` gets each record as a line of
    JSON when it is there. Raises InfrastructureError if the executor fails."""
    records: dict[str, ValidationRecord] = {}

    async def validate(problem: Problem) -> None:
        call = partial(validate_problem, problem, pool.grader, level=level)
        record = records[problem.id] = await pool.call(call)
        if output is not None:
            output.write(record.model_dump_json() + "\n")
            output.flush()

    tally = Tally("problems validated", len(problems))
    work = process_all(
        problems, validate, tally, concurrency=pool.threads, name=lambda problem: problem.id
    )
    asyncio.run(work)
    return {problem.id: records[problem.id] for problem in problems}
