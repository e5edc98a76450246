"""A service that returns an answer without tokens: the answer fails, and the run goes on."""

from dataclasses import replace

import pytest

from rtl_core.history.store import History
from tests.flows.conftest import QUICK


async def silent(inner, *given, **more):
    first, *others = await inner.sample(*given, **more)
    return [replace(first, tokens_T=[], logprobs_T=[], text=""), *others]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["grpo", "distribution_distillation"])
def test_an_empty_answer_is_graded_and_not_scored(
    train, small_run, tmp_path, algorithm, script
):
    script.sample = silent
    backend = "backend.name=tests.backend.scripted:BACKEND"
    more = (
        "sampling.seeded=false",
        f"learning.algorithm={algorithm}",
        "problems.sources.0.train=2",
    )
    train(small_run("silent", backend, *QUICK, *more))
    history = History(tmp_path / "history.duckdb")
    assert [state.status for state in history.steps("silent")] == ["trained"]
    empty = [one for one in history.rollouts_of("silent", 0) if not one.rollout.tokens_T]
    assert len(empty) == 2
    assert all(one.verdict.outcome == "no_answer" and one.teacher is None for one in empty)
