"""`evaluate --agentic` with a seed gives the same calls again; its card holds them, and `reproduce` plays them again."""

import json

import pytest

from tests.command import run

MODEL = (
    "evaluate", "--model", "agent", "--base-url", "local", "--problems", "starter", "--agentic", "--samples", 2,
    "--template", "bare", "--max-tokens", 200,
)  # fmt: skip
SETS = (
    "problems.sources.0.train=1", "problems.sources.0.heldout=3", "problems.sources.0.document=true",
    "sampling.seeded=true", "run.seed=3", "tinker.local_deterministic=true", "episode.turns=4",
    "episode.tokens=500", "episode.explain=false",
)  # fmt: skip


@pytest.mark.slow
def test_two_evaluations_with_a_seed_have_the_same_calls_which_are_played_again(tmp_path):
    episodes = []
    for name in ("one", "two"):
        place = ("--db", tmp_path / f"{name}.duckdb", "--card", tmp_path / f"{name}.json")
        done = run(*MODEL, *place, "--name", name, sets=SETS, cwd=tmp_path, timeout=900)
        assert done.returncode == 0, done.stderr[-3000:]
        lines = (tmp_path / f"{name}.verdicts.jsonl").read_text().splitlines()
        episodes.append([json.loads(line)["episode"]["messages"] for line in lines])
        single = json.loads((tmp_path / f"{name}-single-attempt.json").read_text())
        assert single["kinds"]["1"] == "single attempt"
    first, second = episodes
    assert first == second
    assert any(message["call"] for messages in first for message in messages)
    card = json.loads((tmp_path / "one.json").read_text())
    assert card["kinds"] == {"1": "tools without harness"}
    place = ("--run", "one", "--db", tmp_path / "one.duckdb")
    done = run("reproduce", tmp_path / "one.json", *place, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "follow from" in done.stdout
