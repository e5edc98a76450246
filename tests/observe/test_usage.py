"""Tokens of a step and of a run, and the budget check."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rtl_core.config import RunConfig, load_config
from rtl_core.cost.estimate import Prompts
from rtl_core.cost.tokens import ModelPrice, Prices, Tokens
from rtl_core.history.named_queries import named_query
from rtl_core.history.records import (
    RunRecord,
    StepPlan,
    StepRecord,
    TeacherReading,
    TeacherRecord,
)
from rtl_core.history.store import History
from rtl_core.observe.usage import cost_metrics, dollars_spent, spent, spent_in_step
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.figures import progress
from rtl_core.run.forecast import Measured, forecast, measured
from rtl_core.run.stopping import stop_reason
from rtl_core.types.rollout import Rollout
from tests.nouns import a_problem, a_rollout

PRICES = Prices(
    as_of="2026-01-01", models={"student": ModelPrice(prefill=0, cached=0, sample=0, train=1.0)}
)


def answer(
    problem: str, sample: int, tokens: int, prompt: tuple[int, ...], **more: Any
) -> Rollout:
    tokens_T = (1,) * (tokens - 1) + (sample,)
    own = {"problem_id": problem, "sample": sample, "prompt_P": prompt, "text": f"x{sample}"}
    return a_rollout(tokens_T=tokens_T, logprobs_T=(-0.5,) * tokens, **own, **more)


def score(rollout: Rollout, **more: Any) -> TeacherRecord:
    n = len(rollout.tokens_T)
    return TeacherRecord(rollout.key, np.full(n, -0.6), 0.1, 0.1, 0.1, n, **more)


def recorded(
    path: Path,
    answers: Sequence[Rollout],
    scores: Sequence[TeacherRecord] = (),
    *,
    trained: int,
) -> History:
    """A history with one step of these answers, which trained on `trained` tokens."""
    history = History(path)
    history.start_run(RunRecord(name="r", student="student"))
    history.plan_epoch("r", 0, [StepPlan(step=0, problem_ids=("a",))])
    history.record_rollouts(answers)
    history.record_teacher(scores)
    history.finish_step(
        StepRecord(
            run="r", epoch=0, step=0, state_path="st", sampler_path="sa", examples=1, train_tokens=trained,
            metrics={"cost/usd": trained / 1e6, "learning/kl_weight": 0.0}, times={"total": 6.0},
        )
    )  # fmt: skip
    return history


def settings(*overrides: str) -> RunConfig:
    return load_config("demo", ["run.name=r", *overrides], environment={})


def used(history: History, config: RunConfig, trained: int) -> dict[str, Tokens]:
    """The usage of the run, which is that of its only step."""
    usage = spent(history, "r", config)
    assert spent_in_step(history, "r", config, "train", 0, trained) == usage
    assert not spent_in_step(history, "r", config, "train", 1, 0)
    assert not spent_in_step(history, "r", config, "set_aside", 0, 0)
    return usage


def test_a_group_prefills_its_prompt_once_and_scored_answers_are_prefilled_whole(tmp_path):
    answers = [
        answer("a", 0, 5, (1, 2, 3)),
        answer("a", 1, 7, (1, 2, 3)),
        answer("b", 0, 9, (4,)),
    ]
    usage = used(
        recorded(tmp_path / "h.duckdb", answers, list(map(score, answers)), trained=17),
        settings(),
        17,
    )
    assert usage["student"] == Tokens(prefill=3 + 1, cached=3, sample=21, train=17)
    assert usage["teacher"] == Tokens(prefill=25, cached=3, sample=3)


def test_a_reading_of_several_answers_is_charged_once(tmp_path):
    """Answers whose thoughts alone differ are one text for a teacher that does not read thoughts."""
    answers = [answer("a", n, 5, (1, 2, 3)) for n in range(3)]
    spans = np.array([[0, 5, 0, 2]], np.int32)
    readings = [
        TeacherReading(tokens, (-1.0, -1.0), spans) for tokens in ((7, 8), (7, 8), (7, 9))
    ]
    scores = [
        score(one, teacher="teacher", n_prompt=6, reading=reading)
        for one, reading in zip(answers, readings, strict=True)
    ]
    usage = used(recorded(tmp_path / "h.duckdb", answers, scores, trained=0), settings(), 0)
    assert usage["teacher"] == Tokens(prefill=6 + 2 * 2, cached=6, sample=2)


def test_each_turn_of_an_episode_reads_the_conversation_before_it(tmp_path):
    """A prompt of 3 tokens; three turns of 2, 1 and 1 sampled tokens, with 2 and 1 tool tokens between them; and an answer of one turn."""
    own_T = (True, True, False, False, True, False, True)
    answers = [
        answer("a", 0, 7, (1, 2, 3), own_T=own_T, n_turns=3, ended="submitted"),
        answer("b", 0, 9, (4,)),
    ]
    history = recorded(tmp_path / "h.duckdb", answers, list(map(score, answers)), trained=20)
    usage = used(history, settings("learning.episodes=true"), 20)
    assert usage["student"] == Tokens(
        prefill=3 + 6 + 1, cached=3 + (3 + 4), sample=4 + 9, train=20
    )
    assert usage["teacher"] == Tokens(prefill=(3 + 7) + (1 + 9), sample=2)


def test_each_teacher_is_charged_for_the_problems_of_its_source(tmp_path):
    config = settings('tinker.teachers={cvdp = "other"}')
    answers = [answer("a", 0, 5, (1, 2, 3)), answer("b", 0, 9, (4,))]
    scores = list(map(score, answers))
    history = recorded(tmp_path / "h.duckdb", answers, scores, trained=17)
    problems = (a_problem(id="a"), a_problem(id="b", source="starter"))
    history.record_problems("r", [(problem, "train", i) for i, problem in enumerate(problems)])
    usage = used(history, config, 17)
    assert usage["other"] == Tokens(prefill=3 + 5, sample=1)
    assert usage["teacher"] == Tokens(prefill=1 + 9, sample=1)
    # The recorded teacher counts, whatever the configuration says now.
    history.record_teacher([replace(scores[0], teacher="before")])
    assert set(spent(history, "r", config)) == {"student", "before", "teacher"}


def test_answers_that_are_not_trained_on_do_not_count_against_the_budget(tmp_path):
    """Two of eight answers of 1000 tokens were trained on: a budget of just over two such steps allows the second."""
    answers = [answer(p, s, 1000, (1, 2)) for p in "abcd" for s in (0, 1)]
    history = recorded(tmp_path / "h.duckdb", answers, trained=2 * 1001)

    def reason(budget):
        config = settings(f"cost.budget_usd={budget}")
        session: Any = SimpleNamespace(
            config=config,
            history=history,
            run="r",
            prices=PRICES,
            progress=SimpleNamespace(opened_at=time.monotonic()),
        )
        return stop_reason(session)

    assert spent(history, "r", settings())["student"].train == 2002
    assert reason(0.0041) is None
    assert "would be exceeded" in (reason(0.0040) or "")


def test_a_recorded_step_counts_by_its_recorded_cost_and_the_rest_by_its_tokens(tmp_path):
    """The recorded step cost $0.002002 for 2002 tokens; the next step and an evaluation have 30 and 9 tokens at $2 per million."""
    history = recorded(
        tmp_path / "h.duckdb", [answer("a", s, 1000, (1, 2)) for s in (0, 1)], trained=2002
    )
    history.record_rollouts([answer("a", s, 15, (1, 2), step=1) for s in (0, 1)])
    history.record_rollouts(
        [answer("b", 0, 9, (1, 2), purpose="evaluation", evaluation="r/student/00000")]
    )
    prices = Prices(
        as_of="2026-02-01",
        models={"student": ModelPrice(prefill=0, cached=0, sample=2, train=2)},
    )
    assert dollars_spent(history, "r", settings(), prices) == pytest.approx(
        0.002002 + 39 * 2e-6
    )
    assert (
        dollars_spent(history, "r", settings(), Prices(as_of="2026-02-01", models={})) is None
    )


def test_a_step_without_trained_tokens_costs_no_training(tmp_path):
    history = recorded(tmp_path / "h.duckdb", [answer("a", 0, 10, (1, 2))], trained=0)
    assert used(history, settings(), 0) == {"student": Tokens(prefill=2, sample=10)}


def test_an_estimate_measures_the_share_of_trained_answers(tmp_path):
    recorded(tmp_path / "h.duckdb", [answer("a", s, 9, (1, 2)) for s in range(4)], trained=10)
    config, notes = settings(f"run.history={tmp_path / 'h.duckdb'}"), []
    assert measured(config, notes) == Measured(
        answers=4,
        completion=9.0,
        tokens_per_s=6.0,
        trained_share=0.25,
        turns=None,
        tool_tokens=None,
    )
    assert notes == []
    other = settings(f"run.history={tmp_path / 'h.duckdb'}", "tinker.student=other")
    assert measured(other, notes) == Measured()


def test_hours_follow_the_history_and_before_the_first_run_a_stated_assumption(tmp_path):
    recorded(tmp_path / "h.duckdb", [answer("a", s, 9, (1, 2)) for s in range(4)], trained=10)
    for name, rate, origin in (
        ("h.duckdb", 6.0, "measured over 4 answers in"),
        ("none.duckdb", 5_000.0, "assumed for"),
    ):
        found = forecast(
            settings(f"run.history={tmp_path / name}"), Prompts(8, 2.0), Prompts(2, 2.0)
        )
        assert found.hours() == (found.likely.hours(rate), found.most.hours(rate))
        assert [origin in note for note in found.assumptions if note.startswith("time: ")] == [
            True
        ]


def test_a_hint_is_charged_to_the_model_that_read_it(tmp_path):
    """The student itself scored two answers after a prompt of 9 tokens, and a third after one of 12."""
    answers = [answer("a", n, 5, (1, 2, 3)) for n in range(3)]
    hinted = [
        score(one, teacher="student", hint="golden", n_prompt=shown)
        for one, shown in zip(answers, (9, 9, 12), strict=True)
    ]
    usage = used(recorded(tmp_path / "h.duckdb", answers, hinted, trained=0), settings(), 0)
    assert set(usage) == {"student"}
    assert usage["student"] == Tokens(
        prefill=3 + (9 + 10) + (12 + 5), cached=2 * 3 + 9, sample=15 + 3
    )


def test_cached_prompt_tokens_are_those_that_the_service_counts(tmp_path):
    """Of the second prompt nothing was cached; of the first what another request had read, too."""
    answers = [
        answer("a", 0, 5, (1, 2, 3), n_cached=2),
        answer("a", 1, 7, (1, 2, 3), n_cached=3),
        answer("b", 0, 9, (4, 5), n_cached=0),
        answer("b", 1, 9, (4, 5), n_cached=0),
        answer("c", 0, 9, (6, 7), n_cached=2),
        answer("c", 1, 9, (6, 7)),  # not known of all its answers: by the rule
    ]
    history, config = recorded(tmp_path / "h.duckdb", answers, trained=17), settings()
    usage = used(history, config, 17)
    assert usage["student"] == Tokens(prefill=1 + 4 + 2, cached=5 + 0 + 2, sample=48, train=17)
    metrics = cost_metrics(usage, config, PRICES)
    history.finish_step(
        StepRecord(
            run="r", epoch=0, step=0, state_path="st", sampler_path="sa", examples=1, train_tokens=17,
            metrics=metrics,
        )
    )  # fmt: skip
    costs = named_query("costs")
    (row,) = history.query(costs.sql, costs.bind({}, "r")).to_pylist()
    assert row == {
        "step": 0, "model": "student", "prefill": 7, "cached": 7, "sample": 48, "train": 17,
        "cached_share": 0.5, "step_usd": pytest.approx(17e-6),
    }  # fmt: skip
    table = progress.cost(Source(history, "r"))
    assert "Of the prompt tokens, 50% were read from the service's cache." in table.caption


def test_the_turns_of_an_episode_read_from_the_cache_what_the_service_counts(tmp_path):
    """The prompts of the three turns have 3, 7 and 9 tokens."""
    own_T = (True, True, False, False, True, False, True)
    one = answer("a", 0, 7, (1, 2, 3), own_T=own_T, n_turns=3, ended="submitted", n_cached=8)
    history = recorded(tmp_path / "h.duckdb", [one], trained=0)
    usage = used(history, settings("learning.episodes=true"), 0)
    assert usage["student"] == Tokens(prefill=3 + 7 + 9 - 8, cached=8, sample=4)
