"""A run without its last evaluation is not finished, and the same command makes up for it."""

import asyncio

import pytest

from rtl_core.errors import PolicyError
from rtl_core.history.store import History
from tests.backend.scripted import as_it_is
from tests.flows.conftest import QUICK

pytestmark = pytest.mark.usefixtures("prefect")


async def refuse_the_last(inner, weights, *asked, **more):
    if (weights.path or "").endswith("000002"):
        raise PolicyError("the service refuses these weights")
    return await inner.sample(weights, *asked, **more)


@pytest.mark.slow
def test_a_run_whose_last_evaluation_fails_is_not_finished(small_run, tmp_path, script):
    from rtl_distill.flows.train import train

    overrides = small_run("short", "backend.name=tests.backend.scripted:BACKEND", *QUICK)
    script.sample = refuse_the_last
    with pytest.raises(PolicyError, match="refuses these weights"):
        asyncio.run(train("demo", overrides))
    history = History(tmp_path / "history.duckdb")
    assert history.run("short").status == "failed"
    assert [state.status for state in history.steps("short")] == ["trained"] * 2
    assert history.steps("short")[-1].state_path in script.kept

    script.sample = as_it_is
    asyncio.run(train("demo", overrides))
    assert history.run("short").status == "finished"
    assert [(e.step, e.status) for e in history.evaluations("short")] == [
        (0, "done"),
        (2, "done"),
    ]
