"""How a report splits a run, to show that it moves."""

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
    last = "FROM verdicts WHERE run = 'demo' AND purpose = 'train' AND step >= 9"
    (passed,) = rows(history, f"SELECT avg(CAST(outcome = 'passed' AS INTEGER)) AS share {last}")
    assert bars.data[-1]["y"][-1] == pytest.approx(passed["share"])
    assert [heading for heading, _ in table.columns][-2:] == ["first quarter", "last quarter"]
    (made,) = rows(
        history,
        "SELECT count(DISTINCT m.rollout) / (SELECT count(*) FROM verdicts WHERE purpose = 'train' AND step >= 9) AS share"
        f" FROM named_mistakes m WHERE m.purpose = 'train' AND m.step >= 9 AND m.mistake = '{table.rows[0][0]}'",
    )
    assert table.rows[0][-1] == f"{100 * made['share']:.1f} %"


def test_the_reward_of_a_weak_problem_is_what_was_paid_and_not_the_sum_of_its_terms(tmp_path):
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    answers = [a_rollout(sample=sample) for sample in (0, 1)]
    history.record_rollouts(answers)
    paid = [Reward(total=0.5, terms={"tests": (1.0, 1.0)}), Reward(total=0.0, terms={"tests": (1.0, 0.0)})]
    history.record_verdicts([(a.key, a_verdict(Outcome.PASSED), r) for a, r in zip(answers, paid, strict=True)])
    found = {trace["name"]: trace["y"] for trace in learning.reward(Source(history, "r")).data}
    assert found == {"tests": [0.5], "total": [0.25]}


def test_steps_and_evaluations_of_the_same_weights_have_one_place_on_one_axis(tmp_path):
    history = synthetic.write_run(tmp_path / "h.duckdb", shape=synthetic.Shape(warm_start=4))
    source, found = Source(history, "demo"), run_result(history, "demo")
    figures = [learning.equal_difficulty(source), result.by_evaluation(source, found)]
    assert [figure.layout["xaxis"]["title"]["text"] for figure in figures] == ["train steps", "train steps"]
    assert [min(figure.data[0]["x"]) for figure in figures] == [0, 0]
