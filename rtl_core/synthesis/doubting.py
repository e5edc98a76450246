"""Doubts about golden answers: do a model's independent answers agree with one another, and not with it?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from rtl_core.config import RunConfig
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Table
from rtl_core.rollouts.resumable import ALL, problems_as_recorded, texts_of
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.pool import GraderPool
from rtl_grader.settings import executor_of, grader_of, graders_of
from rtl_grader.types.problem import Problem
from rtl_grader.validation.doubts import doubt_of_golden
from rtl_grader.work import Tally, process_all

_VERDICTS = {"different": "doubtful", "unknown": "without result"}
"""Result of the comparison -> what it says about the golden answer; the others agree."""
Row = Mapping[str, Any]


def doubts_of_run(config: RunConfig) -> list[Row]:
    """Compare the answers of the evaluation `config.run.name` with each other and with the golden answers.

    Returns a JSON-serialisable row for each problem with a golden answer. Raises InfrastructureError if the
    executor fails.
    """
    history, run = History(config.run.history, read_only=True), config.run.name
    asked = ALL.of(history, run)
    problems = problems_as_recorded(history, run, asked).values()
    doubted = [problem for problem in problems if problem.golden is not None]
    rows: dict[str, Row] = {}
    grader = grader_of(config.grading, executor_of(config.grading))
    with closing(GraderPool(grader, graders_of(config.grading))) as pool:

        async def doubt(problem: Problem) -> None:
            texts = texts_of(history, run, problem.id, asked[problem.id])
            answers = [answer_to(problem, text).files for text in dict.fromkeys(texts.values())]
            call = partial(doubt_of_golden, grader, problem, list(filter(None, answers)))
            comparison, answer = await pool.call(call)
            rows[problem.id] = {
                "id": problem.id,
                "source": problem.source,
                "verdict": _VERDICTS.get(comparison.result, "agrees"),
                "share": comparison.share,
                "detail": comparison.detail,
                "trace": [dict(step) for step in comparison.trace],
                "answer": answer,
            }

        tally = Tally("golden answers", len(doubted))
        work = process_all(
            doubted, doubt, tally, concurrency=pool.threads, name=lambda problem: problem.id
        )
        asyncio.run(work)
    return [rows[problem.id] for problem in doubted]


def table(rows: Iterable[Row]) -> Table:
    """The doubtful golden answers, with the inputs that tell each from the answers."""
    header, cells = "doubtful | agree: | where the answers differ from the golden answer", []
    for row in rows:
        if row["verdict"] == "doubtful":
            steps = [f"step {number}: {step}" for number, step in enumerate(row["trace"], 1)]
            detail = "\n".join([row["detail"], *steps])
            cells.append([row["id"], f"{row['share']:.0%}", detail])
    return Table("", "", "", header, cells)
