"""Tokens of a step and of a run: the same rules from a batch in memory and from the history, and what a budget is held against."""

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from rtl_core.config import RunConfig, load_config
from rtl_core.cost.estimate import Prompts
from rtl_core.cost.tokens import ModelPrice, Prices, Tokens
from rtl_core.history.records import RunRecord, StepPlan, StepRecord, StoredRollout, TeacherRecord
from rtl_core.history.store import History
from rtl_core.observe.usage import spent
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.metrics import batch_usage
from rtl_core.run.forecast import Measured, forecast, measured
from rtl_core.run.stopping import stop_reason
from rtl_core.types.problem import Problem
from rtl_core.types.rollout import Rollout

PRICES = Prices(as_of="2026-01-01", models={"student": ModelPrice(prefill=0, cached=0, sample=0, train=1.0)})


def answer(problem: str, sample: int, tokens: int, prompt: tuple[int, ...], **place: Any) -> Rollout:
    values = {"run": "r", "purpose": "train", "epoch": 0, "step": 0, "policy_step": 0, **place}
    return Rollout(
        problem_id=problem, sample=sample, prompt_P=prompt, tokens_T=(1,) * (tokens - 1) + (sample,), logprobs_T=(-0.5,) * tokens,
        stop_reason="stop", text=f"x{sample}", **values,
    )  # fmt: skip


def batch_of(rollouts: list[Rollout], scored: bool, **more: Any) -> Batch:
    problems = tuple(dict.fromkeys(r.problem_id for r in rollouts))
    made = Batch(rollouts[0].purpose, 0, 0, 0, problems, 2, evaluation=rollouts[0].evaluation, **more)
    for one in rollouts:
        n = len(one.tokens_T)
        teacher = TeacherRecord(one.key, np.full(n, -0.6), 0.1, 0.1, 0.1, n) if scored else None
        made.take_up([StoredRollout(one, teacher=teacher)])
    return made


def recorded(path: Path, *batches: Batch, examples: int, train_tokens: int) -> History:
    """A history with one trained step, made of those batches."""
    history = History(path)
    stored = [one for batch in batches for one in batch.rollouts.values()]
    history.start_run(RunRecord(name="r", student="student"))
    history.plan_epoch("r", 0, [StepPlan(step=0, problem_ids=("a",))])
    history.record_rollouts([one.rollout for one in stored])
    history.record_teacher([one.teacher for one in stored if one.teacher is not None])
    history.finish_step(
        StepRecord(
            run="r", epoch=0, step=0, state_path="st", sampler_path="sa", examples=examples, train_tokens=train_tokens,
            metrics={"cost/usd": train_tokens / 1e6, "learning/kl_weight": 0.0}, times={"total": 6.0},
        )
    )  # fmt: skip
    return history


def settings(*overrides: str) -> RunConfig:
    return load_config("demo", ["run.name=r", *overrides], environment={})


def test_a_batch_and_the_history_use_the_same_tokens(tmp_path):
    first = batch_of([answer("a", 0, 5, (1, 2, 3)), answer("a", 1, 7, (1, 2, 3)), answer("b", 0, 9, (4,))], scored=True)
    usage = batch_usage(first, 17, settings())
    assert usage["student"] == Tokens(prefill=3 + 1, cached=3, sample=21, train=17)
    assert usage["teacher"] == Tokens(prefill=25, cached=3, sample=3)
    history = recorded(tmp_path / "h.duckdb", first, examples=2, train_tokens=17)
    assert spent(history, "r", settings()) == usage


def test_the_turns_of_an_episode_read_what_stands_before_them(tmp_path):
    """Three turns of 2, 1 and 1 tokens of the model, with 2 and 1 of tools between them, behind a prompt of 3; and an answer of one turn."""
    own_T = (True, True, False, False, True, False, True)
    played = answer("a", 0, 7, (1, 2, 3)).model_copy(update={"own_T": own_T, "n_turns": 3, "ended": "submitted"})
    batch = batch_of([played, answer("b", 0, 9, (4,))], scored=True)
    usage = batch_usage(batch, 20, settings("learning.episodes=true"))
    assert usage["student"] == Tokens(prefill=3 + 6 + 1, cached=3 + (3 + 4), sample=4 + 9, train=20)
    assert usage["teacher"] == Tokens(prefill=(3 + 7) + (1 + 9), sample=2)
    history = recorded(tmp_path / "h.duckdb", batch, examples=2, train_tokens=20)
    assert spent(history, "r", settings("learning.episodes=true")) == usage


def test_each_teacher_is_charged_for_the_problems_of_its_source(tmp_path):
    config = settings('tinker.teachers={cvdp = "other"}')
    problems = {
        name: Problem(
            id=name, source=source, category="cid003", difficulty="easy", prompt=name, targets=("rtl/a.sv",), harness={}
        )
        for name, source in (("a", "cvdp"), ("b", "starter"))
    }
    scored = batch_of([answer("a", 0, 5, (1, 2, 3)), answer("b", 0, 9, (4,))], scored=True)
    history = recorded(tmp_path / "h.duckdb", scored, examples=2, train_tokens=17)
    history.record_problems("r", [(problem, "train", 0) for problem in problems.values()])
    usage = batch_usage(scored, 17, config, problems)
    assert usage["other"] == Tokens(prefill=3 + 5, sample=1)
    assert usage["teacher"] == Tokens(prefill=1 + 9, sample=1)
    assert spent(history, "r", config) == usage
    # Who is recorded to have scored counts, whatever the configuration says by now.
    teacher = next(iter(scored.rollouts.values())).teacher
    assert teacher is not None
    history.record_teacher([replace(teacher, teacher="before")])
    assert set(spent(history, "r", config)) == {"student", "before", "teacher"}


def test_answers_that_are_not_trained_on_do_not_use_up_a_budget(tmp_path):
    """Of eight answers of 1000 tokens two were trained on: a budget of just over two such steps leaves room for the second."""
    sampled = batch_of([answer(p, s, 1000, (1, 2)) for p in "abcd" for s in (0, 1)], scored=False)
    history = recorded(tmp_path / "h.duckdb", sampled, examples=2, train_tokens=2 * 1001)

    def reason(budget):
        config = settings(f"cost.budget_usd={budget}")
        session: Any = SimpleNamespace(
            config=config, history=history, run="r", prices=PRICES, life=SimpleNamespace(opened_at=time.monotonic())
        )
        return stop_reason(session)

    assert spent(history, "r", settings())["student"].train == 2002
    assert reason(0.0041) is None
    assert "would be exceeded" in (reason(0.0040) or "")


def test_a_step_of_which_nothing_is_known_to_be_trained_on_costs_no_training(tmp_path):
    sampled = batch_of([answer("a", 0, 10, (1, 2))], scored=False)
    history = recorded(tmp_path / "h.duckdb", sampled, examples=0, train_tokens=0)
    assert spent(history, "r", settings()) == {"student": Tokens(prefill=2, sample=10)}
    assert batch_usage(sampled, 0, settings()) == {"student": Tokens(prefill=2, sample=10)}


def test_an_estimate_measures_the_share_that_is_trained_on(tmp_path):
    sampled = batch_of([answer("a", s, 9, (1, 2)) for s in range(4)], scored=False)
    recorded(tmp_path / "h.duckdb", sampled, examples=1, train_tokens=10)
    config, notes = settings(f"run.history={tmp_path / 'h.duckdb'}"), []
    assert measured(config, notes) == Measured(
        completion=9.0, tokens_per_s=6.0, trained_share=0.25, turns=None, tool_tokens=None
    )
    assert notes == []
    assert measured(settings(f"run.history={tmp_path / 'h.duckdb'}", "tinker.student=other"), notes) is None


def test_hours_go_by_the_history_and_before_the_first_run_by_one_stated_assumption(tmp_path):
    recorded(
        tmp_path / "h.duckdb",
        batch_of([answer("a", s, 9, (1, 2)) for s in range(4)], scored=False),
        examples=1,
        train_tokens=10,
    )
    for name, rate, origin in (("h.duckdb", 6.0, "measured in"), ("none.duckdb", 5_000.0, "assumed for")):
        found = forecast(settings(f"run.history={tmp_path / name}"), Prompts(8, 2.0), Prompts(2, 2.0))
        assert found.hours() == (found.likely.hours(rate), found.most.hours(rate))
        assert [origin in note for note in found.assumptions if note.startswith("time: ")] == [True]


def test_a_hint_is_paid_for_by_whoever_read_it(tmp_path):
    """Two answers scored behind one prompt of 9 tokens, a third behind one of 12, by the student itself."""
    batch = batch_of([answer("a", n, 5, (1, 2, 3)) for n in range(3)], scored=True)
    for stored, shown in zip(batch.group("a"), (9, 9, 12), strict=True):
        assert stored.teacher is not None
        batch.update(stored, teacher=replace(stored.teacher, teacher="student", hint="golden", n_prompt=shown))
    usage = batch_usage(batch, 0, settings())
    assert set(usage) == {"student"}
    assert usage["student"] == Tokens(prefill=3 + (9 + 10) + (12 + 5), cached=2 * 3 + 9, sample=15 + 3)
    history = recorded(tmp_path / "h.duckdb", batch, examples=1, train_tokens=0)
    assert spent(history, "r", settings()) == usage
