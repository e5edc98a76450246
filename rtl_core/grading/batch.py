"""Grades a file of answers against a file of problems, with progress and a summary on the console."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rtl_core.errors import ProblemError
from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.grading.verdict import Outcome, Stage, Verdict
from rtl_core.problems.cvdp import ProblemSet, read_cvdp
from rtl_core.problems.problem import Problem
from rtl_core.prompting.answer import Answer
from rtl_core.prompting.extraction import MAX_RESPONSE_CHARS, extract_answer

MAX_LINE_BYTES = 256 << 20


@dataclass(frozen=True)
class AnswerLine:
    """One usable line of an answers file."""

    line: int
    problem: Problem
    sample: int
    answer: Answer


@dataclass(frozen=True)
class Graded:
    """The verdict on one line; `flips` lists the outcomes when several gradings did not agree."""

    verdict: Verdict
    flips: tuple[str, ...] = ()


def grade_file(
    problems: Path,
    answers: Path,
    output: Path,
    *,
    executor: str = "bubblewrap",
    until: Stage = Stage.TESTS,
    jobs: int = 0,
    seed: int = 0,
    limits: Limits | None = None,
    repeat: int = 1,
    console: Console | None = None,
) -> bool:
    """Writes one verdict a line to `output`, in the answers' order; True when every line got one.

    Broken answer lines are named on the console with file and line, the others are graded. Raises ProblemError when
    a file cannot be read, ToolMissingError or InfrastructureError when the executor cannot start.
    """
    console = console or Console(stderr=True)
    found = read_cvdp(problems)
    for broken in found.broken:
        console.print(f"problem left out: {broken}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    lines, complaints = read_answers(answers, found)
    for complaint in complaints:
        console.print(complaint, style="bold red", markup=False, highlight=False, soft_wrap=True)
    jobs = jobs or os.cpu_count() or 1
    started = time.monotonic()
    tally: Counter[Outcome] = Counter()
    flipped: list[str] = []
    output.parent.mkdir(parents=True, exist_ok=True)
    engine = make_executor(executor)
    grader = Grader(engine, limits=limits, seed=seed, until=until)
    try:
        with output.open("w", encoding="utf-8") as file, _progress(console) as progress:
            task = progress.add_task("grading", total=len(lines))
            for line, graded in _in_order(grader, lines, jobs, repeat, lambda: progress.advance(task)):
                tally[graded.verdict.outcome] += 1
                if graded.flips:
                    flipped.append(f"{line.problem.id} sample {line.sample}: {', '.join(graded.flips)}")
                file.write(json.dumps(verdict_record(line, graded)) + "\n")
                file.flush()
    finally:
        grader.close()
        engine.close()
    _summarise(console, tally, time.monotonic() - started, output, flipped)
    return not complaints and not tally[Outcome.INFRASTRUCTURE_ERROR]


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
            for number, raw in enumerate(_lines(file), 1):
                if raw is not None and not raw.strip():
                    continue
                try:
                    line = _answer_line(number, raw, problems, why_not, counted)
                except ValueError as error:
                    complaints.append(f"{path.name}:{number}: {error}")
                else:
                    counted[line.problem.id] += 1
                    lines.append(line)
    except OSError as error:
        raise ProblemError(f"cannot read the answers file {path}: {error.strerror}", "check the path") from error
    return lines, complaints


def verdict_record(line: AnswerLine, graded: Graded) -> dict[str, Any]:
    """What is written for one answer."""
    verdict = graded.verdict
    record = {
        "id": line.problem.id,
        "sample": line.sample,
        "outcome": verdict.outcome.value,
        "passed": verdict.passed,
        "stages": {
            result.stage.value: {
                "status": result.status,
                "reasons": list(result.reasons),
                "wall_s": round(result.wall_s, 4),
            }
            for result in verdict.stages
        },
        "tests_passed": verdict.tests_passed,
        "tests_total": verdict.tests_total,
        "reasons": list(verdict.reasons),
        "mismatches": [mismatch.model_dump(mode="json") for mismatch in verdict.mismatches],
        "wall_s": round(verdict.wall_s, 4),
        "executor": verdict.executor,
        "tools": verdict.tools,
        "seed": verdict.seed,
    }
    if line.answer.ignored:
        record["ignored"] = list(line.answer.ignored)
    if graded.flips:
        record["flips"] = list(graded.flips)
    return record


def _lines(file: Any) -> Iterator[bytes | None]:
    """Lines of a file; None for one that is too long to be read."""
    while raw := file.readline(MAX_LINE_BYTES + 1):
        too_long = len(raw) > MAX_LINE_BYTES
        while too_long and not raw.endswith(b"\n") and (raw := file.readline(1 << 20)):
            pass
        yield None if too_long else raw


def _answer_line(
    number: int, raw: bytes | None, problems: dict[str, Problem], why_not: dict[str, str], counted: Counter[str]
) -> AnswerLine:
    """One line as an answer; raises ValueError that says what is wrong with it."""
    if raw is None:
        raise ValueError(f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"is a JSON {type(record).__name__}, not an object")
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
        return AnswerLine(number, problem, sample, extract_answer(record["response"], problem.targets))
    raise ValueError("needs either `response` (text) or `files` (an object of path and text)")


def _in_order(
    grader: Grader, lines: list[AnswerLine], jobs: int, repeat: int, done: Any
) -> Iterator[tuple[AnswerLine, Graded]]:
    """Verdicts in the lines' order, as soon as each and all before it are there."""
    with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="grade") as pool:
        waiting: dict[Future[Graded], int] = {
            pool.submit(_grade, grader, line, repeat): index for index, line in enumerate(lines)
        }
        ready: dict[int, Graded] = {}
        following = 0
        try:
            for future in as_completed(waiting):
                ready[waiting[future]] = future.result()
                done()
                while following in ready:
                    yield lines[following], ready.pop(following)
                    following += 1
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _grade(grader: Grader, line: AnswerLine, repeat: int) -> Graded:
    verdicts = [grader.grade(line.problem, line.answer) for _ in range(repeat)]
    outcomes = tuple(verdict.outcome.value for verdict in verdicts)
    # The worst of several is kept: what does not hold is not paid.
    worst = min(verdicts, key=lambda verdict: (verdict.passed, verdict.tests_passed))
    return Graded(worst, outcomes if len(set(outcomes)) > 1 else ())


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _summarise(console: Console, tally: Counter[Outcome], seconds: float, output: Path, flipped: list[str]) -> None:
    total = sum(tally.values())
    table = Table(title=f"{total} answers graded in {seconds:.1f} s")
    table.add_column("outcome")
    table.add_column("answers", justify="right")
    table.add_column("share", justify="right")
    for outcome in Outcome:
        if tally[outcome]:
            table.add_row(outcome.value, str(tally[outcome]), f"{tally[outcome] / total:.1%}")
    Console().print(table)
    for line in flipped:
        console.print(f"flips: {line}", style="yellow", markup=False, highlight=False)
    console.print(f"verdicts written to {output}", markup=False, highlight=False, soft_wrap=True)
