"""Grade the answers of verdict records again, and compare."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from rtl_grader.errors import ProblemError
from rtl_grader.grading.answer_file import MAX_LINE_BYTES, AnswerLine
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.limits import KnownGood
from rtl_grader.grading.pool import GraderPool
from rtl_grader.grading.verdict_record import Record, VerdictRecord, changed_fields, differences
from rtl_grader.problems.cvdp import json_lines
from rtl_grader.records.grade_file import graded_record, key_of
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome
from rtl_grader.words import command
from rtl_grader.work import Tally, process_all

Difference = tuple[str, str]
"""(kind, detail)"""


@dataclass
class CheckedRecord:
    """One line of a file of records."""

    line: int
    raw: Record
    record: VerdictRecord | None = None
    differences: list[Difference] = field(default_factory=list)
    """Empty if the record was reproduced."""

    @property
    def name(self) -> str:
        identity, sample = self.raw.get("id", "?"), self.raw.get("sample", "?")
        return f"line {self.line}: {identity} sample {sample}"


_Work = tuple[CheckedRecord, AnswerLine, Grader]


def reproduce(
    path: Path, problems: Sequence[Problem], executor: str | None = None, jobs: int = 0
) -> list[CheckedRecord]:
    """Check the digest of every record of a file and grade its answer again. Returns one result per line.

    Args:
        problems: the records' problems, looked up by fingerprint, else by id.
        executor: where the harness runs; by default the one that most records name.
        jobs: answers graded concurrently; 0 means one per core.

    Raises:
        ProblemError: the file cannot be read, or holds no record.
        ToolMissingError, InfrastructureError: the executor cannot start.
    """
    claims = read_records(path)
    usable = [(claim, claim.record) for claim in claims if claim.record is not None]
    executors = Counter(record.executor for _, record in usable)
    usual, _ = executors.most_common(1)[0]
    grader = Grader(make_executor(executor or usual))
    with closing(GraderPool(grader, jobs)) as pool:
        graders: dict[str, Grader] = {}
        by_name = {**{p.id: p for p in problems}, **{p.fingerprint: p for p in problems}}
        work: list[_Work] = []
        for claim, record in usable:
            problem = by_name.get(record.graded.get("problem", ""), by_name.get(record.id))
            if problem is None:
                detail = f"none of the given problems is {record.id}"
                claim.differences.append(("unknown problem", detail))
                continue
            line = AnswerLine(claim.line, problem, record.sample, record.answer)
            name = record.conditions.model_dump_json()
            if name not in graders:
                # What a harness does may depend on the conditions, so facts about problems are not shared.
                conditions = record.conditions
                graders[name] = pool.grader.but(
                    limits=conditions.limits,
                    seed=conditions.seed,
                    seeds=conditions.seeds,
                    until=conditions.until,
                    _facts={},
                )
            _learn(pool.grader.known_good, line, record)
            work.append((claim, line, graders[name]))
        asyncio.run(_grade_all(pool, work))
    return claims


def read_records(path: Path) -> list[CheckedRecord]:
    """Read a file of records. `differences` of a line say whether it is broken, altered or incomplete."""
    try:
        with path.open("rb") as file:
            claims = [_checked(*row) for row in json_lines(file, MAX_LINE_BYTES)]
    except OSError as error:
        raise ProblemError(
            f"cannot read the verdicts {path}: {error.strerror}", "check the path"
        ) from error
    if not any(claim.record for claim in claims):
        raise ProblemError(
            f"{path} holds no verdict record",
            f"`{command('grade')}` and `{command('serve-grader')}` write them, "
            "and `rtl-distill admin export -f verdicts`",
        )
    return claims


def _checked(number: int, raw: Record | str) -> CheckedRecord:
    if isinstance(raw, str):
        return CheckedRecord(number, {}, differences=[("malformed", raw)])
    if "digest" not in raw:
        why = "has no digest: an earlier version wrote the record, or the digest was removed"
        return CheckedRecord(number, raw, differences=[("malformed", why)])
    claim = CheckedRecord(
        number, raw, differences=[("altered", name) for name in changed_fields(raw)]
    )
    try:
        claim.record = VerdictRecord.model_validate(raw)
    except ValidationError as error:
        for problem in error.errors():
            place = ".".join(map(str, problem["loc"]))
            claim.differences.append(("malformed", f"{place}: {problem['msg']}"))
    return claim


def _learn(known: KnownGood, line: AnswerLine, record: VerdictRecord) -> None:
    """Learn from the record how much CPU time a right answer to its problem takes."""
    if record.outcome is Outcome.PASSED:
        known.learn(line.problem, line.answer, record.cpu_s)
    elif record.cpu_limit_s is not None:
        good_s = record.cpu_limit_s / record.conditions.limits.cpu_factor
        name = line.problem.fingerprint
        known.passing[name] = max(good_s, known.passing.get(name, 0.0))


async def _grade_all(pool: GraderPool, work: list[_Work]) -> None:
    async def grade(item: _Work) -> None:
        item[0].differences += await pool.call(_compare, *item)

    tally = Tally("verdicts graded again", len(work))
    await process_all(
        work, grade, tally, concurrency=pool.threads, name=lambda item: item[0].name
    )


def _compare(claim: CheckedRecord, line: AnswerLine, grader: Grader) -> list[Difference]:
    """Grade the answer of a record again and return the differences."""
    assert claim.record is not None
    repeat = claim.record.conditions.repeat
    now = graded_record(grader, line, key_of(grader, line, repeat), repeat)
    if now["outcome"] == Outcome.INFRASTRUCTURE_ERROR:
        return [("not graded", "; ".join(now["reasons"]))]
    results = list(differences(claim.raw, now))
    explained = any(kind != "other outcome" for kind, _ in results)
    if claim.record.key != now["key"] and not explained:
        results.append(("altered", "key does not follow from the record's other fields"))
    return results
