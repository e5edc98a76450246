"""`problems.exclude`: evaluation sets whose near-duplicates a run leaves out."""

import json

import pytest

from rtl_core.config import load_config, to_toml
from rtl_core.errors import ConfigError
from rtl_core.run.check.machine import data, problems_of

GOLDEN = "module inv (input a, output y);\n  assign y = ~a;\nendmodule\n"
TASK = "Write the module inv whose output y is always the inverse of its only input a, without any clock or state."


@pytest.fixture
def sets(tmp_path):
    for name in ("train", "evaluation"):
        rows = [{"instruction": TASK, "output": GOLDEN}]
        rows += [{"instruction": f"Other {name}.", "output": GOLDEN.replace("inv", name)}]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def overrides(sets, evaluation="evaluation.jsonl"):
    def table(name, file):
        return f'{{kind = "pairs", name = "{name}", path = "{sets / file}", heldout_fraction = 0.0}}'

    return [
        f"problems.sources=[{{kind = 'starter', train = 2}}, {table('mine', 'train.jsonl')}]",
        f"problems.exclude=[{table('their', evaluation)}]",
    ]


def test_near_duplicates_of_excluded_sets_are_left_out_and_the_check_counts_them(sets):
    config = load_config("demo", overrides(sets), environment={})
    (sets / "shown.toml").write_text(to_toml(config))
    assert load_config(sets / "shown.toml", environment={}) == config
    loaded = problems_of(config)
    assert [p.id for p in loaded.train if p.source == "mine"] == ["pairs_train_2"]
    texts = [finding.text for finding in data(loaded, {})]
    assert "left out: pairs_train_1: is a near-duplicate of a problem of their" in texts


def test_an_excluded_set_that_is_missing_is_named_with_its_key(sets):
    with pytest.raises(ConfigError, match=r"`problems.exclude.0.path`: there is no .*none"):
        load_config("demo", overrides(sets, "none.jsonl"), environment={})
