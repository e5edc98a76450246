"""`evaluate --agentic --endpoint` as a user runs it, with a scripted server that has OpenAI's protocol."""

import json
import os
import signal
import subprocess
from collections import Counter

import pytest

from rtl_core.errors import ConfigError, UserError
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Source, Table
from rtl_core.reporting.figures.episodes import blocks
from tests.command import command, invoke, run
from tests.episodes.endpoint import EXAMPLE, scripted
from tests.waiting import wait_for


def evaluate(url, cvdp, db):
    place = ("--problems", cvdp / EXAMPLE, "--samples", 2, "--db", db, "--name", "agents")
    return "evaluate", "--model", "scripted", "--endpoint", url, "--agentic", *place


@pytest.mark.slow
def test_an_agent_is_compared_with_single_shot_and_its_transcript_is_shown(
    cvdp, calls, tmp_path
):
    db = tmp_path / "h.duckdb"
    with scripted(calls) as server:
        done = run(*evaluate(server.url, cvdp, db), timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [
        [cell.strip() for cell in line.split("  ") if cell.strip()]
        for line in done.stdout.splitlines()
    ]
    assert any(
        row[:2] == ["single-shot", "1"]
        and row[2].startswith("0.0")
        and row[3:] == ["10", "1.0"]
        for row in rows
    ), done.stdout
    assert any(
        row[:2] == ["episodes of up to 30 turns", "1"]
        and row[2].startswith("100")
        and row[3:] == ["70", "7.0"]
        for row in rows
    )
    assert any(row[:1] == ["single-shot, any of 2"] for row in rows)

    history = History(db, read_only=True)
    keys = (
        history.query("SELECT rollout FROM verdicts WHERE outcome = 'passed' ORDER BY 1")
        .column(0)
        .to_pylist()
    )
    assert len(keys) == 2
    for key in keys:
        messages = history.messages(key)
        assert [(m.who, m.position) for m in messages] == list(
            zip(("model", "tool") * 7, range(14), strict=True)
        )
        assert [m.ok for m in messages if m.who == "tool"] == [
            True,
            True,
            False,
            True,
            False,
            True,
            True,
        ]
        assert (messages[2].thought, messages[2].n_tokens) == ("thought 1", 10)
    assert history.query(
        "SELECT turns, calls, failed_calls, tokens, ended, passed FROM episodes"
    ).to_pylist() == 2 * [
        {
            "turns": 7,
            "calls": 7,
            "failed_calls": 2,
            "tokens": 70,
            "ended": "submitted",
            "passed": True,
        }
    ]
    (table,) = (
        one for one in blocks.blocks(Source(history, "agents")) if isinstance(one, Table)
    )
    printed = [row[1:] for row in rows]
    assert [list(map(str, row[2:])) in printed for row in table.rows] == [
        True
    ] * 3  # one table, shown twice
    shown = run("show", keys[0], "--db", db, timeout=120).stdout
    for said in ("turn 3: 10 tokens", "compile", "syntax error", "write rtl/fixed_priority_arbiter.sv, content (79 lines)",
                 "the tools are list, read", "7 turns, 70 tokens written, 7 calls (2 failed)"):  # fmt: skip
        assert said in shown, said

    with scripted(calls) as server:  # complete, so nothing is requested again
        again = run(
            *evaluate(server.url, cvdp, db),
            sets=[f'evaluation.endpoint="{server.url}"'],
            timeout=600,
        )
        assert "choose another --name" in again.stderr  # another endpoint is another evaluation
        assert not server.asked


@pytest.mark.slow
def test_an_answer_that_the_endpoint_refuses_is_counted_as_such(cvdp, calls, tmp_path):
    db, filtered = tmp_path / "h.duckdb", (400, b"content_filter")
    with scripted(calls) as server:
        # Single attempt, question with the same settings; the same in the first turn of the episode.
        server.status = [filtered, (200, server.answer({"messages": []}))] * 2
        done = run(*evaluate(server.url, cvdp, db), "--samples", 1, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (
        "1 of 1 answers count as failed: refused (400): content_filter"
        in done.stdout + done.stderr
    )
    assert "1 of 1 answers refused by the endpoint" in done.stdout
    history = History(db, read_only=True)
    rows = history.query(
        "SELECT rollout, stop_reason, ended FROM rollouts ORDER BY 3"
    ).to_pylist()
    assert [(row["stop_reason"], row["ended"]) for row in rows] == [
        ("refused", "refused"),
        ("refused", None),
    ]
    for row in rows:
        said = [(m.who, m.text) for m in history.messages(row["rollout"])]
        assert said == [("model", ""), ("user", "refused (400): content_filter")]


@pytest.mark.slow
def test_a_local_model_is_evaluated_in_episodes(cvdp, knows_tools, tmp_path):
    db = tmp_path / "h.duckdb"
    model = (
        "--model",
        "student",
        "--base-url",
        "local",
        "--agentic",
        "--samples",
        2,
        "--db",
        db,
    )
    sets = ["evaluation.max_tokens=24", f'tinker.local_models={{"student" = "{knows_tools}"}}']
    done = run(
        "evaluate", *model, "--problems", cvdp / EXAMPLE, sets=sets, cwd=tmp_path, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    history = History(db, read_only=True)
    keys = (
        history.query("SELECT rollout FROM rollouts WHERE evaluation LIKE '%turns%'")
        .column(0)
        .to_pylist()
    )
    assert len(keys) == 2
    for key in keys:
        said = history.messages(key)[0]
        assert said.n_tokens == len(said.tokens_T) == len(said.logprobs_T) > 0


@pytest.mark.slow
def test_a_killed_evaluation_resumes_and_records_no_turn_twice(cvdp, calls, tmp_path):
    db = tmp_path / "h.duckdb"
    with scripted(calls, delay_s=1.0) as server:
        first = subprocess.Popen(
            command(*evaluate(server.url, cvdp, db)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        wait_for(
            lambda: sum(bool(asked.get("tools")) for asked in server.asked) >= 8, "eight turns"
        )
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        recorded = (
            History(db, read_only=True)
            .query("SELECT rollout, count(*) AS n FROM messages GROUP BY 1")
            .to_pylist()
        )
        asked_before = len(server.asked)
        done = run(*evaluate(server.url, cvdp, db), timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        asked = len(server.asked) - asked_before
    history = History(db, read_only=True)
    turns = history.query(
        "SELECT rollout, CAST(sum(CAST(who = 'model' AS INTEGER)) AS INTEGER) AS turns, count(*) AS n FROM messages GROUP BY 1"
    ).to_pylist()
    assert Counter((row["turns"], row["n"]) for row in turns) == {(1, 1): 2, (7, 14): 2}
    assert recorded
    assert asked <= 2 * 8 - sum(
        (row["n"] + 1) // 2 for row in recorded
    )  # recorded turns are not requested again
    assert history.query(
        "SELECT count(*) AS n FROM verdicts WHERE outcome = 'passed'"
    ).to_pylist() == [{"n": 2}]


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_a_slow_endpoint(cvdp, calls, tmp_path):
    with scripted(calls, delay_s=200) as server:
        waiting = subprocess.Popen(
            command(*evaluate(server.url, cvdp, tmp_path / "h.duckdb")),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        wait_for(lambda: server.asked, "a request")
        waiting.send_signal(signal.SIGTERM)
        waiting.communicate(timeout=100)
    assert waiting.returncode != 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate", "run", "--agentic"], "--agentic cannot be combined with a RUN"),
        (
            ["evaluate", "run", "--endpoint", "http://x"],
            "--endpoint cannot be combined with a RUN",
        ),
        (["problems", "play", "p"], "who plays the episode?"),
        (["problems", "play", "p", "--endpoint", "http://x"], "--endpoint: which model?"),
    ],
)
def test_wrong_arguments_are_reported(arguments, said):
    done = invoke(*arguments)
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception)


def test_an_unreachable_endpoint_is_reported_before_anything_starts(cvdp, tmp_path):
    url, problem = "http://127.0.0.1:9/v1", json.loads((cvdp / EXAMPLE).read_text())["id"]
    episode = (
        "problems",
        "play",
        problem,
        "--source",
        f"cvdp={cvdp / EXAMPLE}",
        "--endpoint",
        url,
        "--model",
        "m",
    )
    option = evaluate(url, cvdp, tmp_path / "h.duckdb")
    at = option.index("--endpoint")
    by_set = (*option[:at], "--set", f"evaluation.endpoint={url}", *option[at + 2 :])
    for words in (option, by_set, episode):
        done = invoke(*words)
        assert isinstance(done.exception, UserError)
        assert str(done.exception).startswith(f"{url} does not answer: ")
        assert done.output == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_person_plays_an_episode_from_a_pipe(cvdp, calls):
    path = json.loads(calls[3][1])
    text = f"write {path['path']} <<\n{path['content']}.\ncompile\nsubmit\n"
    (record,) = [json.loads((cvdp / EXAMPLE).read_text())]
    words = (
        "problems",
        "play",
        record["id"],
        "--source",
        f"cvdp={cvdp / EXAMPLE}",
        "--by-hand",
    )
    done = run(*words, input=text, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "iverilog: done" in done.stdout
    assert "ended: submitted" in done.stdout
    assert "passed" in done.stdout
    gave_up = run(*words, input="", timeout=300)
    assert gave_up.returncode == 1
    assert "no answer" in gave_up.stdout
