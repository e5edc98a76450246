"""Copies and exports hold what the history holds, while a run may be writing it."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rtl_core.errors import HistoryError
from rtl_core.history.export import export_parquet, export_rollouts, metrics, take_snapshot
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from tests import synthetic
from tests.history.writer_child import writing


def counts(history: History) -> dict[str, int]:
    tables = history.query(
        "SELECT table_name AS t FROM duckdb_tables() WHERE database_name = current_database()"
    ).to_pylist()
    return {row["t"]: history.query(f"SELECT count(*) AS n FROM {row['t']}").to_pylist()[0]["n"] for row in tables}


def test_a_snapshot_is_the_history(demo, tmp_path):
    copy = History(take_snapshot(demo.path, tmp_path / "deep" / "copy.duckdb"), read_only=True)
    assert counts(copy) == counts(demo)
    assert copy.rollouts_of("demo", 3) == demo.rollouts_of("demo", 3)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["copy.duckdb"]


def test_a_snapshot_never_replaces_a_file_unasked(demo, tmp_path):
    target = tmp_path / "copy.duckdb"
    target.write_text("precious")
    with pytest.raises(HistoryError, match="exists"):
        take_snapshot(demo.path, target)
    assert target.read_text() == "precious"
    take_snapshot(demo.path, target, overwrite=True)
    assert History(target, read_only=True).run("demo") is not None
    with pytest.raises(HistoryError, match="itself"):
        take_snapshot(demo.path, demo.path, overwrite=True)


def test_a_snapshot_holds_what_a_killed_writer_left_in_its_log(tmp_path):
    """A writer that dies between commit and checkpoint leaves a write-ahead log; the copy has it inside."""
    path = tmp_path / "h.duckdb"
    History(path).start_run(RunRecord(name="before"))
    code = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]);"
        'c.execute("INSERT INTO runs (run, status, created_at, config, config_hash, seed, student, teacher, problems_hash, versions)'
        " VALUES ('late', 'running', '2026-01-01', '{}', '', 0, '', '', '', '{}')\").fetchall(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert Path(f"{path}.wal").exists()
    copy = take_snapshot(path, tmp_path / "copy.duckdb")
    assert not Path(f"{copy}.wal").exists()
    assert {r.name for r in History(copy, read_only=True).runs()} == {"before", "late"}
    assert {r.name for r in History(path, read_only=True).runs()} == {"before", "late"}


def test_snapshots_of_a_history_under_constant_writing_are_whole(tmp_path):
    path = tmp_path / "h.duckdb"
    with writing(path) as writer:
        writer.stdout.readline()
        sizes = []
        for i in range(4):
            copy = History(take_snapshot(path, tmp_path / f"{i}.duckdb"), read_only=True)
            found = counts(copy)
            assert found["rollouts"] == found["tokens"] == found["verdicts"] == found["teacher_tokens"]
            assert found["verdict_stages"] == 4 * found["rollouts"]
            sizes.append(found["rollouts"])
        assert sizes == sorted(sizes)
        assert sizes[-1] > sizes[0]
        assert writer.poll() is None


def test_parquet_files_hold_the_run_and_nothing_else(tmp_path):
    history = synthetic.write_run(tmp_path / "h.duckdb", "a", synthetic.Shape(steps=1, train=6, heldout=3))
    synthetic.write_run(tmp_path / "h.duckdb", "b'; --", synthetic.Shape(steps=2, train=6, heldout=3), seed=2)
    written = {p.stem: pq.read_table(p).num_rows for p in export_parquet(history, "b'; --", tmp_path / "b")}
    everything = {p.stem: pq.read_table(p).num_rows for p in export_parquet(history, None, tmp_path / "all")}
    assert everything == counts(history)
    assert written["rollouts"] == written["tokens"] == written["teacher_tokens"] + 36 == 2 * 24 + 36
    assert written["runs"] == 1
    assert written["problems"] == 9
    assert all(everything[t] > 0 for t in ("tokens", "prompts", "reward_terms"))


def test_rollouts_come_out_as_json_lines(demo, tmp_path):
    assert export_rollouts(demo, "demo", tmp_path / "r.jsonl", tokens=True) == 480
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len({line["rollout"] for line in lines}) == 480
    for line in lines[::60]:
        stored = demo.rollout(line["rollout"])
        assert line["text"] == stored.rollout.text
        assert line["tokens"] == list(stored.rollout.tokens_T)
        assert line["logprobs"] == list(stored.rollout.logprobs_T)
        assert line["verdict"]["outcome"] == stored.verdict.outcome
        assert line["reward"] == stored.reward.total
        credit = stored.credit
        assert (line["trained_reward"], line["advantage"]) == (
            (credit.reward, credit.advantage) if credit else (None, None)
        )
        assert line["prompt"].startswith("Write module")
    export_rollouts(demo, "demo", tmp_path / "plain.jsonl")
    assert "tokens" not in json.loads((tmp_path / "plain.jsonl").read_text(encoding="utf-8").splitlines()[0])


def test_episodes_come_out_with_all_their_turns(demo, tmp_path):
    (key, *_) = demo.query("SELECT rollout FROM episodes WHERE run = 'demo'").column(0).to_pylist()
    export_rollouts(demo, "demo", tmp_path / "r.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text(encoding="utf-8").splitlines()]
    (line,) = (line for line in lines if line["rollout"] == key)
    first, second, told, third, last = line["messages"]
    assert first == {"role": "user", "content": line["prompt"]}
    assert (second["role"], second["content"], second["reasoning_content"]) == (
        "assistant",
        synthetic.HOSTILE,
        synthetic.HOSTILE,
    )
    (call,) = second["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"top": synthetic.HOSTILE}
    assert (told["role"], told["tool_call_id"], told["name"], told["ok"]) == ("tool", call["id"], "compile", False)
    assert third == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{**call, "id": "submit", "function": {**call["function"], "name": "submit"}}],
    }
    assert last["content"] == "submitted"
    assert line["n_tokens"] == 17
    assert sum("messages" in line for line in lines) == len(demo.query("FROM episodes"))


def test_later_turns_come_out_after_the_first(tmp_path):
    history = synthetic.write_run(tmp_path / "h.duckdb", shape=synthetic.Shape(steps=1, train=6, heldout=3))
    first = history.rollouts_of("demo", 0)[0].rollout
    second = first.model_copy(update={"purpose": "refinement", "turn": 2, "parent": first.key})
    history.record_rollouts([second])
    export_rollouts(history, "demo", tmp_path / "r.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text(encoding="utf-8").splitlines()]
    (later,) = (line for line in lines if line["turn"] == 2)
    assert (later["rollout"], later["parent"]) == (second.key, first.key)


def test_metrics_have_the_names_that_the_community_reads(demo):
    lines = list(metrics(demo, "demo"))
    names = {
        "env/all/reward/total", "env/all/format_valid", "env/all/syntax_valid", "env/all/tests_passed", "teacher_kl", "optim/entropy",
        "optim/kl_sample_train_v1", "env/all/ac_tokens_per_turn", "time/sample", "time/train", "time/total",
    }  # fmt: skip
    assert [line["step"] for line in lines] == list(range(13))
    assert all(names <= set(line) for line in lines[:12])
    mine = demo.rollouts_of("demo", 5)
    assert lines[5]["env/all/reward/total"] == pytest.approx(sum(s.reward.total for s in mine) / len(mine))
    assert lines[5]["env/all/tests_passed"] == pytest.approx(sum(s.verdict.passed for s in mine) / len(mine))
    assert lines[0]["test/env/all/pass@1"] == demo.evaluation("demo-student-0").pass_at_1
    assert lines[12]["test/env/all/pass@4"] == demo.evaluation("demo-student-12").pass_at_k[4]
