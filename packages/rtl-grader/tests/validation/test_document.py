"""The audit of a problem set as a document: its contents, and that two versions differ only in what changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from rtl_core.errors import ConfigError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.reporting.problem_audit import check_form, contradictions, write_document
from rtl_core.starter import starter_problems
from rtl_grader.problems.problem_set import BrokenLine, LoadedProblems
from rtl_grader.types.problem import Problem
from rtl_grader.validation.level import Level
from rtl_grader.validation.record import ValidationRecord
from rtl_grader.validation.validate import validate_problem

LEVEL = Level("full", 2, (1, 2), stubs=("zeros",), generated_stubs=("zeros",))
PROBLEMS = starter_problems("train", 2, 0)
HOSTILE = "</td><script>window.pwned=1</script>"


@pytest.fixture(scope="module")
def records(grader):
    return {problem.id: validate_problem(problem, grader, level=LEVEL) for problem in PROBLEMS}


@pytest.fixture
def history(records, tmp_path):
    """A history that also has a flaky result of another simulator for the first problem."""
    made, (first, *_) = History(tmp_path / "h.duckdb"), records.values()
    made.start_run(RunRecord(name="v"))
    other = first.model_copy(
        update={"tools_key": "other", "status": "flaky", "tools": {"iverilog": "99"}}
    )
    made.record_validations([("v", record) for record in (*records.values(), other)])
    return made


def written(
    path: Path, problems: list[Problem], records: dict[str, ValidationRecord], history: History
) -> str:
    broken = BrokenLine("set.jsonl", 3, None, "line", HOSTILE, "starter")
    write_document(
        path, LoadedProblems(train=problems, broken=[broken]), records, LEVEL, history
    )
    return path.read_text()


def test_lines_of_header_problems_and_digest(records, history, tmp_path):
    head, *rows, tail = map(
        json.loads, written(tmp_path / "a.jsonl", PROBLEMS, records, history).splitlines()
    )
    assert head["data_set"] == LoadedProblems(train=PROBLEMS).fingerprint
    assert head["tools"] == [records[PROBLEMS[0].id].tools]
    assert len(tail["digest"]) == 64
    assert (
        set(tail["seconds"])
        == {row["id"] for row in rows}
        == {problem.id for problem in PROBLEMS}
    )
    row: dict[str, Any] = next(row for row in rows if row["id"] == PROBLEMS[0].id)
    assert (row["status"], row["mutants"]["killed"], row["mutants"]["score"]) == ("fit", 2, 1.0)
    assert row["stubs"] == {"tried": 1, "paid": []}
    assert row["seeds"] == ["1: passed", "2: passed"]
    assert row["other_tools"] == [{"tools": {"iverilog": "99"}, "status": "flaky"}]
    assert (row["interface"]["source"], row["interface"]["confidence"]) == ("golden", "certain")


def test_a_stored_validation_has_the_same_digest_as_a_fresh_one(records, history, tmp_path):
    stubs = {"zeros": "passed", "unknown": "passed", "inputs": "passed"}

    def with_evidence(change):
        return {
            name: one.model_copy(update={"evidence": change(one.evidence)})
            for name, one in records.items()
        }

    fresh = with_evidence(lambda evidence: {**evidence, "stubs": stubs})
    stored = with_evidence(
        lambda evidence: json.loads(json.dumps({**evidence, "stubs": stubs}, sort_keys=True))
    )
    first, again = (
        written(tmp_path / "a.jsonl", PROBLEMS, found, history) for found in (fresh, stored)
    )
    assert first == again


def test_two_versions_of_a_set_differ_only_in_what_changed(records, history, tmp_path):
    before = written(tmp_path / "a.jsonl", PROBLEMS, records, history).splitlines()
    slower = {
        name: record.model_copy(update={"wall_s": 99.0}) for name, record in records.items()
    }
    assert (
        written(tmp_path / "b.jsonl", PROBLEMS, slower, history).splitlines()[:-1]
        == before[:-1]
    )
    weak = records[PROBLEMS[1].id].model_copy(update={"status": "weak"})
    after = written(
        tmp_path / "c.jsonl", PROBLEMS, {**records, PROBLEMS[1].id: weak}, history
    ).splitlines()
    changed = [was != now for was, now in zip(before, after, strict=True)]
    assert sum(changed) == 2  # the problem's line, and the digest in the last
    assert changed[-1]


def test_the_html_page_escapes_texts_of_the_set(records, history, tmp_path):
    page = written(tmp_path / "a.html", PROBLEMS, records, history)
    assert "2 of 2 problems are fit" in page
    assert LoadedProblems(train=PROBLEMS).fingerprint in page
    assert all(problem.id in page for problem in PROBLEMS)
    assert "iverilog 99" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("form", ["html", "jsonl"])
def test_paths_of_packages_are_removed(records, history, tmp_path, form):
    reason = {"reason": "cannot import x (/home/someone/site-packages/y.py)"}
    told = {
        name: one.model_copy(update={"status": "unsupported", "evidence": reason})
        for name, one in records.items()
    }
    document = written(tmp_path / f"a.{form}", PROBLEMS, told, history)
    assert "site-packages/y.py" in document
    assert "/home/someone" not in document


def test_contradictions_between_specification_golden_answer_and_harness_are_listed():
    (problem,) = starter_problems("train", 1, 0)
    assert list(contradictions(problem)) == []
    ports = ", ".join(
        f"{p.direction} [{(p.width or 1) + (p == problem.interface.ports[0])}-1:0] {p.name}"
        for p in problem.interface.ports[:-1]
    )
    header = f"{problem.prompt}\n```verilog\nmodule {problem.interface.module}({ports});\n```\n"
    found = list(contradictions(problem.model_copy(update={"prompt": header})))
    assert (
        f"specification against golden answer: wrong width `{problem.interface.ports[0].name}`"
        in found[0]
    )
    assert any(f"`{problem.interface.ports[-1].name}`" in line for line in found[1:])


def test_other_file_names_are_rejected():
    with pytest.raises(ConfigError, match=r"end it with \.html or \.jsonl"):
        check_form(Path("audit.txt"))
