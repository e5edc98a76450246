"""Whose seed decides which training problems a generated source makes."""

import pytest

from rtl_core.problems.load import load_problems
from rtl_core.problems.sources.starter import StarterSource


@pytest.mark.parametrize(("own", "shared"), [(None, False), (7, True)])
def test_runs_of_two_seeds_share_the_training_problems_of_a_source_with_a_seed_of_its_own(own, shared):
    source = StarterSource(kind="starter", train=20, heldout=4, seed=own)
    first, second = (load_problems([source], seed) for seed in (0, 1))
    assert ([p.id for p in first.train] == [p.id for p in second.train]) is shared
    assert [p.id for p in first.heldout] == [p.id for p in second.heldout]
