"""What an estimate says of a model on this machine."""

from __future__ import annotations

from rtl_core.localtinker.rate import rates_of


def test_parameters_are_counted_and_rates_are_in_proportion(models_by_name):
    rates = rates_of(models_by_name["student"], "float32", 1)
    assert 300_000 < rates.parameters < 2_000_000
    assert rates.scored > rates.trained > 0
    assert rates.sampled > 0
    assert 1.0 < rates.memory_gb < 2.0
