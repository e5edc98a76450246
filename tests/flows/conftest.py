"""The smallest run that has every part."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def small_run(tmp_path: Path) -> Callable[..., list[str]]:
    """Overrides of the demo for a run of two epochs of two steps: real service, simulators and database."""

    def overrides(name: str = "small", *more: str) -> list[str]:
        return [
            f"run.name={name}",
            f"run.directory={tmp_path}",
            f"run.history={tmp_path / 'history.duckdb'}",
            "run.epochs=2",
            "problems.sources.0.train=4",
            "problems.sources.0.heldout=3",
            "problems.validation_mutants=1",
            "curriculum.problems_per_step=2",
            "sampling.group_size=3",
            "evaluation.samples=2",
            "learning.warm_start_steps=0",
            "learning.warm_start_problems=2",
            "learning.kl_schedule=constant",
            "learning.replace_with_kl=false",
            "evaluation.k=[1, 2]",
            "sampling.seeded=true",  # some tests compare a run with its repetition
            *more,
        ]

    return overrides
