"""Dollars by tokens, and what a whole run will use."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtl_core.config import load_config
from rtl_core.errors import ConfigError
from rtl_core.policy.cost import (
    ModelPrice,
    Prices,
    Tokens,
    dollars,
    load_prices,
    sampled,
    scored,
    together,
    total_dollars,
    trained,
    unpriced,
)
from rtl_core.policy.estimate import Pace, Workload, estimate_run

STUDENT, TEACHER = "Qwen/Qwen3.6-35B-A3B", "Qwen/Qwen3.5-397B-A17B"
PACE = Pace(
    stream_tokens_per_s=50,
    streams=100,
    grade_s=1,
    graders=4,
    score_tokens_per_s=1e4,
    train_tokens_per_s=1e4,
    fixed_s=10,
)


def test_a_group_pays_its_prompt_once_and_reads_it_from_the_cache_after_that() -> None:
    assert sampled(100, [10, 20, 30]) == Tokens(prefill=100, cached=200, sample=60)
    assert scored(100, [10, 20, 30]) == Tokens(prefill=160, cached=200, sample=3)
    assert trained(100, [10, 20, 30]) == Tokens(train=(109 + 119 + 129))
    assert sampled(100, []) == Tokens()


def test_dollars_of_a_million_tokens_are_the_listed_prices() -> None:
    prices = load_prices()
    million = Tokens(1e6, 1e6, 1e6, 1e6)
    assert dollars(million, prices.models[STUDENT]) == {
        "prefill": 0.54,
        "cached": 0.108,
        "sample": 1.335,
        "train": 1.177,
    }
    assert total_dollars({STUDENT: million, TEACHER: Tokens(1e6, 1e6, 1e6)}, prices) == pytest.approx(3.16 + 11.10)


def test_what_has_no_price_is_named_and_never_counted_as_free() -> None:
    prices = Prices(as_of="2026-01-01", models={"small": ModelPrice(prefill=1.0)})
    usage = {"small": Tokens(prefill=5, sample=2), "other": Tokens(train=1)}
    assert total_dollars(usage, prices) is None
    assert unpriced(usage, prices) == ["small: sample", "other: train"]
    assert total_dollars({"small": Tokens(prefill=2_000_000)}, prices) == 2.0


def test_usages_add_up_by_model() -> None:
    total = together([{"a": Tokens(prefill=1)}, {"a": Tokens(sample=2), "b": Tokens(train=3)}])
    assert total == {"a": Tokens(prefill=1, sample=2), "b": Tokens(train=3)}


def test_a_price_list_with_a_mistake_is_refused_with_its_place(tmp_path: Path) -> None:
    broken = tmp_path / "prices.toml"
    broken.write_text('as_of = 2026-01-01\n[models."m"]\nprefil = 1.0\n')
    with pytest.raises(ConfigError, match=r"prices\.toml is no price list(.|\n)*prefil"):
        load_prices(broken)
    with pytest.raises(ConfigError, match="there is no price list"):
        load_prices(tmp_path / "none.toml")


def test_an_estimate_counts_every_step_and_evaluation_of_the_configuration() -> None:
    config = load_config(
        "demo",
        ["run.epochs=3", "curriculum.problems_per_step=8", "sampling.group_size=6", "evaluation.every=10"],
        environment={},
    )
    work = Workload(train_problems=160, heldout_problems=64, train_prompt=100, heldout_prompt=90, completion=50)
    found = estimate_run(config, work, PACE)
    assert (found.steps, found.evaluations, found.teacher_evaluations) == (60, 2 + 5, 1)
    assert found.rollouts == 3 * 160 * 6 + 8 * 64 * 4
    student = found.training["student"]
    assert student == Tokens(prefill=480 * 100, cached=480 * 500, sample=480 * 300, train=480 * 6 * 149)
    assert found.training["teacher"] == Tokens(prefill=480 * 400, cached=480 * 500, sample=480 * 6)
    assert found.evaluating["student"] == Tokens(prefill=90, cached=270, sample=200) * 64 * 7
    # 48 answers at once: 50 tokens at 50 a second, 48 grades on 4 cores, 7200 tokens scored and trained, 10 s fixed.
    assert found.step_s == pytest.approx(1 + 12 + 2 * 0.72 + 10)


def test_without_a_teacher_nothing_is_scored() -> None:
    config = load_config("demo", ["learning.kl_weight=0", "evaluation.teacher=false"], environment={})
    work = Workload(train_problems=8, heldout_problems=4, train_prompt=10, heldout_prompt=10, completion=10)
    assert set(estimate_run(config, work, PACE).usage) == {"student"}
