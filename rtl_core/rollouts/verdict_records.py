"""Verdict records: graded from a file of answers, exported from a run, and reproduced.

`grade_file` writes each verdict as soon as it is known. It survives however the process ends, and the same call resumes from there
(grading/verdict_file.py). `reproduce` grades the answers of records again and reports differences. A record contains the answer and the
conditions of its grading; the caller provides the problems. Records that name different executors are all graded with one, and the
difference is reported.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.table import Table as RichTable

from rtl_core.errors import HistoryError, ProblemError
from rtl_core.grading.answer_file import AnswerLine, read_answers
from rtl_core.grading.cache import cache_key
from rtl_core.grading.executors import make_executor
from rtl_core.grading.grader import Grader, seeds_for
from rtl_core.grading.limits import KnownGood, Limits
from rtl_core.grading.pool import GraderPool
from rtl_core.grading.verdict_file import VerdictFile, named
from rtl_core.grading.verdict_record import (
    Conditions,
    VerdictRecord,
    answer_key,
    changed_fields,
    conditions_of,
    differences,
    verdict_record,
)
from rtl_core.history.store import History
from rtl_core.observe.progress import progress
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.prompting.answer_to import answer_to
from rtl_core.reporting.blocks import Table
from rtl_core.reporting.console import rich_table
from rtl_core.reporting.text import counted
from rtl_core.rollouts.resumable import Tally, problems_as_recorded, process_all
from rtl_core.run.folder import config_of
from rtl_core.run.graders import limits_of
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome, Stage


@dataclass(frozen=True)
class FileGrading:
    """Which answers to grade, and how."""

    problems: Path
    answers: Path
    output: Path
    executor: str = "bubblewrap"
    until: Stage = Stage.TESTS
    jobs: int = 0
    """Answers graded concurrently; 0 means one per core."""
    seed: int = 0
    seeds: int = 3
    limits: Limits | None = None
    repeat: int = 1
    """How often each answer is graded."""


@dataclass(frozen=True)
class GradedFile:
    """Result of `grade_file`."""

    records: list[dict[str, Any]]
    """All records of the output."""
    complaints: int
    """Lines that are not valid answers."""
    graded: int
    """Answers graded by this call."""
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every line got a verdict."""
        failed = any(record["outcome"] == Outcome.INFRASTRUCTURE_ERROR for record in self.records)
        return not self.complaints and not failed

    def table(self) -> RichTable:
        """Number and share of answers by outcome."""
        total = len(self.records)
        whole = f"{counted(total, 'answer')} graded in {self.seconds:.1f} s"
        title = whole if self.graded == total else f"{total} answers, {self.graded} graded now"
        tally = Counter(record["outcome"] for record in self.records)
        rows = [[o.value, str(tally[o]), f"{tally[o] / total:.1%}"] for o in Outcome if tally[o]]
        return rich_table(Table("", title, "", [("outcome", "left"), ("answers", "right"), ("share", "right")], rows))


def grade_file(asked: FileGrading) -> GradedFile:
    """Write one verdict per line to `asked.output`.

    Lines are written as they finish and sorted into the answers' order at the end. An answer whose verdict the output already
    holds, for the same problem, text, tools and settings, is not graded again unless grading itself failed. Equal answers are
    graded once. Broken answer lines are reported with file and line.

    Raises:
        ProblemError: a file cannot be read or written, or the output holds something other than verdicts.
        ToolMissingError, InfrastructureError: the executor cannot start, or a verdict cannot be written.
        KeyboardInterrupt: with the number of verdicts written; the executor is closed, and its simulations have ended.
    """
    tell = progress.get().line
    found = read_cvdp(asked.problems)
    for broken in found.broken:
        tell(f"problem left out: {broken}")
    lines, complaints = read_answers(asked.answers, found)
    for complaint in complaints:
        tell(complaint)
    started = time.monotonic()
    with (
        closing(make_executor(asked.executor)) as executor,
        closing(VerdictFile(asked.output)) as stored,
    ):
        grader = Grader(executor, limits=asked.limits, seed=asked.seed, seeds=asked.seeds, until=asked.until)
        keys = [key_of(grader, line, asked.repeat) for line in lines]
        records = {index: named(known, lines[index]) for index, key in enumerate(keys) if (known := stored.get(key))}
        reused, others = len(records), stored.unusable + len(stored) - len({keys[index] for index in records})
        if reused:
            tell(f"{reused} verdicts reused from {asked.output}")
        if others > 0:
            tell(f"{others} lines replaced (failed gradings, other answers or other settings)")
            stored.replace(records.values())
        try:
            with closing(GraderPool(grader, asked.jobs)) as pool:
                asyncio.run(_grade_rest(pool, lines, keys, records, stored, asked.repeat))
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(f"{len(records)} of {len(lines)} verdicts are written") from interrupt
        in_order = [records[index] for index in range(len(lines))]
        stored.replace(in_order)
    for record in in_order:
        if "flips" in record:
            tell(f"flips: {record['id']} sample {record['sample']}: {', '.join(record['flips'])}")
    tell(f"verdicts written to {asked.output}")
    return GradedFile(in_order, len(complaints), len(lines) - reused, time.monotonic() - started)


async def _grade_rest(
    pool: GraderPool,
    lines: list[AnswerLine],
    keys: list[str],
    records: dict[int, dict[str, Any]],
    stored: VerdictFile,
    repeat: int,
) -> None:
    """Grade the lines that have no record yet, and add theirs to `records`, which maps the index of a line to its record."""
    for index, record in records.items():
        if record["passed"]:
            pool.grader.known_good.learn(lines[index].problem, lines[index].answer, record["cpu_s"])
    equal: dict[str, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        if index not in records:
            equal[key].append(index)

    async def grade(indices: list[int]) -> None:
        record = await pool.call(graded_record, pool.grader, lines[indices[0]], keys[indices[0]], repeat)
        for index in indices:
            records[index] = named(record, lines[index])
            stored.add(records[index])

    await process_all(
        equal.values(),
        grade,
        Tally("answers graded", len(lines), len(records)),
        concurrency=pool.threads,
        name=lambda indices: f"{lines[indices[0]].problem.id} sample {lines[indices[0]].sample}",
        size=len,
    )


def key_of(grader: Grader, line: AnswerLine, repeat: int = 1) -> str:
    """Return the `answer_key` of one line under a grader's conditions."""
    return answer_key(grader.key(line.problem, line.answer), line.answer, repeat)


def graded_record(grader: Grader, line: AnswerLine, key: str, repeat: int = 1) -> dict[str, Any]:
    """Grade one line and return its record; `key` is its `key_of`. Does not raise: a failure of grading is a verdict too."""
    verdicts = [grader.grade(line.problem, line.answer) for _ in range(repeat)]
    outcomes = tuple(verdict.outcome.value for verdict in verdicts)
    # The worst of several is kept: a pass that does not repeat earns nothing.
    worst = min(verdicts, key=lambda verdict: (verdict.passed, verdict.tests_passed))
    flips = outcomes if len(set(outcomes)) > 1 else ()
    return verdict_record(line, worst, key, conditions_of(grader, line.problem, repeat), flips)


@dataclass
class Claim:
    """One line of a file of records."""

    line: int
    raw: dict[str, Any]
    record: VerdictRecord | None = None
    found: list[tuple[str, str]] = field(default_factory=list)
    """Differences as (kind, detail); empty if the record was reproduced."""

    @property
    def name(self) -> str:
        return f"line {self.line}: {self.raw.get('id', '?')} sample {self.raw.get('sample', '?')}"


def reproduce(path: Path, problems: Sequence[Problem], executor: str | None = None, jobs: int = 0) -> list[Claim]:
    """Check the digest of every record of a file and grade its answer again. Returns one claim per line.

    Args:
        problems: the records' problems, looked up by fingerprint, else by id.
        executor: where the harness runs; by default the one that most records name.
        jobs: answers graded concurrently; 0 means one per core.

    Raises:
        ProblemError: the file cannot be read, or holds no record.
        ToolMissingError, InfrastructureError: the executor cannot start.
    """
    claims = read_claims(path)
    usable = [(claim, claim.record) for claim in claims if claim.record is not None]
    named = Counter(record.executor for _, record in usable).most_common(1)
    chosen = make_executor(executor or (named[0][0] if named else "bubblewrap"))
    with closing(GraderPool(Grader(chosen), jobs)) as pool:
        graders: dict[str, Grader] = {}
        by_name = {**{p.id: p for p in problems}, **{p.fingerprint: p for p in problems}}
        work: list[tuple[Claim, AnswerLine, Grader]] = []
        for claim, record in usable:
            problem = by_name.get(record.graded.get("problem", ""), by_name.get(record.id))
            if problem is None:
                claim.found.append(("unknown problem", f"none of the given problems is {record.id}"))
                continue
            line = AnswerLine(claim.line, problem, record.sample, record.answer)
            asked, name = record.conditions, record.conditions.model_dump_json()
            if name not in graders:
                # What a harness does may depend on the conditions, so facts about problems are not shared.
                graders[name] = pool.grader.but(
                    limits=asked.limits, seed=asked.seed, seeds=asked.seeds, until=asked.until, _known={}
                )
            _learn(pool.grader.known_good, line, record)
            work.append((claim, line, graders[name]))
        asyncio.run(_grade_all(pool, work))
    return claims


def read_claims(path: Path) -> list[Claim]:
    """Read a file of records. `found` of a line says whether it is broken, altered or incomplete."""
    try:
        with path.open("rb") as file:
            claims = [_claim(number, text) for number, text in enumerate(file, 1)]
    except OSError as error:
        raise ProblemError(f"cannot read the verdicts {path}: {error.strerror}", "check the path") from error
    if not any(claim.record for claim in claims):
        raise ProblemError(f"{path} holds no verdict record", "`rtl-distill grade` and `export -f verdicts` write them")
    return claims


def _claim(number: int, text: bytes) -> Claim:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Claim(number, {}, found=[("malformed", f"is not JSON: {error}")])
    if not isinstance(raw, dict):
        return Claim(number, {}, found=[("malformed", f"is a JSON {type(raw).__name__}, not an object")])
    if "digest" not in raw:
        words = "has no digest: an earlier version wrote the record, or the digest was removed"
        return Claim(number, raw, found=[("malformed", words)])
    claim = Claim(number, raw, found=[("altered", name) for name in changed_fields(raw)])
    try:
        claim.record = VerdictRecord.model_validate(raw)
    except ValidationError as error:
        claim.found += [("malformed", f"{'.'.join(map(str, e['loc']))}: {e['msg']}") for e in error.errors()]
    return claim


def _learn(known: KnownGood, line: AnswerLine, record: VerdictRecord) -> None:
    """Learn from the record how much CPU time a right answer to its problem takes."""
    if record.outcome is Outcome.PASSED:
        known.learn(line.problem, line.answer, record.cpu_s)
    elif record.cpu_limit_s is not None:
        good_s, name = record.cpu_limit_s / record.conditions.limits.cpu_factor, line.problem.fingerprint
        known.passing[name] = max(good_s, known.passing.get(name, 0.0))


async def _grade_all(pool: GraderPool, work: list[tuple[Claim, AnswerLine, Grader]]) -> None:
    async def grade(item: tuple[Claim, AnswerLine, Grader]) -> None:
        item[0].found += await pool.call(_compare, *item)

    tally = Tally("verdicts graded again", len(work))
    await process_all(work, grade, tally, concurrency=pool.threads, name=lambda item: item[0].name)


def _compare(claim: Claim, line: AnswerLine, grader: Grader) -> list[tuple[str, str]]:
    """Grade a claim's answer again and return the differences."""
    assert claim.record is not None
    repeat = claim.record.conditions.repeat
    now = graded_record(grader, line, key_of(grader, line, repeat), repeat)
    if now["outcome"] == Outcome.INFRASTRUCTURE_ERROR:
        return [("not graded", "; ".join(now["reasons"]))]
    found = list(differences(claim.raw, now))
    if claim.record.key != now["key"] and not any(kind != "other outcome" for kind, _ in found):
        found.append(("altered", "key does not follow from the record's other fields"))
    return found


def records_of(history: History, run: str) -> Iterator[dict[str, Any]]:
    """Yield the record of every verdict of a run: training by step, then evaluations. HistoryError if a problem is missing."""
    config = config_of(history, run)
    problems = problems_as_recorded(history, run)
    places: list[int | str] = [state.step for state in history.steps(run)]
    for place in [*places, *(evaluation.key for evaluation in history.evaluations(run))]:
        for stored in history.rollouts_of(run, place):
            rollout, verdict = stored.rollout, stored.verdict
            if verdict is None or verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
                continue
            if rollout.problem_id not in problems:
                raise HistoryError(
                    f"{history.path} has lost problem {rollout.problem_id!r}", "restore it from a snapshot"
                )
            problem = problems[rollout.problem_id]
            line = AnswerLine(0, problem, rollout.sample, answer_to(problem, rollout.text))
            section = config.grading
            asked = Conditions(
                seed=section.seed,
                seeds=seeds_for(problem, section.seeds),
                limits=limits_of(config),
                until=Stage(section.last_stage(rollout.purpose, rollout.step)),
            )
            key = cache_key(
                problem,
                line.answer.files,
                executor=verdict.executor,
                tools=verdict.tools,
                **{name: getattr(asked, name) for name in ("seed", "seeds", "limits", "until")},
            )
            yield verdict_record(line, verdict, answer_key(key, line.answer), asked)
