"""The matrix runs a cell through the real pipeline, keeps its line, and finds it again."""

import pytest

from benchmarks.learning.ledger import Ledger
from benchmarks.learning.running import Matrix, check

TWO_STEPS = [
    'problems.sources=[{kind="starter", tier="hard", train=4, heldout=7, heldout_split="test"}]',
    "curriculum.problems_per_step=2",
    "sampling.group_size=4",
]


@pytest.mark.slow
def test_a_cell_is_run_once_and_can_be_checked(tmp_path):
    said: list[str] = []
    ledger = Ledger(tmp_path / "ledger.jsonl")
    matrix = Matrix(ledger, tmp_path / "runs", ["hard-both-0.5"], [0], TWO_STEPS)
    assert len(matrix.missing()) == 1
    matrix.run(1, lambda: None, said.append)
    assert matrix.failed == [], said

    cell, line = ledger.cells["hard-both-0.5", 0], ledger.tiers["hard"]
    assert len(line.problems_P) == len(cell.after.passed_P) == 7
    assert [step.answers for step in cell.steps] == [8, 8]
    assert cell.answers == 16
    assert cell.train_tokens > 16 * 20
    assert all(step.usd > 0 for step in cell.steps)
    assert sum(line.teacher.interface_P) > sum(line.untrained.interface_P)

    again = Matrix(Ledger(ledger.path), tmp_path / "runs", ["hard-both-0.5"], [0], TWO_STEPS)
    assert again.missing() == []
    assert Matrix(again.ledger, tmp_path, ["hard-both-0.5"], [0]).missing(), "other keys are another cell"
    with pytest.raises(SystemExit, match="has no cell hard-rl-0"):
        check(ledger, tmp_path / "check", [("hard-rl", 0)], 1, said.append)
    with pytest.raises(SystemExit, match=r"hard-both-0\.5-0: the ledger's line is of other settings"):
        check(ledger, tmp_path / "check", [("hard-both-0.5", 0)], 1, said.append)
