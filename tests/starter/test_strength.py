"""A small part of the measurement of the starter benches' strength."""

import random

import pytest

from benchmarks.starter_strength import specs_of, strength, wrong_designs
from rtl_core.starter import BY_NAME
from rtl_core.starter.bench import starter_stimuli
from tests.nouns import golden_answer


def some(wrong):
    """A design of each kind, without stubs (tested elsewhere) and patterns rarer than one in 16 (left to the benchmark)."""
    chosen = random.Random(len(wrong)).sample(list(wrong), len(wrong))
    kinds = {
        name.split(":")[0]: name
        for name in chosen
        if not ("is wrong at" in name and name.count(",") > 3)
    }
    return {name: wrong[name] for kind, name in kinds.items() if kind != "stub"}


QUICK = ("counter", "mux", "fifo")


@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in BY_NAME],
)
def test_wrong_designs_are_killed(executor, family):
    tally = strength(executor, specs_of(family, 3, seed=1)[1:2], seed=1, threads=2, choose=some)
    assert not tally.survivors
    assert tally.killed >= 4


def test_wrong_designs_of_a_specification_are_many_distinct_and_reproducible():
    spec = specs_of("fifo", 1, seed=0)[0]
    wrong = wrong_designs(spec)
    assert len(wrong) > 50
    assert (
        len(
            {tuple(answer.files.values()) for answer in wrong.values()}
            | {(golden_answer(spec),)}
        )
        == len(wrong) + 1
    )
    assert wrong == wrong_designs(spec)


@pytest.mark.parametrize("widths", [[16], [12], [16, 16], [9, 9, 1]])
def test_corner_cases_include_every_bit_alone_and_every_bit_missing(widths):
    cases = starter_stimuli.directed(random.Random(0), widths)
    top = (1 << widths[0]) - 1
    for bit in range(widths[0]):
        for place in range(sum(width > 1 for width in widths)):
            values = {case[place] for case in cases}
            assert {1 << bit, top ^ (1 << bit), top >> bit} <= values


@pytest.mark.parametrize("widths", [[3], [5, 5, 1], [11]])
def test_few_inputs_are_all_driven_in_an_order_that_depends_on_the_seed(widths):
    first, second = (starter_stimuli.vectors(random.Random(seed), widths) for seed in (0, 1))
    assert len(set(first)) == len(first) == 1 << sum(widths)
    assert first != second
    assert set(first) == set(second)


def test_a_run_of_cycles_is_long_and_resets_rarely_and_only_in_its_first_half():
    run = list(starter_stimuli.cycles(random.Random(0), [1, 1, 8]))
    assert len(run) >= 1000
    assert 5 <= sum(reset for _, reset, _ in run) <= 60
    assert not any(reset for _, reset, _ in run[len(run) // 2 :])
    filling = [push and not pop for (push, pop, _), _, _ in run]
    emptying = [pop and not push for (push, pop, _), _, _ in run]
    assert any(all(filling[at : at + 8]) for at in range(len(run)))
    assert any(all(emptying[at : at + 8]) for at in range(len(run)))
