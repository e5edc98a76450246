"""The settings of the learning report: each is a configuration that loads, and says what its name says."""

from __future__ import annotations

import pytest

from benchmarks.learning.settings import COMPARISONS, SETTINGS, Size, config_of
from rtl_core.learning.kl_weight import scheduled_weight

SIZE = Size(steps=96)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_a_run_of_the_asked_size_judged_on_the_asked_split(name: str) -> None:
    for split in ("test", "heldout"):
        size = Size(steps=96, split=split)
        config = config_of(SETTINGS[name], 3, size, "runs")
        *_, judged = config.problems.sources
        assert (judged.heldout_split, config.run.seed) == (split, 3)
        problems = sum(source.train for source in config.problems.sources)
        assert problems * config.run.epochs == size.steps * config.curriculum.problems_per_step
        assert judged.heldout % (18 if SETTINGS[name].tier == "starter" else 7) == 0


def test_the_teacher_first_is_the_teacher_first_and_the_verdicts_alone_after_half_the_run() -> None:
    learning = config_of(SETTINGS["both-led"], 0, SIZE, "runs").learning
    weights = [
        scheduled_weight(
            step, 96, learning.kl_weight, learning.final_kl_weight, learning.kl_schedule, learning.kl_schedule_part
        )
        for step in range(96)
    ]
    assert weights[0] == 0.2
    assert all(weight > 0 for weight in weights[:47])
    assert weights[47:] == [0.0] * 49


def test_settings_are_compared_only_with_others_of_the_list_and_tier() -> None:
    for comparison in COMPARISONS:
        assert SETTINGS[comparison.setting].tier == SETTINGS[comparison.against].tier
        assert comparison.setting != comparison.against
