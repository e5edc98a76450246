"""`problems doubt` as a user runs it: golden answers against what a model's answers agree on."""

import json
from collections import Counter

import pytest

from tests.command import run
from tests.synthesis.models import DESIGNS, served, write_pairs

WRONG, RIGHT, OPEN, _ = DESIGNS


@pytest.mark.slow
def test_a_golden_answer_unlike_the_answers_on_which_a_model_agrees_is_doubtful(tmp_path):
    source, output, asked = tmp_path / "in.jsonl", tmp_path / "doubts.jsonl", Counter()
    goldens = {name: DESIGNS[name] for name in (WRONG, RIGHT, OPEN)}
    write_pairs(source, {**goldens, WRONG: DESIGNS[WRONG].replace("? START", "? ~START")})

    def answer(_model, words):
        name = next(name for name in goldens if f"about {name}" in words)
        asked[name] += 1
        own = f"wire own_{asked[name]} = 1'b0;\nendmodule"  # independent texts
        text = DESIGNS[name].replace("endmodule", own)
        if name == OPEN:
            text = text.replace("rst ?", f"rst ? {asked[name]} +")
        return f"```verilog\n{text}\n```"

    with served(answer) as url:
        done = run(
            *("problems", "doubt", "--source", f"pairs={source}", "--endpoint", url, "--yes"),
            *("--model", "strong", "--answers", 3, "--db", tmp_path / "h.duckdb"),
            *("--output", output),
            timeout=600,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row["id"]: row for row in map(json.loads, output.read_text().splitlines())}
    verdicts = {name: row["verdict"] for name, row in rows.items()}
    assert verdicts == {WRONG: "doubtful", RIGHT: "agrees", OPEN: "without result"}
    assert rows[WRONG]["share"] == 1.0
    assert rows[WRONG]["trace"], "the shortest inputs that tell them apart"
    printed = [line.split() for line in done.stdout.splitlines()]
    assert any(words[:2] == [WRONG, "100%"] for words in printed)
    assert not any(words[:1] == [RIGHT] for words in printed)
