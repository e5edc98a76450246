"""A loss is one function: this file registers one and trains with it."""

import asyncio

import numpy as np
import pytest

from localtinker.losses import LOSSES, POLICY_INPUTS, loss
from rtl_core.backend.base import Adam, Datum
from rtl_core.backend.registry import backend_of
from rtl_core.config import load_config


@pytest.fixture
def _registered():
    @loss(*POLICY_INPUTS, parameters={"power": 1.0})
    def tempered(logp_BLK, inputs, parameters):
        """-r^power A."""
        return (
            -((logp_BLK - inputs["logprobs"]) * parameters["power"]).exp()
            * inputs["advantages"]
        )

    yield
    del LOSSES["tempered"]


@pytest.mark.usefixtures("_registered")
def test_a_registered_loss_can_be_trained_with(tmp_path):
    overrides = [
        f"run.directory={tmp_path}",
        f"run.history={tmp_path / 'h.duckdb'}",
        "backend.name=tests.backend.inprocess:BACKEND",
        "learning.loss=tempered",
        "learning.loss_parameters={power = 0.5}",
    ]
    config = load_config("demo", overrides, environment={})
    inputs = {
        "logprobs": np.array([-3.0, -6.0], np.float32),
        "advantages": np.array([1.0, -2.0], np.float32),
    }

    async def train():
        async with backend_of(config).open(config, print) as backend:
            trainer = await backend.open_trainer(None)
            adam = Adam(1e-3, 0.9, 0.95, 1e-8, 0.0)
            learning = config.learning
            result = await trainer.step(
                [Datum([40, 41], [50, 60], inputs)], learning.loss, learning.loss_settings, adam
            )
            return result.logprobs[0], result.metrics["loss:sum"]

    logp_T, total = asyncio.run(train())
    expected = -(np.exp(0.5 * (logp_T - inputs["logprobs"])) * inputs["advantages"]).sum()
    assert total == pytest.approx(expected, rel=1e-4)
