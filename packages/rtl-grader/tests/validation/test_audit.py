"""An audit finds undeserved passes, names them, and continues after an interruption."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.learning.reward import Graded, reward
from rtl_core.reporting.figures.audit import audit_summary, render
from rtl_core.reporting.report import write_report
from rtl_core.rollouts import auditing
from rtl_core.rollouts.auditing import audit_run
from rtl_core.starter import starter_problems
from rtl_grader.equivalence.effort import Effort
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.grading.grader import Grader
from rtl_grader.types.problem import Problem
from tests.command import run as run_command
from tests.nouns import a_rollout, demo
from tests.validation.conftest import inverter

Make = Callable[..., Problem]
QUICK = Effort.of_cycles(600, 6, 10.0)
EMPTY = "module inv(input [3:0] a, output [3:0] y);\nendmodule\n"
RIGHT, ALSO_RIGHT, WRONG = inverter(), inverter("4'd15 - a"), inverter("a == 13 ? 5 : ~a")


def fenced(code: str) -> str:
    return f"Here it is:\n```verilog\n{code}```\n"


class Audited:
    """A run in a history whose verdicts come from the grader."""

    def __init__(self, folder: Path, grader: Grader, planted: Make) -> None:
        self.path, self.grader = folder / "history.duckdb", grader
        self.config = demo(folder, "run.name=r")
        self.history = History(self.path)
        self.history.start_run(RunRecord(name="r", config=self.config.model_dump(mode="json")))
        half = planted().harness["src/bench.sv"].replace("i < 16", "i < 12")
        self.half = planted(files={"src/bench.sv": half})
        self.starter = starter_problems("train", 12, 0)
        self.bare = planted(identity="bare", golden=None)
        problems = [self.half, *self.starter, self.bare]
        self.history.record_problems("r", [(p, "train", i) for i, p in enumerate(problems)])

    def answer(
        self, problem: Problem, *codes: str, purpose: str = "train", step: int = 0
    ) -> list[str]:
        """Grade and store answers, and return their keys."""
        evaluation = "e" if purpose == "evaluation" else None
        rollouts = [
            a_rollout(
                problem_id=problem.id,
                sample=i,
                text=fenced(code),
                purpose=purpose,
                step=step,
                evaluation=evaluation,
            )
            for i, code in enumerate(codes)
        ]
        self.history.record_rollouts(rollouts)
        verdicts = [self.grader.grade(problem, answer_to(problem, r.text)) for r in rollouts]
        graded = [
            Graded(problem, v, r.text, r.tokens_T, "stop")
            for r, v in zip(rollouts, verdicts, strict=True)
        ]
        rewards = [reward(one, self.config.reward.weights) for one in graded]
        self.history.record_verdicts(
            [(r.key, v, w) for r, v, w in zip(rollouts, verdicts, rewards, strict=True)]
        )
        return [r.key for r in rollouts]

    def audit(self, effort: Effort = QUICK) -> auditing.AuditSummary:
        return audit_run(self.path, self.config, effort=effort, jobs=2)


@pytest.fixture
def run(tmp_path, grader, planted):
    return Audited(tmp_path, grader, planted)


@pytest.mark.slow
def test_undeserved_passes_are_found_and_others_are_not(run):
    keys = run.answer(run.half, RIGHT, ALSO_RIGHT, WRONG, WRONG, EMPTY)
    for problem in run.starter:
        run.answer(problem, *problem.golden.values(), purpose="evaluation")
    done = run.audit()
    assert (done.passes, done.simulated) == (4 + 12, 3 + 12), "equal answers are simulated once"
    summary = audit_summary(run.history, "r")
    assert summary.whole.results == {"equal": 14, "different": 2}, summary
    assert [row["rollout"] for row in summary.doubtful] == keys[2:4]
    assert all("y is 4'h5, golden 4'h2" in row["detail"] for row in summary.doubtful)
    assert summary.in_words() == "16 passes, 14 proved, 2 doubtful"
    parts = {part.name: part for part in summary.parts}
    assert parts["cvdp"].counts["passes"] == 4
    assert parts["starter"].results["different"] == 0
    assert parts["starter: counter"].counts["passes"] == 1
    assert summary.whole.doubtful.mean == pytest.approx(2 / 16)
    assert 0.03 < summary.whole.doubtful.lo < 0.04 < 0.36 < summary.whole.doubtful.hi < 0.37


def test_the_required_module_is_audited(run):
    """Even if another module precedes it and the file has another name."""
    harness = {
        path: text.replace("inv.sv", "design.sv") for path, text in run.half.harness.items()
    }
    changes = {
        "id": "moved",
        "targets": ("rtl/design.sv",),
        "golden": {"rtl/design.sv": RIGHT},
        "harness": harness,
    }
    moved = Problem.model_validate(run.half.model_dump() | changes)
    run.history.record_problems("r", [(moved, "train", 99)])
    helper = "module helper(input a, output y);\n  assign y = a;\nendmodule\n"
    run.answer(moved, f"{helper}```\n```verilog\n{RIGHT}")
    assert run.audit().passes == 1
    summary = audit_summary(run.history, "r")
    assert (summary.whole.results["equal"], summary.unknown) == (1, {})


BENCH = """\
module inv_tb;
  reg [3:0] a; wire [3:0] y;
  inv dut(.a(a), .y(y));
  initial begin a = 1; #1 randcase 1: a = 3; endcase $finish; end
endmodule
"""


@pytest.mark.slow
def test_a_test_bench_in_an_answer_is_ignored(run):
    """Whether it has its own block before the design, or follows it in the same block."""
    run.answer(
        run.half, f"{BENCH}```\nThe design:\n```verilog\n{WRONG}", WRONG + BENCH, RIGHT + BENCH
    )
    run.audit()
    summary = audit_summary(run.history, "r")
    assert (
        summary.whole.results["equal"],
        summary.whole.results["different"],
        summary.unknown,
    ) == (1, 2, {})


@pytest.mark.slow
def test_a_repeated_audit_only_does_missing_work(run):
    run.answer(run.half, RIGHT, WRONG)
    assert run.audit().simulated == 2
    again = run.audit()
    assert (again.simulated, again.known) == (0, 2)
    run.answer(run.half, ALSO_RIGHT, step=1)
    assert run.audit().simulated == 1
    assert run.audit(Effort.of_cycles(800, 6, 10.0)).simulated == 3, (
        "another effort is another audit"
    )


def test_unknown_results_have_a_reason(run):
    run.answer(run.bare, RIGHT)
    key = run.answer(run.half, RIGHT)[0]
    changed = {"id": "early", "prompt": "another", "interface": None}
    early = Problem.model_validate({**run.half.model_dump(), **changed})
    run.history.record_problems("r", [(early, "train", 99)])
    run.answer(early, ALSO_RIGHT)
    done = run.audit()
    assert done.without_golden == 1
    summary = audit_summary(run.history, "r")
    assert summary.unknown == {
        "the interface of the top module is not known": 1,
        "no other text passed": 1,
    }
    assert (summary.whole.results["equal"], summary.whole.results["unknown"]) == (1, 2)
    assert summary.whole.doubtful.n == 1, "what is unknown is no part of the share"
    assert run.history.query(
        "SELECT rollout FROM audits WHERE result = 'equal' AND method = 'proof'"
    ).to_pylist() == [{"rollout": key}]


@pytest.mark.slow
def test_without_a_golden_answer_passes_are_compared_with_each_other(run):
    half = Problem.model_validate({**run.half.model_dump(), "id": "withheld", "golden": None})
    run.history.record_problems("r", [(half, "train", 99)])
    keys = run.answer(
        half,
        RIGHT,
        ALSO_RIGHT,
        inverter("a ^ 4'hf"),
        WRONG,
        WRONG.replace("assign", "assign  /* copied */"),
    )
    run.audit()
    rows = run.history.query(
        "SELECT rollout, result, method, share, detail, trace FROM audits ORDER BY rollout"
    ).to_pylist()
    assert [row["rollout"] for row in rows] == keys
    assert [row["result"] for row in rows] == ["same"] * 3 + ["different"] * 2, rows
    assert {row["method"] for row in rows} == {"consensus"}
    assert [row["share"] for row in rows] == [0.75] * 3 + [0.25] * 2, (
        "copies of one text count once"
    )
    assert json.loads(rows[3]["trace"]) == [{"a": 13}], (
        "the shortest inputs that separate the two"
    )
    assert "3 of 4 independent texts" in rows[0]["detail"]
    assert run.audit().known == 5
    run.answer(half, inverter("{~a[3], ~a[2:0]}"), step=1)
    again = run.audit()
    assert (again.passes, again.known) == (6, 0), "another text may change the majority"


def test_a_run_without_passes_has_nothing_to_audit(run):
    run.answer(run.half, EMPTY)
    assert run.audit().passes == 0
    assert audit_summary(run.history, "r") is None


@pytest.mark.slow
def test_the_report_shows_the_audit(run, tmp_path):
    keys = run.answer(run.half, RIGHT, WRONG)
    before = write_report(run.history, ["r"], tmp_path / "before.html").read_text()
    assert "Are the passes correct?" not in before
    run.audit()
    after = write_report(run.history, ["r"], tmp_path / "after.html").read_text()
    assert "Audited: 2 passes, 1 proved, 1 doubtful" in after
    assert "<dt>audited</dt><dd>2 passes, 1 proved, 1 doubtful</dd>" in after
    assert keys[1] in after
    assert "h5, golden 4" in after


@pytest.mark.slow
def test_the_command_prints_json_and_exit_codes(run):
    run.answer(run.half, RIGHT, WRONG)
    done = run_command(
        "grade", "audit", "r", "--db", run.path, "--cycles", 600, "--json", "--strict"
    )
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["passes"], found["proved"], found["doubtful"][0]["method"]) == (
        2,
        1,
        "simulation",
    )
    assert found["doubtful"][0]["rollout"].endswith("/1")
    assert found["interval"][0] < 0.5 < found["interval"][1]
    summary = audit_summary(run.history, "r")
    console = Console(width=120, color_system=None)
    with console.capture() as shown:
        console.print(render(run.history, "r", summary))
    assert "50.0 % [" in shown.get()
    assert f"doubtful: {summary.doubtful[0]['rollout']}: y is " in shown.get()
