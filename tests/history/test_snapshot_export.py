"""Snapshots and exports contain the data of the history, even while a run writes it."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from rtl_core.episodes.exporting import rollout_lines
from rtl_core.errors import HistoryError
from rtl_core.history import connection
from rtl_core.history.columns import table_names
from rtl_core.history.export import (
    export_parquet,
    metrics,
    take_snapshot,
    write_lines,
)
from rtl_core.history.records import EvaluationRecord, RunRecord
from rtl_core.history.store import History
from tests import synthetic
from tests.history.writer_child import writing
from tests.nouns import a_rollout


def counts(history: History) -> dict[str, int]:
    return {name: history.query(f"SELECT 1 FROM {name}").num_rows for name in table_names()}


def test_a_snapshot_equals_the_history(demo, tmp_path):
    copy = History(take_snapshot(demo.path, tmp_path / "deep" / "copy.duckdb"), read_only=True)
    assert counts(copy) == counts(demo)
    assert copy.rollouts_of("demo", 3) == demo.rollouts_of("demo", 3)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["copy.duckdb"]


def test_a_snapshot_has_no_room_of_deleted_rows(tmp_path):
    history, random = History(tmp_path / "h.duckdb"), Random(0)
    text = "".join(random.choices("abcdefgh", k=4000))
    for number in range(8):
        rollouts = [
            a_rollout(step=number, sample=n, text=f"{number} {n} {random.random()} {text[n:]}")
            for n in range(50)
        ]
        history.record_rollouts(rollouts)
    with connection.connect(history.path, read_only=False) as con:
        con.execute("DELETE FROM rollouts WHERE step < 7")
        con.execute("DELETE FROM tokens WHERE rollout NOT IN (SELECT rollout FROM rollouts)")
    copy = take_snapshot(history.path, tmp_path / "copy.duckdb")
    assert copy.stat().st_size < 0.8 * history.path.stat().st_size
    assert counts(History(copy, read_only=True)) == counts(history)
    assert History(copy, read_only=True).rollouts_of("r", 7) == history.rollouts_of("r", 7)
    views = "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal ORDER BY ALL"
    assert History(copy, read_only=True).query(views) == history.query(views)
    assert History(copy, read_only=True).query("FROM named_mistakes").num_rows == 0


def test_a_snapshot_replaces_a_file_only_if_asked(demo, tmp_path):
    target = tmp_path / "copy.duckdb"
    target.write_text("precious")
    with pytest.raises(HistoryError, match="exists"):
        take_snapshot(demo.path, target)
    assert target.read_text() == "precious"
    take_snapshot(demo.path, target, overwrite=True)
    assert History(target, read_only=True).run("demo") is not None
    with pytest.raises(HistoryError, match="itself"):
        take_snapshot(demo.path, demo.path, overwrite=True)


def test_a_snapshot_contains_the_log_of_a_killed_writer(tmp_path):
    """A writer that dies between commit and checkpoint leaves a write-ahead log, which the copy includes."""
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


@pytest.mark.slow
def test_snapshots_during_constant_writing_are_consistent(tmp_path):
    path = tmp_path / "h.duckdb"
    with writing(path) as writer:
        writer.stdout.readline()
        sizes = []
        for i in range(4):
            copy = History(take_snapshot(path, tmp_path / f"{i}.duckdb"), read_only=True)
            found = counts(copy)
            assert (
                found["rollouts"]
                == found["tokens"]
                == found["verdicts"]
                == found["teacher_tokens"]
            )
            assert found["verdict_stages"] == 4 * found["rollouts"]
            sizes.append(found["rollouts"])
        assert sizes == sorted(sizes)
        assert sizes[-1] > sizes[0]
        assert writer.poll() is None


def test_parquet_files_contain_only_the_run(tmp_path):
    history = synthetic.write_run(
        tmp_path / "h.duckdb", "a", synthetic.Shape(steps=1, train=6, heldout=3)
    )
    synthetic.write_run(
        tmp_path / "h.duckdb", "b'; --", synthetic.Shape(steps=2, train=6, heldout=3), seed=2
    )
    written = {
        p.stem: pq.read_table(p).num_rows
        for p in export_parquet(history, "b'; --", tmp_path / "b")
    }
    everything = {
        p.stem: pq.read_table(p).num_rows
        for p in export_parquet(history, None, tmp_path / "all")
    }
    assert everything == counts(history)
    assert (
        written["rollouts"]
        == written["tokens"]
        == written["teacher_tokens"] + 36
        == 2 * 24 + 36
    )
    assert written["runs"] == 1
    assert written["problems"] == 9
    assert all(everything[t] > 0 for t in ("tokens", "prompts", "reward_terms"))


def exported(history: History, path: Path, **options: bool) -> list[dict]:
    count = write_lines(path, rollout_lines(history, "demo", **options))
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len({line["rollout"] for line in lines}) == len(lines) == count
    return lines


def test_rollouts_are_exported_as_json_lines(demo, tmp_path):
    lines = exported(demo, tmp_path / "r.jsonl", tokens=True)
    assert len(lines) == 480
    for line in lines[::60]:
        stored = demo.rollout(line["rollout"])
        assert line["text"] == stored.rollout.text
        assert line["tokens"] == list(stored.rollout.tokens_T)
        assert line["logprobs"] == list(stored.rollout.logprobs_T)
        assert line["verdict"]["outcome"] == stored.verdict.outcome
        assert line["reward"] == stored.reward.total
        trained = line["trained_reward"], line["advantage"]
        assert trained == (
            (stored.credit.reward, stored.credit.advantage) if stored.credit else (None, None)
        )
        assert line["prompt"].startswith("Write module")
    assert "tokens" not in exported(demo, tmp_path / "plain.jsonl")[0]


def test_episodes_are_exported_with_all_turns(demo, tmp_path):
    (key, *_) = (
        demo.query("SELECT rollout FROM episodes WHERE run = 'demo'").column(0).to_pylist()
    )
    lines = exported(demo, tmp_path / "r.jsonl")
    (line,) = (line for line in lines if line["rollout"] == key)
    first, second, told, third, last = line["messages"]
    assert first == {"role": "user", "content": line["prompt"]}
    hostile = synthetic.HOSTILE
    assert (second["role"], second["content"], second["reasoning_content"]) == (
        "assistant",
        hostile,
        hostile,
    )
    (call,) = second["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"top": hostile}
    assert (told["role"], told["tool_call_id"], told["name"], told["ok"]) == (
        "tool",
        call["id"],
        "compile",
        False,
    )
    submit = {**call, "id": "submit", "function": {**call["function"], "name": "submit"}}
    assert third == {"role": "assistant", "content": "", "tool_calls": [submit]}
    assert last["content"] == "submitted"
    assert line["n_tokens"] == 17
    assert sum("messages" in line for line in lines) == len(demo.query("FROM episodes"))


def test_metrics_have_the_names_of_the_cookbook(demo):
    lines = list(metrics(demo, "demo"))
    names = {
        "env/all/reward/total", "env/all/format_valid", "env/all/syntax_valid", "env/all/tests_passed", "teacher_kl", "optim/entropy",
        "optim/kl_sample_train_v1", "env/all/ac_tokens_per_turn", "time/sample", "time/train", "time/total",
    }  # fmt: skip
    assert [line["step"] for line in lines] == list(range(13))
    assert all(names <= set(line) for line in lines[:12])
    mine = demo.rollouts_of("demo", 5)
    assert lines[5]["env/all/reward/total"] == pytest.approx(
        sum(s.reward.total for s in mine) / len(mine)
    )
    assert lines[5]["env/all/tests_passed"] == pytest.approx(
        sum(s.verdict.passed for s in mine) / len(mine)
    )
    assert lines[0]["test/env/all/pass@1"] == demo.evaluation("demo-student-0").pass_at_1
    assert lines[12]["test/env/all/pass@4"] == demo.evaluation("demo-student-12").pass_at_k[4]


def test_metrics_of_a_step_are_of_one_evaluation(tmp_path):
    history = History(tmp_path / "h.duckdb")
    for key, ks, other in (("own", (1, 4), None), ("other", (1, 8), 0.8)):
        place = {"key": key, "run": "r", "policy": "student", "step": 0, "split": "heldout"}
        rates = {"pass_at_1": 0.5, "pass_at_k": dict.fromkeys(ks, 0.5), "temperature": other}
        history.record_evaluation(
            EvaluationRecord(**place, **rates, samples=max(ks), status="done")
        )
    (line,) = metrics(history, "r")
    assert {name for name in line if "pass@" in name} == {
        "test/env/all/pass@1",
        "test/env/all/pass@4",
    }


def test_an_export_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(ZeroDivisionError):
        write_lines(tmp_path / "x.jsonl", ({"x": 1 / n} for n in (1, 0)))
    assert list(tmp_path.iterdir()) == []
