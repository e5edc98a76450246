"""The input of `rtl-distill grade`: one answer a line, as a model's response or as files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtl_core.errors import ProblemError
from rtl_core.problems.cvdp import json_lines
from rtl_core.problems.problem_set import ProblemSet
from rtl_core.prompting.answer_to import answer_to
from rtl_core.prompting.extraction import MAX_RESPONSE_CHARS
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem

MAX_LINE_BYTES = 256 << 20


@dataclass(frozen=True)
class AnswerLine:
    """One usable line of an answers file."""

    line: int
    problem: Problem
    sample: int
    answer: Answer


def read_answers(path: Path, found: ProblemSet) -> tuple[list[AnswerLine], list[str]]:
    """Usable lines, and a sentence with file and line for each other one. `sample` counts up per id when not given."""
    problems = {problem.id: problem for problem in found.problems}
    why_not = {left.id: left.reason for left in found.left_out}
    why_not.update({broken.id: str(broken) for broken in found.broken if broken.id})
    lines: list[AnswerLine] = []
    complaints: list[str] = []
    counted: Counter[str] = Counter()
    try:
        with path.open("rb") as file:
            for number, record in json_lines(file, MAX_LINE_BYTES):
                try:
                    if isinstance(record, str):
                        raise ValueError(record)
                    line = line_of(record, number, problems, why_not, counted)
                except ValueError as error:
                    complaints.append(f"{path.name}:{number}: {error}")
                else:
                    counted[line.problem.id] += 1
                    lines.append(line)
    except OSError as error:
        raise ProblemError(f"cannot read the answers file {path}: {error.strerror}", "check the path") from error
    return lines, complaints


def line_of(
    record: Mapping[str, Any],
    number: int,
    problems: Mapping[str, Problem],
    why_not: Mapping[str, str],
    counted: Mapping[str, int],
) -> AnswerLine:
    """An answer as it was written: `id`, `response` or `files`, and perhaps `sample`. Raises ValueError that says what is wrong with it.

    Args:
        number: of its line or place.
        why_not: id -> why a problem that there is cannot be answered.
        counted: id -> its sample where none is given.
    """
    identity = record.get("id")
    if not isinstance(identity, str):
        raise ValueError("id: is missing or no text")
    if identity not in problems:
        reason = why_not.get(identity)
        raise ValueError(f"id: {identity!r} " + (f"is left out: {reason}" if reason else "is none of the problems"))
    sample = record.get("sample", counted[identity])
    if not isinstance(sample, int) or isinstance(sample, bool) or sample < 0:
        raise ValueError("sample: is no whole number from 0")
    problem = problems[identity]
    if isinstance(record.get("files"), dict) and record.get("response") is None:
        files = record["files"]
        for path, text in files.items():
            if not isinstance(text, str):
                raise ValueError(f"files.{path[:80]}: is {type(text).__name__}, not text")
        size = sum(len(text) for text in files.values())
        if size > MAX_RESPONSE_CHARS:
            too_long = f"the files have {size} characters, more than {MAX_RESPONSE_CHARS}"
            return AnswerLine(number, problem, sample, Answer(error=too_long))
        return AnswerLine(number, problem, sample, Answer(files=files))
    if isinstance(record.get("response"), str) and record.get("files") is None:
        return AnswerLine(number, problem, sample, answer_to(problem, record["response"]))
    raise ValueError("needs either `response` (text) or `files` (an object of path and text)")
