"""The smallest run that has every part."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rtl_core.config import load_config
from rtl_core.run import status
from rtl_core.run.opening import open_session
from rtl_grader.progress import LogProgress, progress
from tests.backend.scripted import SCRIPT

QUICK = (
    "run.epochs=1", "problems.sources.0.heldout=1", "evaluation.teacher=false", "evaluation.samples=1", "evaluation.k=[1]",
    "tinker.local_threads=1",
)  # fmt: skip
"""Overrides for one epoch with the smallest possible evaluation."""


@pytest.fixture(autouse=True)
def _lines_go_to_the_log():
    """A command that an earlier test called in this process leaves its console as the place of progress."""
    token = progress.set(LogProgress())
    yield
    progress.reset(token)


@pytest.fixture
def script():
    """What `tests.backend.scripted:BACKEND` answers and was asked for during the test."""
    SCRIPT.__init__()
    yield SCRIPT
    SCRIPT.__init__()


@pytest.fixture
def train(prefect):
    """Trains one epoch of a run without its evaluations, or raises the error that stopped it."""
    from prefect import flow as prefect_flow

    from rtl_distill.flows import train as flow
    from rtl_distill.flows.validate import validated_ahead

    @prefect_flow
    async def run(overrides):
        async with (
            open_session(load_config("demo", overrides)) as session,
            status.run_status(session),
            validated_ahead(session) as ahead,
        ):
            await flow.measure_problems(session, ahead)
            await flow.order_problems(session)
            assert await flow.train_epoch(session, ahead, 0) is None

    return lambda overrides: asyncio.run(run(overrides))


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
            "sampling.seeded=true",  # some tests compare a run with its repeat
            *more,
        ]

    return overrides
