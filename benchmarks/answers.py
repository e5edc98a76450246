"""Answers with a known verdict, and how the benchmarks grade answers."""

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.stand_in import stand_in
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Verdict


def golden(problem: Problem) -> Answer:
    return Answer(files=problem.golden or {})


def answer_to(problem: Problem, goldens: Path | None) -> Answer:
    """The set's golden answer or the one in `goldens` (one file in ID.sv, several in ID.json), else a stand-in."""
    if problem.golden is None and goldens is not None:
        if (several := goldens / f"{problem.id}.json").is_file():
            return Answer(files=json.loads(several.read_text()))
        if (one := goldens / f"{problem.id}.sv").is_file():
            return Answer(files={problem.targets[0]: one.read_text()})
    return Answer(files=stand_in(problem))


@contextmanager
def grader_on(executor: str, **how: Any) -> Iterator[Grader]:
    """A grader with these arguments on a new executor; both are closed at the end."""
    with make_executor(executor) as made, closing(Grader(made, **how)) as grader:
        yield grader


def grade_all(
    grader: Grader, jobs: Iterable[tuple[Problem, Answer]], workers: int | None = None
) -> list[Verdict]:
    """Grade `workers` answers at a time (by default one a core); the verdicts come in order."""
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        return list(pool.map(lambda job: grader.grade(*job), jobs))
