"""The table of a benchmark: a cell for each category and difficulty, and notes on the sampling."""

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from rtl_core.history.named_queries import named_query
from rtl_core.history.records import EvaluationRecord, MessageRecord, RunRecord
from rtl_core.history.store import History
from rtl_core.learning.intervals import mean_interval
from rtl_core.learning.reward import Reward
from rtl_core.reporting import rollouts as report_rollouts
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.console import comparison
from rtl_core.reporting.evaluations import RunResult, run_result
from rtl_core.reporting.figures.benchmark import tables_of
from rtl_core.reporting.figures.held_out import held_out
from rtl_core.reporting.figures.result import forest, pass_at_k
from rtl_core.reporting.report import write_report
from rtl_core.view import questions
from rtl_core.view.server import create_app
from rtl_grader.types.verdict import Outcome, Stage, StageResult
from tests import synthetic
from tests.command import invoke
from tests.nouns import a_rollout, a_verdict

# Problem -> category, difficulty, how many of its 5 answers pass.
PASSES = {
    "a": ("cid003", "easy", 5), "b": ("cid003", "easy", 1), "c": ("cid003", "hard", 0), "d": ("cid016", "hard", 2),
    "left": ("cid016", "hard", 1),
}  # fmt: skip
SAMPLES = 5


def write(history: History, run: str, purpose: str = "evaluation", plus: int = 0) -> None:
    """Write a finished evaluation in which one problem has only a single graded answer; `plus` more answers to each problem pass."""
    config = {
        "run": {"purpose": purpose},
        "prompting": {"template": "cvdp"},
        "sampling": {"temperature": 1.0},
        "evaluation": {
            "samples": SAMPLES,
            "temperature": 0.2,
            "top_p": 0.7,
            "max_tokens": 4096,
        },
    }
    history.start_run(RunRecord(name=run, config=config, student="some/model"))
    problems = [
        synthetic.problem(0, "heldout").model_copy(
            update={"id": name, "category": category, "difficulty": difficulty}
        )
        for name, (category, difficulty, _) in PASSES.items()
    ]
    history.record_problems(run, [(problem, "heldout", None) for problem in problems])
    key = f"{run}/student/00000/heldoutx5"
    rollouts, verdicts = [], []
    for name, (_, _, passed) in PASSES.items():
        for sample in range(1 if name == "left" else SAMPLES):
            tokens = () if name == "c" else (1,)
            place = {
                "run": run,
                "purpose": "evaluation",
                "evaluation": key,
                "epoch": -1,
                "problem_id": name,
            }
            one = a_rollout(
                **place, sample=sample, tokens_T=tokens, logprobs_T=tuple(-0.1 for _ in tokens)
            )
            outcome = Outcome.PASSED if sample < passed + plus else Outcome.TESTS_FAILED
            rollouts.append(one)
            status = "failed" if name == "left" else "passed"
            stages = (StageResult(stage=Stage.INTERFACE, status=status),)
            verdicts.append(
                (one.key, a_verdict(outcome, stages=stages), Reward(total=0.0, terms={}))
            )
    history.record_rollouts(rollouts)
    history.record_verdicts(verdicts)
    asked = {
        "policy": "student",
        "step": 0,
        "split": "heldout",
        "samples": SAMPLES,
        "n_problems": 4,
    }
    found = {"pass_at_1": 0.4, "lo": 0.1, "hi": 0.7, "pass_at_k": {1: 0.4, 5: 0.75}}
    left_out = {"it needs a commercial tool": 298}
    history.record_evaluation(
        EvaluationRecord(key=key, run=run, status="done", **asked, **found, left_out=left_out)
    )


@pytest.fixture
def history(tmp_path):
    found = History(tmp_path / "h.duckdb")
    write(found, "bench")
    return found


def test_each_cell_is_the_mean_over_its_problems_with_interval_and_number(history):
    one, five = tables_of(history, "bench")
    assert [name for name, _ in one.columns] == ["category", "easy", "hard", "all"]
    rows = {row[0]: row[1:] for row in one.rows}
    assert list(rows) == ["cid003 specification to RTL", "cid016 debugging", "all"]
    easy = mean_interval([1.0, 0.2])
    assert (
        rows["cid003 specification to RTL"][0]
        == f"60.0 %\n[{100 * easy.lo:.1f}, {100 * easy.hi:.1f}]\nn = 2"
    )
    assert rows["cid016 debugging"][0] == "–"
    # A problem with missing grades is excluded.
    rates = [["60.0 %", "n = 2"], ["20.0 %", "n = 2"], ["40.0 %", "n = 4"]]
    assert [cell.split("\n")[::2] for cell in rows["all"]] == rates
    assert [row[-1].split("\n")[0] for row in five.rows] == ["66.7 %", "100.0 %", "75.0 %"]


def test_figures_stand_with_and_without_the_problems_with_known_faults(history):
    (record,) = history.evaluations("bench")
    assert run_result(history, "bench").after.faultless is None
    history.record_evaluation(
        record.model_copy(update={"errata": {"c": "its bench cannot judge"}})
    )
    one, _ = tables_of(history, "bench")
    rows = {row[0]: [cell.split("\n")[::2] for cell in row[1:]] for row in one.rows}
    assert rows["all"][-1] == ["40.0 %", "n = 4"]
    assert rows["without known faults"] == [["60.0 %", "n = 2"], ["40.0 %", "n = 1"], ["53.3 %", "n = 3"]]  # fmt: skip
    caption = tables_of(history, "bench")[-1].caption
    assert "Known faults of 1 problem: c: its bench cannot judge." in caption
    faultless = run_result(history, "bench").after.faultless
    assert faultless.pass_at_1.n == 3
    assert faultless.record.pass_at_k[5] == pytest.approx(1.0)


def test_a_problem_with_missing_grades_is_excluded_everywhere(history):
    result = run_result(history, "bench")
    figure = pass_at_k(Source(history, "bench"))
    curve = figure.data[-1]
    assert curve["x"] == [1, 2, 3, 4, 5]
    assert curve["y"] == pytest.approx(
        [0.4, (1 + 0.4 + 0 + 0.7) / 4, (1 + 0.6 + 0 + 0.9) / 4, (1 + 0.8 + 0 + 1) / 4, 3 / 4]
    )
    assert "training" not in figure.caption
    assert (result.after.interface.mean, result.after.interface.n) == (1.0, 4)


def test_the_caption_names_sampling_settings_unanswered_and_excluded_problems(history):
    caption = tables_of(history, "bench")[-1].caption
    assert "4 problems, 5 answers each" in caption
    assert "some/model; template cvdp, temperature 0.2, top_p 0.7, max_tokens 4096." in caption
    assert (
        "Counted as failed without an answer: 1 problem whose prompt fills the model's context."
        in caption
    )
    assert "Excluded problems: 298 (it needs a commercial tool)." in caption


def test_a_training_run_has_no_benchmark_table(history):
    write(history, "trained", purpose="train")
    assert tables_of(history, "trained") == []


def test_query_report_and_compare_show_a_benchmark(history, tmp_path):
    rows = history.query(named_query("categories").sql, {"run": "bench"}).to_pylist()
    assert [
        (r["category"], r["difficulty"], r["problems"], r["pass_at_1"], r["pass_at_5"])
        for r in rows
    ] == [
        ("cid003", "easy", 2, pytest.approx(0.6), 1.0),
        ("cid003", "hard", 1, 0.0, 0.0),
        ("cid016", "hard", 1, pytest.approx(0.4), 1.0),
    ]
    page = write_report(history, ["bench"], tmp_path / "report.html").read_text(
        encoding="utf-8"
    )
    assert "pass@5 by category and difficulty" in page
    assert "cid016 debugging" in page
    write(history, "better", plus=1)
    results = next(iter(comparison(history, ["bench", "better"])))
    assert [str(cell) for cell in results.columns[0].cells] == ["bench", "better"]
    assert [str(cell) for cell in results.columns[4].cells][1].startswith("+1")


def test_an_answer_of_an_endpoint_has_the_tokens_that_it_counted(history):
    key = history.column("SELECT min(rollout) FROM rollouts WHERE problem_id = 'c'")[0]
    history.record_messages([MessageRecord(key, 0, "model", "x", True, 1.0, n_tokens=24)])
    (shown,) = (
        one
        for one in report_rollouts.sample(history, "bench")["rollouts"]
        if one["rollout"] == key
    )
    (listed,) = (
        one
        for one in questions.rollouts(history, questions.Filters(run="bench"))
        if one["rollout"] == key
    )
    assert (shown["n_tokens"], listed["n_tokens"]) == (24, 24)


def test_what_covers_training_says_so_of_a_run_that_only_evaluates(history):
    for name, said in (("funnel", True), ("failures", True), ("categories", False)):
        done = invoke("query", name, "--db", history.path)
        assert ("training answers" in done.stderr) == said, name
    client = TestClient(create_app(history), base_url="http://127.0.0.1:8000")
    wrong = client.get("/wrong?run=bench").text
    assert "This run only evaluates" in wrong
    assert "nothing recorded yet" not in wrong
    assert "/pictures" not in client.get("/run?run=bench").text
    for page in ("/", "/run?run=bench", "/?runs=bench"):
        assert "while training" not in client.get(page).text


def test_no_gridline_runs_through_a_rate(history):
    result = run_result(history, "bench")
    for mean, place in ((0.0, "top right"), (0.5, "top right"), (1.0, "top left")):
        record = result.after.record.model_copy(update={"pass_at_1": mean})
        one = RunResult(None, replace(result.after, record=record), None, (), None)
        source = Source(history, "bench")
        source.result = one
        assert forest(source).data[0]["textposition"] == place


def test_each_compared_run_has_one_colour_of_its_own(tmp_path):
    path = tmp_path / "h.duckdb"
    for name in ("one", "two"):
        history = synthetic.write_run(path, name, synthetic.Shape(steps=2))
    lines = held_out([Source(history, name) for name in ("one", "two")]).data
    colours = {(one["meta"], one["line"]["color"]) for one in lines if "meta" in one}
    assert colours == {("one", "@line0"), ("two", "@line1")}
