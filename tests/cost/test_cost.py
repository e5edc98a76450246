"""Cost of tokens, and estimates of a run."""

import re
from dataclasses import replace

import pytest

from rtl_core.config import RunConfig, load_config
from rtl_core.cost.estimate import Prompts, Workload, at_most, likely
from rtl_core.cost.tokens import (
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
from rtl_core.errors import ConfigError
from rtl_core.run.forecast import prices_of
from tests.command import invoke

STUDENT, TEACHER = "Qwen/Qwen3.6-35B-A3B", "Qwen/Qwen3.5-397B-A17B"


def test_the_prompt_of_a_group_is_prefilled_once_then_cached():
    assert sampled(100, [10, 20, 30]) == Tokens(prefill=100, cached=200, sample=60)
    assert scored(100, [10, 20, 30]) == Tokens(prefill=160, cached=200, sample=3)
    assert trained(100, [10, 20, 30]) == Tokens(train=(109 + 119 + 129))
    assert sampled(100, []) == Tokens()


def test_dollars_of_a_million_tokens_are_the_listed_prices():
    prices = load_prices()
    million = Tokens(1e6, 1e6, 1e6, 1e6)
    assert dollars(million, prices.models[STUDENT]) == {
        "prefill": 0.54,
        "cached": 0.108,
        "sample": 1.335,
        "train": 1.177,
    }
    assert total_dollars(
        {STUDENT: million, TEACHER: Tokens(1e6, 1e6, 1e6)}, prices
    ) == pytest.approx(3.16 + 11.10)


def test_a_missing_price_is_reported_and_not_counted_as_free():
    prices = Prices(as_of="2026-01-01", models={"small": ModelPrice(prefill=1.0)})
    usage = {"small": Tokens(prefill=5, sample=2), "other": Tokens(train=1)}
    assert total_dollars(usage, prices) is None
    assert unpriced(usage, prices) == ["small: sample", "other: train"]
    assert total_dollars({"small": Tokens(prefill=2_000_000)}, prices) == 2.0


def test_usages_add_up_by_model():
    total = together([{"a": Tokens(prefill=1)}, {"a": Tokens(sample=2), "b": Tokens(train=3)}])
    assert total == {"a": Tokens(prefill=1, sample=2), "b": Tokens(train=3)}


def test_an_invalid_price_list_is_refused(tmp_path):
    broken = tmp_path / "prices.toml"
    broken.write_text('as_of = 2026-01-01\n[models."m"]\nprefil = 1.0\nsampel = 2\n')
    with pytest.raises(
        ConfigError, match=r"prices\.toml is not a price list(.|\n)*prefil(.|\n)*sampel"
    ):
        load_prices(broken)
    with pytest.raises(ConfigError, match="there is no price list"):
        load_prices(tmp_path / "none.toml")


def test_an_estimate_counts_every_step_and_evaluation():
    settings = [
        "run.epochs=3",
        "learning.kl_weight=1",
        "learning.kl_schedule=linear",
        "learning.kl_schedule_part=0.5",
        "curriculum.problems_per_step=8",
        "sampling.group_size=6",
        "evaluation.every=10",
        "evaluation.samples=4",
    ]
    config = load_config("demo", settings, environment={})
    work = Workload(Prompts(160, 100), Prompts(64, 90), completion=50)
    found = likely(config, work)
    assert (found.steps, found.evaluations, found.teacher_evaluations) == (60, 2 + 5, 1)
    assert found.rollouts == 3 * 160 * 6 + 8 * 64 * 4
    student = found.training["student"]
    assert student == Tokens(
        prefill=480 * 100, cached=480 * 500, sample=480 * 300, train=480 * 6 * 149
    )
    # λ reaches 0 at the 30th step, so 29 steps of 8 groups are scored.
    assert found.training["teacher"] == Tokens(
        prefill=232 * 400, cached=232 * 500, sample=232 * 6
    )
    assert found.evaluating["student"] == Tokens(prefill=90, cached=270, sample=200) * 64 * 7
    assert found.hours(1_000) == pytest.approx(
        (480 * 300 + 64 * 200 * 8 + 232 * 6) / 1_000 / 3600
    )
    # Distributions cost the teacher as much as scores. The trainer reads answers twice if their weights depend on it.
    for tail, passes in (("bucket", 480 + 232), ("renormalise", 480)):
        more = [
            f"learning.tail={tail}",
            "learning.divergence=forward",
            "learning.algorithm=distribution_distillation",
        ]
        taught = likely(load_config("demo", [*settings, *more], environment={}), work).training
        assert taught["student"].train == passes * 6 * 149
        assert taught["teacher"] == found.training["teacher"]


def test_without_a_teacher_nothing_is_scored():
    alone = ["learning.kl_weight=0", "learning.warm_start_steps=0", "evaluation.teacher=false"]
    config = load_config("demo", alone, environment={})
    work = Workload(Prompts(8, 10), Prompts(4, 10), completion=10)
    assert set(likely(config, work).usage) == {"student"}


def a_run(*overrides: str) -> RunConfig:
    """Return a run of one epoch: two steps of two groups of three answers, without evaluation of the teacher."""
    return load_config(
        "demo",
        [
            "run.epochs=1",
            "curriculum.order=shuffled",
            "curriculum.problems_per_step=2",
            "sampling.group_size=3",
            "sampling.max_tokens=100",
            "prompting.max_prompt_tokens=500",
            "evaluation.every=0",
            "evaluation.samples=1",
            "evaluation.k=[1]",
            "evaluation.teacher=false",
            "learning.warm_start_steps=0",
            "learning.warm_start_problems=2",
            "learning.warm_start_answers=3",
            "learning.kl_schedule=constant",
            "learning.overlong_buffer=0",
            *overrides,
        ],
        environment={},
    )


UNCOUNTED = Workload(Prompts(4, 50), Prompts(1, 40), completion=20)
SMALL = Workload(
    Prompts(4, 50, most=50, longest=70),
    Prompts(1, 40, most=40),
    completion=20,
    trained_share=0.25,
)


def test_at_most_uses_the_answer_limit_and_the_full_prompt_price():
    config = a_run("learning.kl_weight=0.1", "learning.replace_with_kl=false")
    found = at_most(config, SMALL)
    assert found.training["student"] == Tokens(prefill=12 * 50, sample=12 * 100, train=12 * 149)
    assert found.training["teacher"] == Tokens(prefill=12 * 150, sample=12)
    assert found.evaluating == {"student": Tokens(prefill=2 * 40, sample=2 * 100)}
    longer = at_most(
        config.model_copy(
            update={"evaluation": config.evaluation.model_copy(update={"max_tokens": 900})}
        ),
        SMALL,
    )
    assert longer.evaluating == {"student": Tokens(prefill=2 * 40, sample=2 * 900)}
    assert longer.training == found.training
    assert (
        at_most(config, UNCOUNTED).training["student"].train == 12 * 599
    )  # prompts at max_prompt_tokens


def test_at_most_includes_replacements():
    config = a_run("learning.kl_weight=0", "learning.replacements=2")
    found = at_most(config, SMALL)
    # Each step may take both other problems, although its two groups could be replaced four times.
    first, others = 12, 12
    assert found.training["student"] == Tokens(
        prefill=first * 50 + others * 70,
        sample=(first + others) * 100,
        train=first * 149 + others * 169,
    )
    usual = likely(config, SMALL)
    assert usual.training["student"].train == pytest.approx(0.25 * 12 * 69)
    assert (usual.rollouts, found.rollouts) == (12 + 2, 24 + 2)


def test_each_turn_of_an_episode_is_billed_for_what_it_reads():
    config = a_run(
        "learning.kl_weight=0",
        "learning.episodes=true",
        "episode.turns=4",
        "episode.tokens=100",
        "episode.calls=1",
        "episode.result_bytes=400",
    )
    # Three turns, beginning 0, 20 and 40 tokens after the prompt of 50.
    found = likely(config, replace(SMALL, trained_share=1.0, turns=3, tool_tokens=40)).training[
        "student"
    ]
    assert found == Tokens(
        prefill=4 * 50 + 12 * 40, cached=8 * 50 + 12 * (50 + 70), sample=12 * 20, train=12 * 109
    )
    most = at_most(config, SMALL).training["student"]
    whole = 100 + 4 * 500 + 1000
    assert most == Tokens(
        prefill=12 * (50 + 3 * (50 + whole)), sample=12 * 100, train=12 * (49 + whole)
    )


def test_scoring_is_billed_only_in_steps_with_a_kl():
    falling = (
        "learning.kl_weight=0.2",
        "learning.kl_schedule=linear",
        "learning.final_kl_weight=0",
    )
    half = a_run(*falling, "learning.kl_schedule_part=0.5", "learning.replacements=0")
    rising = a_run(
        "learning.kl_weight=0",
        "learning.kl_schedule=linear",
        "learning.final_kl_weight=0.2",
        "learning.replacements=0",
    )
    for config in (half, rising):  # the first step of two, and the last
        assert at_most(config, SMALL).training["teacher"] == Tokens(prefill=6 * 150, sample=6)
        # A step with a KL trains on all samples, the other one on a quarter.
        assert likely(config, SMALL).training["student"].train == (1 + 0.25) * 6 * 69


def test_warm_start_and_measurement_are_part_of_the_estimate():
    golden = a_run(
        "learning.kl_weight=0.1",
        "learning.warm_start_steps=1",
        "learning.warm_start_source=golden",
    )
    found = likely(golden, SMALL).training
    assert found["student"] == Tokens(
        prefill=100, cached=200, sample=120, train=2 * 69 + 6 * 69
    )
    imitated = a_run(
        "learning.kl_weight=0",
        "learning.warm_start_steps=1",
        "learning.warm_start_source=teacher",
    )
    assert likely(imitated, SMALL).training["teacher"] == Tokens(
        prefill=100, cached=200, sample=120
    )
    once = a_run(
        "learning.kl_weight=0", "learning.warm_start_steps=1", "learning.warm_start_answers=1"
    )
    assert likely(once, SMALL).training["teacher"] == Tokens(prefill=100, sample=40)
    measured = a_run("learning.kl_weight=0", "curriculum.measure_samples=2")
    assert likely(measured, SMALL).training["teacher"] == Tokens(
        prefill=200, cached=200, sample=160
    )


def test_self_distillation_bills_the_hint_and_no_teacher():
    own = a_run(
        "learning.kl_weight=0.1",
        "learning.algorithm=self_distillation",
        "evaluation.teacher=false",
    )
    alone = a_run("learning.kl_weight=0.1", "evaluation.teacher=false")
    found, usual = likely(own, SMALL).training, likely(alone, SMALL).training
    assert set(found) == {"student"}
    steps, groups, hint = 2, 2, SMALL.completion + 20
    assert (
        usual["teacher"].prefill + usual["student"].prefill + hint * groups * steps
        == found["student"].prefill
    )


def test_several_teachers_share_by_source_and_cost_at_most_the_dearest_one():
    config = a_run(
        "learning.kl_weight=0.1",
        "learning.replace_with_kl=false",
        'tinker.teachers={cvdp = "other"}',
    )
    work = replace(SMALL, train=replace(SMALL.train, sources={"cvdp": 0.25, "starter": 0.75}))
    found, alone = (
        likely(config, work).training,
        likely(a_run("learning.kl_weight=0.1"), SMALL).training,
    )
    assert (found["other"], found["teacher"]) == (
        alone["teacher"] * 0.25,
        alone["teacher"] * 0.75,
    )
    price = ModelPrice(prefill=1.0, cached=1.0, sample=1.0, train=1.0)
    dear = ModelPrice(prefill=9.0, cached=9.0, sample=9.0)
    for dearest, models in (
        ("other", {"teacher": price, "other": dear}),
        ("teacher", {"teacher": dear, "other": price}),
    ):
        prices = Prices(as_of="2026-01-01", models={"student": price, **models})
        most = at_most(config, work, prices)
        assert set(most.training) == {"student", dearest}
        assert most.training[dearest] == Tokens(prefill=12 * 150, sample=12)
    unknown = Prices(as_of="2026-01-01", models={"student": price, "teacher": dear})
    assert "other" in at_most(config, work, unknown).training


def test_saved_weights_have_the_price_of_their_base_model(tmp_path):
    path = "tinker://run:train:0/sampler_weights/last"
    config = load_config(
        "demo",
        [
            f"tinker.student={STUDENT}",
            f"tinker.teacher={path}",
            "tinker.base_url=http://a",
            "cost.budget_usd=5",
        ],
        environment={},
    )
    prices = prices_of(config, {path: TEACHER})
    assert prices.models[path] == prices.models[TEACHER]
    with pytest.raises(ConfigError, match=f"no price for {path}"):
        prices_of(config, {path: "a model without a price"})


def test_estimate_prints_the_upper_bound_before_the_likely_cost(tmp_path):
    prices = tmp_path / "prices.toml"
    models = "".join(
        f"[models.{name}]\nprefill = 1.0\ncached = 1.0\nsample = 1.0\ntrain = 1.0\n"
        for name in ("student", "teacher")
    )
    prices.write_text(f"as_of = 2026-01-01\n{models}")
    changes = (
        "run.epochs=1",
        "problems.sources.0.train=4",
        "problems.sources.0.heldout=2",
        "learning.kl_weight=0",
        "learning.warm_start_steps=0",
        "learning.kl_schedule=constant",
        "learning.replacements=1",
        "learning.episodes=true",
        "episode.tools=[]",
        "episode.attempts=2",
        "evaluation.teacher=false",
        f"run.history={tmp_path / 'none.duckdb'}",
    )
    done = invoke("check", "--estimate", "demo", "--prices", prices, sets=changes)
    assert done.exit_code == 0, done.output
    figures = re.findall(r"\$([\d,]+\.\d+)", done.output)
    assert done.output.index("at most $") < done.output.index("likely  $")
    config = load_config("demo", changes, environment={})
    # Up to two answers with feedback per episode, all read by the second turn.
    answers = 4 * config.sampling.group_size
    twice = answers * 3 * 2 * config.sampling.max_tokens / 1e6
    assert float(figures[0]) > twice > float(figures[1])


def test_a_run_of_a_million_steps_is_estimated_without_walking_through_them():
    def estimated(epochs):
        config = load_config(
            "demo", [f"run.epochs={epochs}", "learning.kl_schedule=constant"], environment={}
        )
        work = Workload(Prompts(416, 50.0), Prompts(64, 50.0), 70.0)
        return likely(config, work)

    few, many = estimated(2), estimated(80_000)
    assert (few.steps, many.steps) == (26, 1_040_000)
    for model, tokens in few.training.items():
        assert many.training[model].sample == pytest.approx(40_000 * tokens.sample)
