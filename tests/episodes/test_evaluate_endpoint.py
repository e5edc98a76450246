"""`evaluate --agentic --endpoint` as a user runs it, against a server that speaks OpenAI's protocol and answers by a script."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rtl_core.episodes.endpoint import Endpoint
from rtl_core.errors import MalformedAnswerError
from rtl_core.history.store import History
from tests.episodes.endpoint import EXAMPLE, Scripted, scripted_calls
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def calls(cvdp):
    return scripted_calls(cvdp)


def command(*arguments):
    return [sys.executable, "-m", "rtl_distill.cli", *map(str, arguments)]


def evaluate(url, cvdp, db, samples=2):
    return command(
        "evaluate", "--model", "scripted", "--endpoint", url, "--agentic", "--problems", cvdp / EXAMPLE, "--samples", samples,
        "--db", db, "--name", "agents",
    )  # fmt: skip


@pytest.mark.parametrize("message", [None, {"content": 7}, {"content": [{"type": "text"}]}, {"reasoning": [1]}])
def test_a_completion_without_text_is_an_answer_that_may_be_asked_for_again(message):
    with Scripted(()) as server:
        server.status.append((200, {"choices": [{"message": message}]}))
        with pytest.raises(MalformedAnswerError, match="chat completion"):
            Endpoint(server.url, "m").reply([{"role": "user", "content": "hello"}])


@pytest.mark.slow
def test_an_agent_is_evaluated_beside_single_shot_and_its_transcript_is_shown(cvdp, calls, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    db = tmp_path / "h.duckdb"
    with Scripted(calls) as server:
        done = subprocess.run(evaluate(server.url, cvdp, db), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in done.stdout.splitlines()]
    assert any(
        row[:2] == ["single-shot", "1"] and row[2].startswith("0.0") and row[3:] == ["10", "1.0"] for row in rows
    ), done.stdout
    assert any(
        row[:2] == ["episodes of up to 30 turns", "1"] and row[2].startswith("100") and row[3:] == ["70", "7.0"]
        for row in rows
    )
    assert any(row[:1] == ["single-shot, any of 2"] for row in rows)

    history = History(db, read_only=True)
    keys = history.query("SELECT rollout FROM verdicts WHERE outcome = 'passed' ORDER BY 1").column(0).to_pylist()
    assert len(keys) == 2
    shown = subprocess.run(
        command("show", keys[0], "--db", db), capture_output=True, text=True, timeout=120, check=True
    ).stdout
    for said in ("turn 3: 10 tokens", "compile", "syntax error", "write rtl/fixed_priority_arbiter.sv, content (79 lines)",
                 "the tools are list, read", "7 turns, 70 tokens written, 7 calls (2 failed)"):  # fmt: skip
        assert said in shown, said

    with Scripted(calls) as server:  # whole: nothing is asked again
        again = subprocess.run(
            [*evaluate(server.url, cvdp, db)[:-2], "--name", "agents", "--set", f'evaluation.endpoint="{server.url}"'],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert "choose another --name" in again.stderr  # another endpoint is another evaluation
        assert not server.asked


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_and_no_turn_is_recorded_twice(cvdp, calls, tmp_path):
    db = tmp_path / "h.duckdb"
    with Scripted(calls, delay_s=1.0) as server:
        first = subprocess.Popen(evaluate(server.url, cvdp, db), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for(lambda: sum(bool(asked.get("tools")) for asked in server.asked) >= 8, "eight turns")
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        recorded = (
            History(db, read_only=True).query("SELECT rollout, count(*) AS n FROM messages GROUP BY 1").to_pylist()
        )
        asked_before = len(server.asked)
        done = subprocess.run(evaluate(server.url, cvdp, db), capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        asked = len(server.asked) - asked_before
    history = History(db, read_only=True)
    turns = history.query(
        "SELECT rollout, CAST(sum(CAST(who = 'model' AS INTEGER)) AS INTEGER) AS turns, count(*) AS n FROM messages GROUP BY 1"
    ).to_pylist()
    assert Counter((row["turns"], row["n"]) for row in turns) == {(1, 1): 2, (7, 14): 2}
    assert recorded
    assert asked <= 2 * 8 - sum((row["n"] + 1) // 2 for row in recorded)  # what was recorded is not asked again
    assert history.query("SELECT count(*) AS n FROM verdicts WHERE outcome = 'passed'").to_pylist() == [{"n": 2}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate", "run", "--agentic"], "--agentic cannot stand with a RUN"),
        (["evaluate", "run", "--endpoint", "http://x"], "--endpoint cannot stand with a RUN"),
        (["episode", "p"], "who plays the episode?"),
        (["episode", "p", "--endpoint", "http://x"], "--endpoint: which model?"),
    ],
)
def test_mistakes_on_the_command_line_are_told(arguments, said):
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.slow
def test_a_person_plays_an_episode_from_a_pipe(cvdp, calls):
    path = json.loads(calls[3][1])
    text = f"write {path['path']} <<\n{path['content']}.\ncompile\nsubmit\n"
    (record,) = [json.loads((cvdp / EXAMPLE).read_text())]
    arguments = command("episode", record["id"], "--source", f"cvdp={Path(cvdp / EXAMPLE)}", "--by-hand")
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "iverilog: done" in done.stdout
    assert "ended: submitted" in done.stdout
    assert "passed" in done.stdout
    gave_up = subprocess.run(arguments, input="", capture_output=True, text=True, timeout=300, check=False)
    assert gave_up.returncode == 1
    assert "no answer" in gave_up.stdout
