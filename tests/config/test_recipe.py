"""The configuration `verilog-9b`: complete without its data sets, every key with a reason, benchmarks kept out of training."""

import json
import re

import pytest

from rtl_core.config import load_config
from rtl_core.errors import ConfigError
from rtl_core.run.check.machine import problems_of
from scripts import recipe
from tests.command import invoke

OTHER = "module other(input [7:0] a, output [7:0] y);\n  assign y = {a[0], a[7:1]} + 8'd3;\nendmodule\n"


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A working directory without data sets, which a checkout may have."""
    monkeypatch.chdir(tmp_path)


def test_the_page_shows_every_key_with_its_reason(monkeypatch):
    rows = list(recipe.reasons(recipe.shipped_configs()["verilog-9b"].read_text()))
    assert len(rows) > 40
    assert [key for key, _, reason in rows if len(reason) < 8] == []
    monkeypatch.setattr("sys.argv", ["recipe", "--check"])
    assert recipe.main() == 0


def test_missing_sets_are_named_with_the_command_that_fetches_each(nowhere):
    with pytest.raises(ConfigError) as error:
        load_config("verilog-9b", environment={})
    said = str(error.value)
    for key in ("sources.0", "sources.1", "exclude.0", "exclude.1", "exclude.2"):
        assert f"`problems.{key}.path`: there is no data/" in said
    for command in (
        "problems fetch codev-r1", "git clone https://github.com/SebastianWANG2024/RTL-BenchLS data/RTL-BenchLS`",
        "git clone https://github.com/NVlabs/verilog-eval data/verilog-eval`",
        "git clone https://github.com/hkust-zhiyao/RTLLM data/RTLLM`", "problems fetch cvdp",
    ):  # fmt: skip
        assert command in said


def test_the_estimate_needs_neither_the_sets_nor_a_key(nowhere, monkeypatch):
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    done = invoke("check", "verilog-9b", "--estimate")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert re.search(r"likely \$1,9\d\d\.\d\d: 46,496 answers", said), said
    assert "3100 problems, the size of the public set" in said
    assert "3140 problems, the size of the public set" in said
    assert "the budget" in said or "budget $2,200.00" in said


def test_a_missing_set_is_as_large_as_its_tasks_make_it(nowhere):
    said = " ".join(invoke("check", "smollm2-rtl", "--estimate").output.split())
    assert "785 problems, the size of the public set" in said  # one of four tasks of a module


@pytest.mark.slow
def test_near_duplicates_of_the_benchmarks_are_not_trained_on(data, tmp_path):
    (prompt,) = (data / "verilog-eval").rglob("Prob001_*_prompt.txt")
    reference = prompt.with_name(prompt.name.replace("prompt.txt", "ref.sv")).read_text()
    rows = [
        {"instruction": prompt.read_text(), "output": reference.replace("RefModule", "TopModule")},
        {"instruction": "Write the module other: y is a rotated right by one, plus 3.", "output": OTHER},
    ]  # fmt: skip
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    slice_ = tmp_path / "slice_01.jsonl"
    with (data / "rtl-benchls/slice_01.jsonl").open() as file:
        slice_.write_text("".join(line for line, _ in zip(file, range(30), strict=False)))
    places = {
        "sources.0": pairs, "sources.1": slice_, "exclude.0": data / "verilog-eval",
        "exclude.1": data / "RTLLM", "exclude.2": data / "cvdp-single",
    }  # fmt: skip
    sets = [f"problems.{key}.path={path}" for key, path in places.items()]
    loaded = problems_of(load_config("verilog-9b", sets, environment={}))
    assert {p.source for p in loaded.every} == {"codev-r1", "rtl"}
    pairs_left = [p.id for p in loaded.every if p.source == "codev-r1"]
    assert pairs_left == ["pairs_pairs_2"]
    assert "pairs_pairs_1: is a near-duplicate of a problem of verilog-eval" in " ".join(
        loaded.left_out_in_words
    )
