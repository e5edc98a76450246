"""Verdict records: the answer, tools, conditions and result of a grading, with hashes of all fields (the seal).

`changed_fields` finds fields altered since the record was sealed. `differences` compares it with a second
grading of the same answer. A seal is not a signature: only the second grading reveals a record that was
altered and sealed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from rtl_grader.digest import sha256_of
from rtl_grader.grading.answer_file import AnswerLine
from rtl_grader.grading.cache import Conditions, interface_of
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Verdict

Record = dict[str, Any]
"""The JSON object of one answer, as in a file of verdicts."""
_SEAL = ("sums", "digest")
_RESULT = ("outcome", "passed", "tests_passed", "tests_total", "mismatches")
_MEASURES = "tests_passed tests_total reasons mismatches wall_s cpu_s cpu_limit_s"
_VALUES = (*_MEASURES.split(), "executor", "tools", "seed")
"""Fields that a record and its verdict share by name."""


class VerdictRecord(BaseModel, frozen=True):
    """The fields of a record that a second grading needs."""

    id: str
    sample: int
    outcome: Outcome
    answer: Answer
    graded: dict[str, str]
    """SHA-256 (hex) of `problem` (its fingerprint), `harness`, `interface` and `answer`."""
    conditions: Conditions
    executor: str
    tools: dict[str, str]
    cpu_s: float
    cpu_limit_s: float | None
    key: str
    stages: dict[str, dict[str, Any]] = {}


def verdict_record(
    line: AnswerLine,
    verdict: Verdict,
    key: str,
    conditions: Conditions,
    flips: Sequence[str] = (),
) -> Record:
    """Return the sealed record of one answer. `key` is its `answer_key`, `flips` the outcomes of gradings
    that disagree."""
    values = verdict.model_dump(mode="json")
    for stage in (values, *values["stages"]):
        stage["wall_s"] = round(stage["wall_s"], 4)
    values["cpu_s"] = round(verdict.cpu_s, 4)
    record = {
        "id": line.problem.id,
        "sample": line.sample,
        "outcome": values["outcome"],
        "passed": verdict.passed,
        "stages": {stage.pop("stage"): stage for stage in values["stages"]},
        **{name: values[name] for name in _VALUES},
        "conditions": conditions.model_dump(mode="json"),
        "graded": digests(line.problem, line.answer),
        "answer": {"files": line.answer.files, "error": line.answer.error},
        "key": key,
    }
    if line.answer.ignored:
        record["ignored"] = list(line.answer.ignored)
    if flips:
        record["flips"] = list(flips)
    return sealed(record)


def answer_key(grader_key: str, answer: Answer, repeat: int = 1) -> str:
    """SHA-256 (hex) of everything that decides the verdict on an answer; `grader_key` is `Grader.key`,
    which covers its files."""
    return sha256_of((grader_key, answer.error, list(answer.ignored), repeat))


def digests(problem: Problem, answer: Answer) -> dict[str, str]:
    """See `VerdictRecord.graded`."""
    return {
        "problem": problem.fingerprint,
        "harness": sha256_of(problem.harness),
        "interface": sha256_of(interface_of(problem)),
        "answer": sha256_of([answer.files, answer.error]),
    }


def sealed(record: Record) -> Record:
    """Return the record with `sums`, a short hash of each field, and `digest`, the SHA-256 (hex) of all fields."""
    fields = {name: value for name, value in record.items() if name not in _SEAL}
    return {
        **fields,
        "sums": {name: sha256_of(value)[:12] for name, value in fields.items()},
        "digest": sha256_of(fields),
    }


def changed_fields(record: Record) -> list[str]:
    """Fields that were altered, added or removed since the record was sealed."""
    again = sealed(record)
    right = again["sums"]
    sums = record.get("sums")
    if not isinstance(sums, dict):
        return ["sums"]
    names = [name for name in {**right, **sums} if right.get(name) != sums.get(name)]
    if not names and again["digest"] != record.get("digest"):
        return ["digest"]
    return names


def differences(was: Record, now: Record) -> Iterator[tuple[str, str]]:
    """Yield the differences between two records of one answer: (kind, detail). Times and reasons are not compared."""
    before, after = _facts(was), _facts(now)
    for kind, name in before | after:
        one, other = (facts.get((kind, name), "none") for facts in (before, after))
        if one != other:
            yield kind, f"{name} {one}, now {other}".lstrip()


def _facts(record: Record) -> dict[tuple[str, str], object]:
    """What two records of one answer must share, by the kind of a difference and a name."""
    facts = {("other tools", "executor"): record["executor"]}
    for name, version in record["tools"].items():
        facts["other tools", name] = version
    for name, digest in record["graded"].items():
        facts[f"other {name}", ""] = digest[:12]
    for name, value in record["conditions"].items():
        facts["other conditions", name] = value
    for name in _RESULT:
        facts["other outcome", name] = record.get(name)
    for name, stage in record.get("stages", {}).items():
        facts["other outcome", f"{name} stage"] = stage.get("status")
    return facts
