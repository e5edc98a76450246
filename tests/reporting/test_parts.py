"""How a report splits a run into periods, and places points on axes."""

import pytest

from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.learning.reward import Reward
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.evaluations import run_result
from rtl_core.reporting.figures import learning, mistakes, result
from rtl_core.types.verdict import Outcome
from tests import synthetic
from tests.nouns import a_rollout, a_verdict
from tests.reporting.report_tab import rows


def test_a_run_of_one_epoch_is_split_into_quarters(tmp_path):
    history = synthetic.write_run(tmp_path / "h.duckdb", shape=synthetic.Shape(steps_per_epoch=12))
    source = Source(history, "demo")
    bars, table = learning.funnel(source), mistakes.named(source)
    assert [trace["name"] for trace in bars.data] == [f"quarter {number}" for number in (1, 2, 3, 4)]
    last = "purpose = 'train' AND step >= 9"
    answers = rows(history, f"SELECT outcome = 'passed' AS passed FROM verdicts WHERE {last}")
    assert bars.data[-1]["y"][-1] == pytest.approx(sum(row["passed"] for row in answers) / len(answers))
    assert [heading for heading, _ in table.columns][-2:] == ["first quarter", "last quarter"]
    mistaken = f"SELECT DISTINCT rollout FROM named_mistakes WHERE {last} AND mistake = '{table.rows[0][0]}'"
    assert table.rows[0][-1] == f"{100 * len(rows(history, mistaken)) / len(answers):.1f} %"


def test_the_total_reward_of_a_weak_problem_is_less_than_the_sum_of_its_terms(tmp_path):
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    answers = [a_rollout(sample=sample) for sample in (0, 1)]
    history.record_rollouts(answers)
    paid = [Reward(total=0.5, terms={"tests": (1.0, 1.0)}), Reward(total=0.0, terms={"tests": (1.0, 0.0)})]
    history.record_verdicts([(a.key, a_verdict(Outcome.PASSED), r) for a, r in zip(answers, paid, strict=True)])
    found = {trace["name"]: trace["y"] for trace in learning.reward(Source(history, "r")).data}
    assert found == {"tests": [0.5], "total": [0.25]}


def test_steps_and_evaluations_of_the_same_weights_have_the_same_position(tmp_path):
    history = synthetic.write_run(tmp_path / "h.duckdb", shape=synthetic.Shape(warm_start=4))
    source, found = Source(history, "demo"), run_result(history, "demo")
    figures = [learning.equal_difficulty(source), result.by_evaluation(source, found)]
    assert [figure.layout["xaxis"]["title"]["text"] for figure in figures] == ["train steps", "train steps"]
    assert [min(figure.data[0]["x"]) for figure in figures] == [0, 0]
