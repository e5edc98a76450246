"""How a report splits a run, to show that it moves."""

import pytest

from rtl_core.reporting.blocks import Source
from rtl_core.reporting.figures import learning, mistakes
from tests import synthetic
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
