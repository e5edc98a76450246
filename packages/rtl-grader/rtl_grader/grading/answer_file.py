"""The input of `rtl-grader grade`: one answer per line, as a model's response or as files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field

from rtl_grader.errors import ProblemError
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.extraction.response import MAX_RESPONSE_CHARS
from rtl_grader.problems.cvdp import FieldError, checked, json_lines
from rtl_grader.problems.problem_set import ProblemSet
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem

MAX_LINE_BYTES = 256 << 20


class AnswerRecord(BaseModel, strict=True):
    """An answer to a problem, as a line of `rtl-grader grade --answers`: `response` or `files`."""

    id: str = Field(description="Id of the problem.")
    response: str | None = Field(None, description="A model's whole response.")
    files: dict[str, str] | None = Field(
        None, description="Path -> text, in place of a response."
    )
    sample: int | None = Field(
        None, ge=0, description="A number of your own; it comes back with the verdict."
    )


@dataclass(frozen=True)
class AnswerLine:
    """One valid line of an answers file."""

    line: int
    problem: Problem
    sample: int
    answer: Answer


def read_answers(path: Path, problem_set: ProblemSet) -> tuple[list[AnswerLine], list[str]]:
    """Return the valid lines, and an error with file and line for each invalid one. `sample` defaults to a
    counter per id."""
    problems = {problem.id: problem for problem in problem_set.problems}
    why_not = {omission.id: omission.reason for omission in problem_set.left_out}
    why_not.update({error.id: str(error) for error in problem_set.broken if error.id})
    lines: list[AnswerLine] = []
    complaints: list[str] = []
    counts: Counter[str] = Counter()
    try:
        with path.open("rb") as file:
            for number, record in json_lines(file, MAX_LINE_BYTES):
                try:
                    if isinstance(record, str):
                        raise ValueError(record)
                    answer = checked(AnswerRecord, record)
                    line = line_of(answer, number, problems, why_not, counts)
                except (ValueError, FieldError) as error:
                    complaints.append(f"{path.name}:{number}: {error}")
                else:
                    counts[line.problem.id] += 1
                    lines.append(line)
    except OSError as error:
        raise ProblemError(
            f"cannot read the answers file {path}: {error.strerror}", "check the path"
        ) from error
    return lines, complaints


def line_of(
    record: AnswerRecord,
    number: int,
    problems: Mapping[str, Problem],
    why_not: Mapping[str, str],
    counts: Mapping[str, int],
) -> AnswerLine:
    """The answer of a record. Raises ValueError with the field and the error.

    `number` is that of the line, `why_not` maps ids to reasons why a problem cannot be used, `counts` to
    default samples.
    """
    identity = record.id
    if identity not in problems:
        reason = why_not.get(identity)
        why = f"is left out: {reason}" if reason else "is not one of the problems"
        raise ValueError(f"id: {identity!r} {why}")
    if (record.response is None) == (record.files is None):
        raise ValueError(
            "needs either `response` (a string) or `files` (an object of path and text)"
        )
    problem = problems[identity]
    answer = (
        answer_with(record.files)
        if record.files is not None
        else answer_to(problem, record.response or "")
    )
    sample = counts[identity] if record.sample is None else record.sample
    return AnswerLine(number, problem, sample, answer)


def answer_with(files: dict[str, str]) -> Answer:
    """The answer that consists of these files, or the reason why it would be too long."""
    size = sum(map(len, files.values()))
    if size > MAX_RESPONSE_CHARS:
        return Answer(error=f"the files have {size} characters, more than {MAX_RESPONSE_CHARS}")
    return Answer(files=files)
