"""Alignment of training data: position t predicts token t + 1, and prompt positions have no gradient."""

import numpy as np

from rtl_core.backend.base import Datum
from rtl_core.backend.tinker.training import to_datum
from rtl_core.rollouts.batch import rollout_seed


def test_a_datum_is_shifted_by_one_and_has_zeros_for_the_prompt():
    inputs = {
        "logprobs": np.array([-1.0, -2.0], np.float32),
        "advantages": np.array([0.5, -0.5], np.float32),
    }
    datum = to_datum(Datum([11, 12, 13], [21, 22], inputs))
    assert datum.model_input.to_ints() == [11, 12, 13, 21]
    assert datum.loss_fn_inputs["target_tokens"].to_numpy().tolist() == [12, 13, 21, 22]
    assert datum.loss_fn_inputs["logprobs"].to_numpy().tolist() == [0.0, 0.0, -1.0, -2.0]
    assert datum.loss_fn_inputs["advantages"].to_numpy().tolist() == [0.0, 0.0, 0.5, -0.5]


def test_seeds_depend_on_every_part_and_fit_31_bits():
    seeds = {
        rollout_seed(run, f"step/{step}", problem, i)
        for run in (0, 1)
        for step in (0, 1)
        for problem in "ab"
        for i in (0, 1)
    }
    assert len(seeds) == 16
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert rollout_seed(0, "step/1", "a", 0) == rollout_seed(0, "step/1", "a", 0)
