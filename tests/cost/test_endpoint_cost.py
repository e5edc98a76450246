"""What a warm start on an endpoint's answers costs: estimate, price list and budget."""

import pytest

from rtl_core.config import load_config
from rtl_core.cost.estimate import Prompts, Workload, at_most, likely
from rtl_core.cost.tokens import Tokens, load_prices, total_dollars
from rtl_core.errors import ConfigError
from rtl_core.run.check.preflight import served_by_endpoint
from rtl_core.run.forecast import forecast, prices_of
from tests.episodes.writer import MODEL, asks

PRICES = """as_of = 2026-01-01
[models.writer-1]
prefill = 2.0
sample = 8.0
"""
PROMPTS = Prompts(8, 100.0, most=100.0, longest=100.0)


def config(*more):
    sizes = ("problems.sources.0.train=8", "curriculum.problems_per_step=4", "run.epochs=1")
    warm = ("learning.warm_start_steps=1", "learning.warm_start_problems=4")
    asked = asks("http://127.0.0.1:9/v1", *sizes, *warm, "learning.warm_start_max_tokens=1000")
    return load_config("demo", [*asked, *more], environment={})


@pytest.fixture
def prices(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    return path


def test_the_estimate_bills_each_request_in_full_up_to_its_own_limit():
    work = Workload(PROMPTS, PROMPTS, completion=50.0)
    # Four problems, two answers each; an answer of the student has at most 200 tokens, here it takes a quarter.
    assert at_most(config(), work).training[MODEL] == Tokens(prefill=800.0, sample=8000.0)
    assert likely(config(), work).training[MODEL] == Tokens(prefill=800.0, sample=2000.0)
    later = config("learning.warm_start_steps=0")
    assert MODEL not in at_most(later, work).usage


def test_models_of_this_machine_stay_free_beside_a_paid_endpoint(prices):
    chosen = config(f"cost.prices={prices}", "cost.budget_usd=5")
    assert prices_of(chosen).models["student"].sample == 0
    plan = forecast(chosen, PROMPTS, PROMPTS, completion=50.0)
    assert total_dollars(plan.most.usage, plan.prices) == pytest.approx(0.0016 + 0.064)


def test_a_budget_is_refused_while_the_endpoints_model_has_no_price():
    with pytest.raises(ConfigError, match="no price for writer-1: prefill, writer-1: sample"):
        prices_of(config("cost.budget_usd=5"))
    assert MODEL not in load_prices().models


def test_a_run_that_asks_no_endpoint_is_free_and_checks_none():
    assert not config().is_free
    (dead,) = served_by_endpoint(config())
    assert dead.level == "wrong"
    assert "127.0.0.1:9/v1 does not answer" in dead.text
    golden = config("learning.warm_start_source=golden")
    assert golden.is_free
    assert served_by_endpoint(golden) == []
