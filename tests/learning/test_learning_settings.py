"""The settings of the matrix: each loads as a configuration and does what its name says."""

from pathlib import Path

import pytest

from benchmarks.learning import foreign
from benchmarks.learning.settings import (
    COMPARISONS,
    PROBLEMS_PER_STEP,
    SETTINGS,
    STEPS,
    TIERS,
    config_of,
)
from rtl_core.config import load_config
from rtl_core.starter import FAMILIES

FOLDER = Path("runs")
OF_FILES = [name for name, one in SETTINGS.items() if TIERS[one.tier].problems is None]


@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in OF_FILES])
def test_every_setting_uses_the_test_split_and_the_models_of_its_tier(name):
    setting = SETTINGS[name]
    config, tier = config_of(setting, 3, FOLDER), TIERS[setting.tier]
    (source,) = [source for source in config.problems.sources if source.heldout]
    assert (source.heldout_split, source.tier, config.run.seed) == ("test", tier.problems, 3)
    assert source.heldout % len(FAMILIES[tier.problems]) == 0
    teacher = foreign.NAME if SETTINGS[name].foreign else tier.teacher
    assert (config.tinker.student, config.tinker.teacher) == (tier.student, teacher)


@pytest.mark.parametrize("name", OF_FILES)
def test_a_setting_of_problems_in_files_has_its_base_with_the_test_problems_held_out(name):
    setting = SETTINGS[name]
    config, tier = config_of(setting, 3, FOLDER), TIERS[setting.tier]
    shipped = load_config(setting.base, environment={}, check_files=False)
    assert config.problems.sources == shipped.problems.sources
    assert config.problems.sources[0].heldout_fraction > 0
    assert (config.tinker.student, config.run.seed) == (tier.student, 3)


@pytest.mark.parametrize(
    "name", [n for n, one in SETTINGS.items() if not (one.is_shipped or one.longer)]
)
def test_settings_sample_no_more_answers_than_rl_alone_except_shipped_and_longer_ones(name):
    config = config_of(SETTINGS[name], 0, FOLDER)
    answers = config.curriculum.problems_per_step * config.sampling.group_size
    assert answers == PROBLEMS_PER_STEP * 6
    problems = sum(source.train for source in config.problems.sources)
    steps = problems * config.run.epochs // config.curriculum.problems_per_step
    assert steps >= STEPS
    supervised = config.learning.warm_start_steps
    of_teacher = config.warm_start_group if config.learning.imitates_teacher else 0
    sampled = (
        supervised * config.problems_of_step(0) * of_teacher + (steps - supervised) * answers
    )
    assert sampled <= STEPS * PROBLEMS_PER_STEP * 6


def test_no_two_settings_are_the_same_cell():
    cells = {}
    for setting in SETTINGS.values():
        config = config_of(setting, 0, FOLDER).model_dump()
        del config["run"]["name"], config["run"]["history"]
        cells.setdefault(str(config), []).append(setting.name)
    assert [names for names in cells.values() if len(names) > 1] == []


def test_comparisons_are_between_different_settings_of_a_tier():
    for comparison in COMPARISONS:
        assert SETTINGS[comparison.setting].tier == SETTINGS[comparison.against].tier
        assert comparison.setting != comparison.against
