"""The problems of the starter set, and its separate splits."""

import hashlib
import itertools
import json
import re

import pytest

from rtl_core.errors import ProblemError
from rtl_core.starter import BY_NAME, FAMILIES, problem_of, starter_problems, starter_specs
from rtl_core.starter.record import record_of, target_of
from rtl_core.starter.spec import modules_of
from tests.nouns import golden_answer

SPLITS = ("train", "heldout", "test")


def prompt_of(spec):
    return BY_NAME[spec.family].prompt(spec)


def identity_of(spec):
    return record_of(BY_NAME[spec.family], spec)["id"]


def test_there_are_families_of_every_difficulty():
    assert len(FAMILIES["starter"]) >= 16
    assert {family.difficulty for family in FAMILIES["starter"]} == {"easy", "medium", "hard"}
    assert len(FAMILIES["hard"]) >= 5
    assert len(BY_NAME) == sum(len(families) for families in FAMILIES.values())


@pytest.mark.parametrize("tier", FAMILIES)
def test_splits_share_no_specification(tier):
    specs = {split: starter_specs(split, 100, seed=0, tier=tier) for split in SPLITS}
    for one, other in itertools.combinations(SPLITS, 2):
        for fact in (prompt_of, identity_of, lambda spec: spec.module):
            assert not {fact(spec) for spec in specs[one]} & {
                fact(spec) for spec in specs[other]
            }
        wide = [
            {(s.family, s.width) for s in specs[split] if BY_NAME[s.family].widths != (1,)}
            for split in (one, other)
        ]
        assert not wide[0] & wide[1]


def test_every_width_and_module_name_belongs_to_one_split():
    for family in BY_NAME.values():
        if family.widths != (1,):
            assert sorted(w for split in SPLITS for w in family.widths_of(split)) == sorted(
                family.widths
            )
            assert 8 in family.widths_of("train")
    for one, other in itertools.combinations(SPLITS, 2):
        assert not set(modules_of(one)) & set(modules_of(other))


def test_equal_arguments_give_equal_problems_and_a_longer_list_starts_with_the_shorter():
    first = starter_problems("train", 18, seed=3)
    assert first == starter_problems("train", 18, seed=3)
    specs = starter_specs("train", 60, seed=3)
    assert [p.id for p in first] == [identity_of(spec) for spec in specs[:18]]
    assert starter_specs("train", 40, seed=3) == specs[:40]
    assert starter_specs("train", 40, seed=4) != specs[:40]


def test_families_take_turns_and_ids_are_unique():
    specs = starter_specs("train", 3 * len(FAMILIES["starter"]), seed=0)
    assert [spec.family for spec in specs] == [
        family.name for family in FAMILIES["starter"]
    ] * 3
    assert len({identity_of(spec) for spec in specs}) == len(specs)


def specs_of(family, split, count, seed):
    """`count` specifications of a family."""
    tier = next(tier for tier, families in FAMILIES.items() if family in families)
    specs = starter_specs(split, count * len(FAMILIES[tier]), seed=seed, tier=tier)
    return [spec for spec in specs if spec.family == family.name]


@pytest.mark.parametrize("family", BY_NAME.values(), ids=BY_NAME)
def test_the_prompt_states_the_whole_interface(family):
    for spec in specs_of(family, "train", 4, seed=5):
        prompt = family.prompt(spec)
        words = set(re.findall(r"\w+", prompt))
        assert {signal.name for signal in family.header(spec)} | {spec.module} <= words
        if family.widths != (1,):
            assert str(spec.width) in words
        if family.sequential:
            assert ("async" if spec.asynchronous else "sync") in words
            assert f"active {'low' if spec.active_low else 'high'}." in prompt


@pytest.mark.parametrize("family", BY_NAME.values(), ids=BY_NAME)
def test_the_golden_answer_has_the_ports_of_the_specification(family):
    (spec,) = specs_of(family, "test", 1, seed=1)
    problem = problem_of(spec)
    expected = [
        (s.name, "input" if s.is_input else "output", s.width) for s in family.header(spec)
    ]
    assert [
        (port.name, port.direction, port.width) for port in problem.interface.ports
    ] == expected
    assert problem.interface.module == spec.module
    assert problem.difficulty == family.difficulty
    assert problem.family == family.name


def test_an_unknown_tier_is_refused():
    with pytest.raises(ProblemError, match="no tier 'harder'"):
        starter_problems("train", 1, seed=0, tier="harder")


@pytest.mark.parametrize(
    ("tier", "split", "digest"),
    [
        ("starter", "train", "2911c842863dfd8c"),
        ("starter", "heldout", "1e934e0337e9e560"),
        ("starter", "test", "e613ca667cb13380"),
        ("hard", "train", "3253ba4f4e755f20"),
        ("hard", "heldout", "b5b21ee71a17621a"),
        ("hard", "test", "37a8223579f18b5f"),
    ],
)
def test_ids_prompts_and_golden_answers_are_those_of_the_shipped_models_training(
    tier, split, digest
):
    specs = starter_specs(split, 100, seed=0, tier=tier)
    shown = [[identity_of(s), prompt_of(s), {target_of(s): golden_answer(s)}] for s in specs]
    assert [
        [p.id, p.prompt, p.golden] for p in starter_problems(split, 3, seed=0, tier=tier)
    ] == shown[:3]
    text = json.dumps(shown)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest
