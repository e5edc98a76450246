"""A crash between a train step and the evaluation that follows it: the evaluation is made when the run goes on."""

import asyncio

import pytest

from rtl_core.history.store import History


@pytest.mark.slow
def test_an_evaluation_that_a_crash_prevented_is_made_up(prefect, small_run, tmp_path, monkeypatch):
    import rtl_distill.flows.train as module

    overrides = small_run("gap", "run.epochs=1", "evaluation.every=1", "evaluation.teacher=false")
    evaluate = module.evaluate_policy

    async def crash(session, plan, *more):
        if plan.step == 1:
            raise RuntimeError("as if killed here")
        await evaluate(session, plan, *more)

    with monkeypatch.context() as patched:
        patched.setattr(module, "evaluate_policy", crash)
        with pytest.raises(RuntimeError, match="as if killed"):
            asyncio.run(module.train("demo", overrides))
    history = History(tmp_path / "history.duckdb")
    assert [state.status for state in history.steps("gap")] == ["trained", "planned"]
    assert [e.step for e in history.evaluations("gap")] == [0]
    asyncio.run(module.train("demo", overrides))
    assert [state.status for state in history.steps("gap")] == ["trained", "trained"]
    assert sorted(e.step for e in history.evaluations("gap") if e.status == "done") == [0, 1, 2]
