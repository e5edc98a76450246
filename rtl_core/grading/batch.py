"""Grades a file of answers against a file of problems, with progress and a summary on the console.

Verdicts are written as they finish; what is finished survives whatever ends the process, and the same call goes on from
there (verdict_file.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rtl_core.errors import ProblemError
from rtl_core.grading.cache import cache_key
from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.grading.verdict import Outcome, Stage, Verdict
from rtl_core.grading.verdict_file import Place, VerdictFile
from rtl_core.problems.cvdp import ProblemSet, read_cvdp
from rtl_core.problems.problem import Problem
from rtl_core.prompting.answer import Answer
from rtl_core.prompting.answer_to import answer_to
from rtl_core.prompting.extraction import MAX_RESPONSE_CHARS

MAX_LINE_BYTES = 256 << 20
TELL_S = 1.0
"""How often the progress is renewed while nothing finishes."""
TELL_LINE_S = 30.0
"""The same where the console is no terminal and every renewal is a line."""
END_S = 1.0
"""How long threads are waited for once the executor is closed."""


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


class GradingInterruptedError(KeyboardInterrupt):
    """Grading was interrupted; the executor is closed, and `done` of `total` verdicts are in the output."""

    def __init__(self, done: int, total: int) -> None:
        super().__init__(f"{done} of {total} verdicts are written")
        self.done, self.total = done, total


def grade_file(
    problems: Path,
    answers: Path,
    output: Path,
    *,
    executor: str = "bubblewrap",
    until: Stage = Stage.TESTS,
    jobs: int = 0,
    seed: int = 0,
    seeds: int = 3,
    limits: Limits | None = None,
    repeat: int = 1,
    console: Console | None = None,
) -> bool:
    """Writes one verdict a line to `output`; True when every answer line got one.

    Lines are written as they finish, and put into the answers' order at the end. Answers that `output` already holds a
    verdict on, from the same problem, answer text, tools and settings, are not graded again, unless grading itself failed.
    Broken answer lines are named on the console with file and line, the others are graded.

    Raises:
        ProblemError: a file cannot be read or written, or `output` holds something else than verdicts.
        ToolMissingError, InfrastructureError: the executor cannot start.
        GradingInterruptedError: on KeyboardInterrupt, with the executor closed and its simulations ended.
    """
    console = console or Console(stderr=True)
    found = read_cvdp(problems)
    for broken in found.broken:
        console.print(f"problem left out: {broken}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    lines, complaints = read_answers(answers, found)
    for complaint in complaints:
        console.print(complaint, style="bold red", markup=False, highlight=False, soft_wrap=True)
    started = time.monotonic()
    tally: Counter[Outcome] = Counter()
    flipped: list[str] = []
    engine = make_executor(executor)
    grader = Grader(engine, limits=limits, seed=seed, seeds=seeds, until=until)
    try:
        places = [Place(line.problem.id, line.sample, answer_key(grader, line, repeat)) for line in lines]
        verdicts = VerdictFile(output, places)
        tally.update(Outcome(record["outcome"]) for record in verdicts.known.values())
        flipped += [_flips(record) for record in verdicts.known.values() if record.get("flips")]
        waiting = [index for index in range(len(lines)) if index not in verdicts.known]
        if verdicts.known or verdicts.replaced:
            _tell_taken_up(console, verdicts)
        try:
            with (
                _Telling(console, lines, len(verdicts.known)) as telling,
                closing(_graded(grader, lines, waiting, jobs or os.cpu_count() or 1, repeat, telling)) as finished,
            ):
                for index, graded in finished:
                    record = verdict_record(lines[index], graded, places[index].key)
                    verdicts.add(index, record)
                    tally[graded.verdict.outcome] += 1
                    telling.finished()
                    if graded.flips:
                        flipped.append(_flips(record))
        except KeyboardInterrupt as interrupt:
            # The simulations in flight end with the executor; whoever waits for one gets no verdict to write.
            raise GradingInterruptedError(tally.total(), len(lines)) from interrupt
        finally:
            verdicts.close()
    finally:
        grader.close()
        engine.close()
    _summarise(console, tally, len(verdicts.known), time.monotonic() - started, output, flipped)
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


def answer_key(grader: Grader, line: AnswerLine, repeat: int) -> str:
    """SHA-256 (hex) over all that decides the verdict on a line: problem, answer, tools, settings, the grader's version."""
    graded = cache_key(
        line.problem,
        line.answer.files,
        executor=grader.executor.name,
        tools=grader.executor.tools(),
        seed=grader.seed,
        seeds=grader.seeds,
        limits=grader.limits,
        until=grader.until,
    )
    parts = (graded, line.answer.error, list(line.answer.ignored), repeat)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def verdict_record(line: AnswerLine, graded: Graded, key: str) -> dict[str, Any]:
    """What is written for one answer; `key` is its `answer_key`."""
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
        "key": key,
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
        return AnswerLine(number, problem, sample, answer_to(problem, record["response"]))
    raise ValueError("needs either `response` (text) or `files` (an object of path and text)")


def _graded(
    grader: Grader, lines: Sequence[AnswerLine], waiting: Sequence[int], jobs: int, repeat: int, telling: _Telling
) -> Generator[tuple[int, Graded], None, None]:
    """(index, verdict) of the waiting lines as they finish. Closed early, it closes the grader's executor, so that all end.

    The threads are daemons: an answer that hangs must hold up neither an interrupt nor the end of the process.
    """
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Graded | BaseException]] = queue.SimpleQueue()
    left = threading.Event()
    for index in waiting:
        todo.put(index)

    def work() -> None:
        while not left.is_set():
            try:
                index = todo.get_nowait()
            except queue.Empty:
                return
            telling.begun(index)
            try:
                result: Graded | BaseException = _grade(grader, lines[index], repeat)
            except BaseException as error:
                result = error
            telling.ended(index)
            done.put((index, result))

    threads = [
        threading.Thread(target=work, name=f"grade-{number}", daemon=True) for number in range(min(jobs, len(waiting)))
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in waiting:
            while True:
                try:
                    index, result = done.get(timeout=TELL_S)
                    break
                except queue.Empty:
                    telling.renew()
            if isinstance(result, BaseException):
                raise result
            yield index, result
    except BaseException:
        left.set()
        # What is in flight ends with the executor, which nobody needs any more.
        grader.executor.close()
        deadline = time.monotonic() + END_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        raise


def _grade(grader: Grader, line: AnswerLine, repeat: int) -> Graded:
    verdicts = [grader.grade(line.problem, line.answer) for _ in range(repeat)]
    outcomes = tuple(verdict.outcome.value for verdict in verdicts)
    # The worst of several is kept: what does not hold is not paid.
    worst = min(verdicts, key=lambda verdict: (verdict.passed, verdict.tests_passed))
    return Graded(worst, outcomes if len(set(outcomes)) > 1 else ())


class _Telling:
    """Tells how grading goes: a bar on a terminal, else a line at every tenth of the way and at least every half minute."""

    def __init__(self, console: Console, lines: Sequence[AnswerLine], known: int) -> None:
        self._console, self._lines, self._done = console, lines, known
        self._at_work: dict[int, float] = {}
        """Index -> when its grading began (monotonic)."""
        self._told, self._told_at = self._tenth(), time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("grading", total=len(lines), completed=known)

    def __enter__(self) -> _Telling:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def begun(self, index: int) -> None:
        self._at_work[index] = time.monotonic()

    def ended(self, index: int) -> None:
        self._at_work.pop(index, None)

    def finished(self) -> None:
        """One more verdict is written."""
        self._done += 1
        self.renew()

    def renew(self) -> None:
        """Tell how it stands now, if it is time."""
        if self._console.is_terminal:
            longest = self._longest()
            self._bar.update(self._task, completed=self._done, description=f"grading{longest and f' ({longest})'}")
            return
        now = time.monotonic()
        if self._tenth() != self._told or now - self._told_at >= TELL_LINE_S:
            self._told, self._told_at = self._tenth(), now
            text = ", ".join(filter(None, (f"graded {self._done} of {len(self._lines)}", self._longest())))
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _tenth(self) -> int:
        return 10 * self._done // max(len(self._lines), 1)

    def _longest(self) -> str:
        """The answer that is at work longest, once that is worth a word."""
        at_work = dict(self._at_work)
        index = min(at_work, key=lambda i: at_work[i], default=None)
        if index is None or (seconds := time.monotonic() - at_work[index]) < 5:
            return ""
        line = self._lines[index]
        return f"longest at work: {line.problem.id} sample {line.sample}, {seconds:.0f} s"


def _tell_taken_up(console: Console, verdicts: VerdictFile) -> None:
    parts = [f"{len(verdicts.known)} verdicts taken up from {verdicts.path}"] if verdicts.known else []
    if verdicts.replaced:
        parts.append(f"{verdicts.replaced} lines replaced (failed gradings, other answers or other settings)")
    console.print("; ".join(parts), markup=False, highlight=False, soft_wrap=True)


def _flips(record: dict[str, Any]) -> str:
    return f"{record['id']} sample {record['sample']}: {', '.join(record['flips'])}"


def _summarise(
    console: Console, tally: Counter[Outcome], known: int, seconds: float, output: Path, flipped: list[str]
) -> None:
    total = tally.total()
    title = f"{total} answers, {total - known} graded now" if known else f"{total} answers graded in {seconds:.1f} s"
    table = Table(title=title)
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
