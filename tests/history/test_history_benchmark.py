"""The figures of docs/history.md come from a benchmark that still runs: at its smallest size here."""

from benchmarks.history import queries


def test_each_named_query_answers_over_a_filled_history(tmp_path):
    rows = {name.strip(): measured for name, measured, _ in queries(tmp_path, 1_600)}
    assert rows["funnel"].endswith(", 4 rows")
    assert rows["counterfactual-rollouts"].endswith(", 1,600 rows")
    assert rows["teacher-kl"].endswith(", 8 rows")
