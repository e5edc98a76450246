"""A run that learns from the teacher's distributions: requests, training data, cost and records."""

import asyncio

import numpy as np
import pytest

from rtl_core.backend.base import Datum
from rtl_core.history.store import History
from tests.backend.scripted import Script
from tests.flows.conftest import QUICK

TAUGHT = (
    "learning.algorithm=distribution_distillation",
    "learning.kl_weight=0.5",
    "learning.kl_on=all",
    "learning.teacher_choices=5",
    "learning.choices_stored_above=0.5",
    *QUICK,
)


def trained(script: Script) -> list[tuple[Datum, np.ndarray]]:
    """(datum, weights of the five choices, (T, 5)) of each sequence that was trained on."""
    assert script.trained
    for loss, datum in script.trained:
        assert loss == "cross_entropy"
        assert datum.inputs["weights"].shape == (len(datum.tokens_T), 6)
    return [(datum, datum.inputs["weights"][:, 1:]) for _, datum in script.trained]


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_the_students_choices_come_with_its_sample_and_the_trainer_reads_once(
    small_run, tmp_path, script
):
    from rtl_distill.flows.train import train

    asked = "learning.choices_of=student", "backend.name=tests.backend.scripted:BACKEND"
    asyncio.run(train("demo", small_run("own", *TAUGHT, *asked)))
    history = History(tmp_path / "history.duckdb")
    for _, pulls_TK in trained(script):
        assert np.abs(pulls_TK).max() > 0
    own = sum(len(datum.sequence) - 1 for _, datum in script.trained)
    assert own == sum(step.train_tokens or 0 for step in history.trained_steps("own"))
    rows = history.query("SELECT tokens, logprobs FROM teacher_choices").to_pylist()
    assert rows
    assert all(row["logprobs"] == sorted(row["logprobs"], reverse=True) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reverse", "forward"])
@pytest.mark.usefixtures("prefect")
def test_it_trains_on_the_teachers_choices_and_stores_the_first_of_them(
    small_run, tmp_path, kind, script
):
    from rtl_distill.flows.train import train

    tail = "bucket" if kind == "reverse" else "renormalise"
    asked = (f"learning.divergence={kind}", f"learning.tail={tail}")
    recording = "backend.name=tests.backend.scripted:BACKEND"
    asyncio.run(train("demo", small_run("taught", *TAUGHT, *asked, recording)))
    history = History(tmp_path / "history.duckdb")
    for datum, pulls_TK in trained(script):
        assert datum.others_TK is not None
        assert np.abs(pulls_TK).max() > 0
        if kind == "forward":
            assert pulls_TK.min() >= 0
            count_T = (
                pulls_TK.sum(-1) / 0.5
            )  # λ times a distribution, for each of the equal answers
            assert np.allclose(count_T, np.round(count_T), atol=1e-4)
    # The forward pass that weights the reverse KL is paid as training.
    own = sum(len(datum.sequence) - 1 for _, datum in script.trained)
    paid = sum(step.train_tokens or 0 for step in history.trained_steps("taught"))
    assert paid == (2 * own if kind == "reverse" else own)
    rows = history.query(
        "SELECT c.position, c.tokens, c.logprobs, s.logprobs_T[c.position + 1] - q.logprobs_T[c.position + 1] AS kl"
        " FROM teacher_choices c JOIN tokens s USING (rollout) JOIN teacher_tokens q USING (rollout)"
    ).to_pylist()
    assert rows
    for row in rows:
        assert row["kl"] >= 0.5 - 1e-3
        assert len(row["tokens"]) == len(row["logprobs"]) == 3
        assert row["logprobs"] == sorted(row["logprobs"], reverse=True)
    metrics = history.query(
        "SELECT count(*) AS n FROM step_metrics WHERE name IN ('teacher_kl', 'learning/kl_share')"
    )
    assert metrics.to_pylist()[0]["n"] == 2 * len(history.trained_steps("taught"))


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_the_demo_learns_from_distributions_with_the_embedded_service(small_run, tmp_path):
    """The hard tier through HTTP and the SDK, after a supervised step; the teacher counts from the first wrong line on."""
    from rtl_distill.flows.train import train

    settings = small_run(
        "hard",
        *TAUGHT,
        "learning.warm_start_steps=1",
        "learning.warm_start_source=golden",
        "learning.divergence=jensen_shannon",
        "learning.kl_after_error=true",
        "learning.kl_on=failed",
    )
    asyncio.run(train("demo-hard", settings))
    steps = History(tmp_path / "history.duckdb").trained_steps("hard")
    assert [step.examples > 0 for step in steps if step.examples is not None] == [True, True]
