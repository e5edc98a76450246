"""Verdict records are graded again, and each difference is reported."""

import json
from pathlib import Path
from typing import Any

import pytest

from rtl_core.config import load_config
from rtl_core.history.records import RunRecord, StepPlan
from rtl_core.history.store import History
from rtl_core.rollouts.datums import golden_response
from rtl_core.rollouts.verdict_records import records_of
from rtl_core.starter import starter_problems
from rtl_grader.grading.answer_file import AnswerLine
from rtl_grader.grading.verdict_record import sealed
from rtl_grader.records.grade_file import graded_record, key_of
from rtl_grader.records.reproduce import reproduce
from rtl_grader.settings import grader_of
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Problem
from tests.command import invoke
from tests.nouns import a_rollout

PROBLEMS = starter_problems("train", 3, 0)
Records = list[dict[str, Any]]


def wrong(problem: Problem) -> Answer:
    """The golden answer, changed so that it ends the simulation."""
    ((path, text),) = (problem.golden or {}).items()
    return Answer(files={path: text.replace("endmodule", "  initial $finish;\nendmodule")})


@pytest.fixture(scope="module")
def records(grader):
    """Records of the golden answer, a wrong one and no answer to each problem."""
    answers = [
        (p, a)
        for p in PROBLEMS
        for a in (Answer(files=p.golden or {}), wrong(p), Answer(error="no code"))
    ]
    lines = [
        AnswerLine(0, problem, number, answer)
        for number, (problem, answer) in enumerate(answers)
    ]
    return [graded_record(grader, line, key_of(grader, line)) for line in lines]


def found_in(
    folder: Path, records: Records, problems: list[Problem] = PROBLEMS
) -> list[list[tuple[str, str]]]:
    path = folder / "verdicts.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return [claim.differences for claim in reproduce(path, problems)]


def test_unchanged_records_are_reproduced(records, tmp_path):
    assert {record["passed"] for record in records} == {True, False}
    assert found_in(tmp_path, records) == [[]] * len(records)


@pytest.mark.slow
def test_each_altered_field_is_reported(records, tmp_path):
    right = records[0]
    other = {
        "outcome": "tests_failed",
        "tests_passed": 0,
        "reasons": ["no"],
        "wall_s": 0.1,
        "seed": 7,
        "sample": 4,
    }
    tools = {**right["tools"], "iverilog": "13.0"}
    limits = {**right["conditions"], "limits": {**right["conditions"]["limits"], "wall_s": 3.0}}
    other |= {
        "tools": tools,
        "conditions": limits,
        "graded": {**right["graded"], "harness": "0" * 64},
    }
    other |= {"answer": records[1]["answer"], "key": "0" * 64, "digest": "0" * 64}
    altered = [{**right, name: value} for name, value in other.items()]
    found = found_in(tmp_path, altered)
    for name, said in zip(other, found, strict=True):
        assert ("altered", name) in said, (name, said)
    told = {name: [kind for kind, _ in said] for name, said in zip(other, found, strict=True)}
    assert "other outcome" in told["outcome"]
    assert ("other tools", f"iverilog 13.0, now {right['tools']['iverilog']}") in found[
        list(other).index("tools")
    ]
    assert "other harness" in told["graded"]
    assert {"other answer", "other outcome"} <= set(told["answer"])
    without = {name: value for name, value in right.items() if name != "reasons"}
    assert found_in(tmp_path, [{**right, "note": "x"}, without]) == [
        [("altered", "note")],
        [("altered", "reasons")],
    ]


def test_a_false_record_with_a_valid_digest_is_found_by_grading(records, tmp_path):
    paid = sealed({**records[1], "outcome": "passed", "passed": True})
    moved = sealed({**records[0], "conditions": {**records[0]["conditions"], "seed": 5}})
    called = sealed({**records[1], "passed": True})
    (outcome, passed), (key,), (alone,) = found_in(tmp_path, [paid, moved, called])
    assert outcome == ("other outcome", f"outcome passed, now {records[1]['outcome']}")
    assert passed == alone == ("other outcome", "passed True, now False")
    assert key[0] == "altered"
    assert key[1].startswith("key")


def test_another_harness_and_a_missing_problem_are_reported(records, tmp_path):
    first = PROBLEMS[0]
    harness = {
        path: text + "\n# changed\n" if path.endswith(".py") else text
        for path, text in first.harness.items()
    }
    problems = [first.model_copy(update={"harness": harness})]
    problems[0].__dict__.pop("fingerprint", None)
    changed, unknown = found_in(tmp_path, [records[0], records[3]], problems)
    assert {kind for kind, _ in changed} == {"other problem", "other harness"}
    assert [kind for kind, _ in unknown] == ["unknown problem"]


def test_malformed_lines_are_reported_with_their_number(records, tmp_path):
    path = tmp_path / "verdicts.jsonl"
    bare = {name: value for name, value in records[2].items() if name not in ("sums", "digest")}
    odd = records[2] | {"id": "\ud800", "stages": {"tests": "passed"}}
    path.write_text("{\n[]\n" + "\n".join(map(json.dumps, (bare, odd, records[2]))) + "\n")
    done = invoke("grade", "reproduce", path)
    assert done.exit_code == 1
    told = done.stdout.splitlines()
    assert told[0].startswith("line 1: ? sample ?: malformed: is not JSON")
    assert told[1].startswith("line 2: ? sample ?: malformed: is a JSON list")
    assert "line 3:" in told[2]
    assert "has no digest" in told[2]
    assert "malformed: stages.tests: " in done.stdout


def test_records_of_a_run_come_from_its_history_and_are_reproduced(grader, tmp_path):
    config = load_config("demo", ["run.name=r"])
    history, own = History(tmp_path / "h.duckdb"), grader_of(config.grading, grader.executor)
    history.start_run(RunRecord(name="r", config=config.model_dump(mode="json")))
    history.record_problems("r", [(problem, "train", None) for problem in PROBLEMS])
    history.plan_epoch(
        "r", 0, [StepPlan(step=0, problem_ids=tuple(problem.id for problem in PROBLEMS))]
    )
    for problem in PROBLEMS:
        rollout = a_rollout(problem_id=problem.id, text=golden_response(problem))
        history.record_rollouts([rollout])
        history.record_verdicts(
            [(rollout.key, own.grade(problem, Answer(files=problem.golden or {})), None)]
        )
    own.close()
    records = list(records_of(history, "r"))
    assert [record["passed"] for record in records] == [True] * 3
    assert found_in(tmp_path, records) == [[]] * 3
