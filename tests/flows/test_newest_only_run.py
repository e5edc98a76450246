"""A run on an engine that samples only the newest weights of an open training client."""

import asyncio

import pytest

from rtl_core.errors import PolicyError
from rtl_core.history.store import History
from tests.backend.newest_only import newest_only, on


@pytest.fixture
def engine(tmp_path, monkeypatch):
    with newest_only(tmp_path / "service", monkeypatch) as running:
        yield running


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_a_run_orders_its_calls_so_that_no_sample_has_the_wrong_weights(
    engine, small_run, tmp_path
):
    from rtl_distill.flows.evaluate import evaluate
    from rtl_distill.flows.train import train

    sizes = ("evaluation.every=1", "tinker.lora_rank=8", "evaluation.teacher=false")
    overrides = small_run("r", *on(engine), *sizes, "sampling.seeded=false")
    asyncio.run(train("demo", [*overrides, "run.epochs=1"]))
    engine.forget()
    asyncio.run(train("demo", overrides))
    history, path = History(tmp_path / "history.duckdb"), str(tmp_path / "history.duckdb")
    done = [(one.step, one.status) for one in history.evaluations("r")]
    assert done == [(step, "done") for step in range(5)]

    engine.forget()
    asyncio.run(evaluate("r", path, samples=1))
    with pytest.raises(PolicyError, match="after 1 step cannot be evaluated"):
        asyncio.run(evaluate("r", path, samples=1, step=1))
    assert len(history.evaluations("r")) == 6
    assert engine.wrong == []
