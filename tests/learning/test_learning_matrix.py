"""The matrix runs a cell through the real pipeline, stores its line, and finds it again."""

import fcntl
import re

import pytest

from benchmarks.learning.ledger import Ledger
from benchmarks.learning.running import Matrix, recipe_of
from benchmarks.learning.settings import SETTINGS, Setting, config_of
from rtl_core.run.lock import lock_path

TWO_STEPS = [
    'problems.sources=[{kind="starter", tier="hard", train=4, heldout=7, heldout_split="test"}]',
    "curriculum.problems_per_step=2",
    "sampling.group_size=4",
]


def fail(*_):
    raise RuntimeError("not run in a test")


@pytest.mark.slow
def test_a_cell_runs_once_and_another_starts_from_its_weights(tmp_path, monkeypatch):
    # The folder of a cell from which another starts is kept.
    monkeypatch.setitem(
        SETTINGS, "further", Setting("further", "hard", "", after="hard-distillation")
    )
    said: list[str] = []
    ledger = Ledger(tmp_path / "ledger.jsonl")
    matrix = Matrix(ledger, tmp_path / "runs", ["hard-distillation"], [0], TWO_STEPS)
    assert len(matrix.missing()) == 1
    matrix.run(1, lambda: None, said.append)
    assert matrix.failed == [], said

    cell, line = ledger.cells["hard-distillation", 0], ledger.tiers["hard"]
    assert len(line.problems_P) == len(cell.after.passed_P) == 7
    assert [step.answers for step in cell.steps] == [8, 8]
    assert cell.answers == 16
    assert cell.train_tokens > 16 * 20
    assert 0.1 < cell.ran.memory_gb < 16
    assert all(step.usd > 0 for step in cell.steps)
    assert sum(line.teacher.interface_P) > sum(line.untrained.interface_P)

    again = Matrix(
        Ledger(ledger.path), tmp_path / "runs", ["hard-distillation"], [0], TWO_STEPS
    )
    assert again.missing() == []
    assert Matrix(again.ledger, tmp_path, ["hard-distillation"], [0]).missing(), (
        "other keys are another cell"
    )
    monkeypatch.setattr(Matrix, "_process", fail)
    Matrix(again.ledger, tmp_path / "runs", ["further"], [0], TWO_STEPS).run(
        1, lambda: None, said.append
    )
    assert said[-1] == "further-0 failed: not run in a test"
    settings = (tmp_path / "runs/further-0/settings.toml").read_text()
    assert re.search(
        r'start_from = "tinker://\S+/weights/hard-distillation-0-000002"', settings
    )


def test_a_cell_changes_with_the_cell_that_it_starts_from(monkeypatch):
    setting = Setting("further", "hard", "", after="hard-rl")
    before = recipe_of(setting)
    monkeypatch.setitem(
        SETTINGS, "hard-rl", Setting("hard-rl", "hard", "", ("learning.kl_weight=0.5",))
    )
    assert before not in (recipe_of(setting), recipe_of(Setting("alone", "hard", "")))


def test_a_run_of_other_settings_is_deleted_unless_another_process_works_on_it(
    tmp_path, monkeypatch
):
    lock, said = lock_path(config_of(SETTINGS["hard-rl"], 0, tmp_path)), []
    lock.parent.mkdir()
    (history := lock.with_name("history.duckdb")).touch()  # of other settings
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        matrix = Matrix(Ledger(tmp_path / "ledger.jsonl"), tmp_path, ["hard-rl"], [0])
        matrix.run(1, lambda: None, said.append)
    assert matrix.failed == ["hard-rl-0"]
    assert "another process works on it" in said[-1]
    assert history.exists()

    monkeypatch.setattr(Matrix, "_process", fail)
    matrix.run(1, lambda: None, said.append)
    assert said[-1] == "hard-rl-0 failed: not run in a test"
    assert not history.exists()
