"""A run pays for exactly the tokens that it sent for training: the client's calls, the service's count, history and cost agree."""

from typing import Any

import pytest

import rtl_core.backend.tinker.clients as tinker_clients
from rtl_core.config import load_config
from rtl_core.cost.estimate import Prompts, Workload, at_most
from rtl_core.cost.tokens import load_prices, total_dollars
from rtl_core.history.store import History
from rtl_core.observe.usage import spent
from tests.flows.conftest import QUICK

pytestmark = pytest.mark.slow

# No evaluation: its answers are a cost of the run but of no step.
SMALL = (*QUICK, "evaluation.after_warm_start=false")
PRICES = """as_of = 2026-01-01
[models.student]
prefill = 1.0
cached = 0.5
sample = 3.0
train = 5.0
[models.teacher]
prefill = 10.0
cached = 5.0
sample = 30.0
"""


class Counting:
    """A training client that counts the tokens sent through it."""

    def __init__(self, client: Any, sent: list[list[int]]) -> None:
        self._client = client
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def forward_backward(self, data: list[Any], *rest: Any) -> Any:
        self._sent.append([datum.model_input.length for datum in data])
        return self._client.forward_backward(data, *rest)


@pytest.fixture
def sent(monkeypatch):
    """The tokens of each datum of each pass sent during the test."""
    open_training_client = tinker_clients.open_training_client
    sent: list[list[int]] = []

    async def counting(*arguments):
        return Counting(await open_training_client(*arguments), sent)

    monkeypatch.setattr(tinker_clients, "open_training_client", counting)
    return sent


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        # Only rewards, nearly always equal: groups are replaced, and those that stay equal are not trained on.
        (
            "rewards",
            (
                "learning.kl_weight=0",
                "learning.warm_start_steps=0",
                "learning.kl_schedule=constant",
                "learning.replacements=1",
                "reward.weights={syntax = 1.0}",
                "learning.truncated=mask",
            ),
        ),
        # A supervised step, then one with rewards and the teacher's KL, which trains on every answer.
        (
            "golden",
            (
                "learning.warm_start_steps=1",
                "learning.warm_start_source=golden",
                "learning.kl_weight=0.1",
            ),
        ),
        (
            "imitated",
            (
                "learning.warm_start_steps=1",
                "learning.warm_start_source=teacher",
                "learning.kl_weight=0.1",
            ),
        ),
        (
            "imitated-once",
            (
                "learning.warm_start_steps=1",
                "learning.warm_start_answers=1",
                "learning.kl_weight=0.1",
            ),
        ),
    ],
)
def test_history_and_cost_count_exactly_the_tokens_sent_for_training(
    small_run, tmp_path, train, sent, name, overrides
):
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)
    settings = small_run(name, *SMALL, f"cost.prices={prices}", *overrides)
    train(settings)
    history, config = History(tmp_path / "history.duckdb"), load_config("demo", settings)
    rollouts = "SELECT count(*) AS n FROM rollouts WHERE run = ? AND purpose <> 'evaluation'"
    ((sampled,),) = [row.values() for row in history.query(rollouts, [name]).to_pylist()]
    assert sum(sum(lengths) for lengths in sent) > 0
    if name == "rewards":
        assert sum(len(lengths) for lengths in sent) < sampled

    usage = spent(history, name, config)
    assert usage["student"].train == sum(sum(lengths) for lengths in sent)

    steps = history.trained_steps(name)
    passes = [lengths for lengths in sent if lengths]
    assert [(s.examples, s.train_tokens) for s in steps if s.examples] == [
        (len(p), sum(p)) for p in passes
    ]
    metrics: dict[str, list[float]] = {}
    for row in history.query(
        "SELECT name, value FROM step_metrics WHERE run = ? ORDER BY step", [name]
    ).to_pylist():
        metrics.setdefault(row["name"], []).append(row["value"])
    assert (
        metrics["service/input_tokens:sum"]
        == metrics["tokens/student/train"]
        == [float(sum(p)) for p in passes]
    )
    # At most what the estimate gives as the maximum.
    with_prompts = history.query(
        "SELECT max(n_prompt) AS longest FROM rollouts WHERE run = ?", [name]
    ).to_pylist()
    longest = float(with_prompts[0]["longest"])
    work = Workload(
        Prompts(4, longest, most=longest, longest=longest), Prompts(1, longest), completion=1.0
    )
    most = total_dollars(at_most(config, work).training, load_prices(prices))
    assert most is not None
    assert most >= sum(metrics["cost/usd"])
    # The sum of the steps' costs equals the cost of the run, which is compared with the budget.
    assert sum(metrics["cost/usd"]) == pytest.approx(total_dollars(usage, load_prices(prices)))
