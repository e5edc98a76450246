"""`problems repair`: bugs that the judge tells apart, with reports."""

import json
import re

import pytest
from rtl_project import project, read

from rtl_grader.errors import ProblemError
from rtl_grader.grading.pool import GraderPool
from rtl_grader.problems.sources import SOURCES
from rtl_grader.validation.repairs import repair_all
from tests.command import invoke


@pytest.fixture
def problems(tmp_path):
    return read(project(tmp_path / "set"), define={"FAST": "1"}).problems


def test_repair_tasks_are_written_once(tmp_path, grader, problems):
    output = tmp_path / "repairs.jsonl"
    pool = GraderPool(grader, 2)
    assert repair_all(problems, pool, 1, 0, output) == (2, {})
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    shared = ["rtl/src/sizes.sv"]
    assert {row["top"]: list(row["context"]) for row in rows} == {
        "count": [*shared, "rtl/common/step.svh"],
        "top": [*shared, "rtl/src/count.sv", "rtl/common/step.svh"],
    }
    assert [row["define"] for row in rows] == [{"FAST": "1"}] * 2
    for row in rows:
        report = row["specification"]
        assert row["golden"] not in report
        assert report.count(f"module {row['top']} ") == 1
        assert re.search(
            r"^- [qy], phase \d+: is \S+, expected \S+; after \d+ inputs: ", report, re.M
        )
        assert row["task"] == "repair"
    assert repair_all(problems, pool, 1, 0, output) == (0, {})
    assert [json.loads(line) for line in output.read_text().splitlines()] == rows
    bugs = [{**row, "id": f"{row['id']}{bug}", "specification": f"{row['specification']}{bug}"}
            for row in rows for bug in "ab"]  # fmt: skip
    output.write_text("".join(json.dumps(bug) + "\n" for bug in bugs))
    pairs = SOURCES.find("pairs")(kind="pairs", path=output).read()
    assert [problem.id for problem in pairs.problems] == [bug["id"] for bug in bugs]
    for problem in pairs.problems:
        assert json.loads(problem.harness["src/judge.json"])["define"] == {"FAST": "1"}
    assert {problem.category for problem in pairs.problems} == {"cid016"}


def test_a_file_of_something_else_is_kept(tmp_path, grader, problems):
    output = tmp_path / "notes.txt"
    output.write_text("my notes\n")
    with pytest.raises(ProblemError, match="holds other lines than repair tasks"):
        repair_all(problems, GraderPool(grader, 1), 1, 0, output)
    assert output.read_text() == "my notes\n"


def test_only_judged_problems_have_repairs(tmp_path):
    done = invoke("problems", "repair", "--source", "starter", "--output", str(tmp_path / "x"))
    assert "no problem is judged by its golden answer" in str(done.exception)
