"""A card of the embedded student under each kind of protocol: checked, graded again, and refused by name once it is altered."""

import asyncio
import json
from pathlib import Path

import pytest

from rtl_core.cards.checking import check_card
from rtl_core.cards.making import write_cards
from rtl_core.config.protocol import evaluation_overrides, problems_override, protocol_file
from rtl_core.history.store import History
from tests.command import invoke

pytestmark = [pytest.mark.usefixtures("prefect"), pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TINY = str(ROOT / "packages/rtl-grader/tests/problems_sources/tiny")
ONES = (
    "module low(input a, output y);\n  // >>> Module Implementation Begin\n\n"
    "  // <<< Module Implementation End\nendmodule\n\n"
)
GOLDEN = "module low(a, y);\n  input a;\n  output y;\n  assign y = ~a;\nendmodule\n"
COUNTER = """\
module count(input clk, input rst, output reg [3:0] q);
  always @(posedge clk)
    if (rst) q <= 0;
    else q <= q + 1;
endmodule
"""
NAMES = (
    "verilog-eval-greedy",
    "verilog-eval-1shot-greedy",
    "rtllm-greedy",
    "cvdp-cid003",
    "rtl-benchls-masked",
    "notsotiny",
)
"""The others differ from one of these in their number of answers or their categories."""


@pytest.fixture
def place(tmp_path):
    """Function that returns the source of a protocol's problems; the second of NotSoTiny exceeds the model's context."""
    rows = [
        {"task_id": name, "top_module_name": "top", "system_message": "You are an expert.", "golden_module": golden,
         "prompt": f"{ONES}module top(input p, output q);\n  low i (p, q);\nendmodule\n{more}"}
        for name, golden, more in (("t_1", GOLDEN, ""), ("t_2", GOLDEN.replace("~a", "a"), "// many words\n" * 400))
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rtl").mkdir()
    (tmp_path / "rtl/count.v").write_text(COUNTER)
    kinds = {
        "verilog": f"verilog-eval={TINY}",
        "rtllm": f"rtllm={TINY}",
        "cvdp": f"cvdp={ROOT / 'examples/grade/problems.jsonl'}",
        "rtl": f"rtl={tmp_path / 'rtl'}",
        "notsotiny": f"pairs={tmp_path / 'rows.jsonl'}",
    }
    return lambda protocol: kinds[protocol.split("-")[0]]


@pytest.mark.parametrize("protocol", NAMES)
def test_the_embedded_student_has_a_card_that_follows_from_its_verdicts(
    protocol, place, tmp_path
):
    from rtl_distill.flows.evaluate import evaluate_model

    file, source = protocol_file(protocol), place(protocol)
    given = [
        problems_override([source], file),
        "tinker.student=student",
        "tinker.base_url=local",
        "evaluation.max_tokens=60",
        f"run.directory={tmp_path}",
        f"run.history={tmp_path / 'h.duckdb'}",
    ]
    asyncio.run(evaluate_model(file, evaluation_overrides(file, given, 1, "one")))
    history = History(tmp_path / "h.duckdb")
    written = write_cards(history, "one", tmp_path / "card.json", Path(file))
    card = json.loads(written[0].read_text())
    departs = {text.split(":")[0] for text in card["protocol"]["departs"]}
    assert f"{protocol}, evaluation, max_tokens" in departs
    assert check_card(written[0])[1] == []
    whole = card["figures"]["all: all problems"]
    assert whole["n"] == len(card["problems"]) == (2 if protocol == "notsotiny" else 1)
    done = invoke("grade", "reproduce", written[0], "--source", source)
    assert done.exit_code == 0, done.stdout
    assert f"{whole['n']} of {whole['n']} verdicts are equal" in done.stdout
    whole["pass_at"]["1"]["mean"] = 0.99
    written[0].write_text(json.dumps(card))
    done = invoke("grade", "reproduce", written[0])
    assert done.exit_code == 1
    assert "card, figures: altered since it was sealed" in done.stdout
    assert "card, figures, all: all problems, pass_at, 1, mean: 0.99, " in done.stdout
