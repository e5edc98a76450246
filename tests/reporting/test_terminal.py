"""The commands show, compare, watch, report, snapshot and export."""

import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from rtl_core.errors import ConfigError, HistoryError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.reporting.png import write_pngs
from rtl_core.tinymodels import model_path
from rtl_distill import cli
from tests.command import command, invoke


def run(history: History, *arguments: str) -> str:
    """The output of a command; user errors are raised."""
    done = invoke(*arguments, COLUMNS="140", RTL_DISTILL_DB=str(history.path))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def key_of(history: History, condition: str) -> str:
    sql = f"SELECT rollout FROM verdicts JOIN rollouts USING (rollout) WHERE verdicts.run = 'demo' AND {condition} ORDER BY rollout LIMIT 1"
    return history.query(sql).column(0).to_pylist()[0]


def test_show_prints_everything_about_a_rollout(demo):
    key = key_of(demo, "outcome = 'interface_mismatch' AND verdicts.purpose = 'train'")
    stored, out = demo.rollout(key), run(demo, "show", key)
    assert "Write module" in out
    assert "assign result" in out
    assert "interface mismatch" in out
    assert stored.verdict.mismatches[0].name in out
    assert f"{stored.reward.total:.3f}" in out
    assert f"{stored.credit.advantage:+.3f}" in out
    assert f"mean k1 {stored.teacher.k1_mean:.4f}" in out
    worst = max(
        zip(stored.rollout.logprobs_T, stored.teacher.logprobs_T, strict=True),
        key=lambda p: abs(p[0] - p[1]),
    )
    assert f"{worst[0] - worst[1]:+.3f}" in out
    assert "tokens are shown by number" in out


def test_show_prints_token_texts_with_a_tokenizer(demo):
    key = key_of(demo, "verdicts.purpose = 'train'")
    out = run(demo, "show", key, "--tokenizer", str(model_path("student")))
    assert "shown by number" not in out
    assert "#" + str(demo.rollout(key).rollout.tokens_T[0]) not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["admin", "snapshot", "file/s.duckdb"], "file: File exists"),
        (["report", "demo", "-o", "folder"], "folder: Is a directory"),
        (
            ["admin", "export", "demo", "--to", "folder"],
            "folder/advantages.parquet could not be written",
        ),
        (["query", "SELECT 1", "--db", "folder"], "folder: Is a directory"),
    ],
)
def test_an_unusable_path_gives_a_readable_error(
    demo, tmp_path, monkeypatch, capsys, words, said
):
    (tmp_path / "folder" / f".advantages.parquet.{os.getpid()}.part").mkdir(parents=True)
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RTL_DISTILL_DB", str(demo.path.resolve()))
    monkeypatch.setattr(sys, "argv", ["rtl-distill", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_columns_of_one_name_keep_their_values_and_json_has_no_nan(demo):
    joined = "SELECT r.step, 2 AS step FROM rollouts r LIMIT 1"
    assert run(demo, "query", joined, "-o", "csv") == "step,step\n0,2\n"
    assert run(demo, "query", joined).split()[-2:] == ["0", "2"]
    sql = "SELECT 'nan'::DOUBLE AS x, ['inf'::FLOAT] AS y, TIMESTAMPTZ '2026-01-01 00:00:00+00' AS t"
    (row,) = json.loads(run(demo, "query", sql, "-o", "json"), parse_constant=pytest.fail)
    assert (row["x"], row["y"]) == (None, [None])
    assert datetime.fromisoformat(row["t"]).tzinfo is not None


def test_sql_that_ignores_the_named_run_is_refused(demo):
    with pytest.raises(HistoryError, match="does not use --run"):
        run(demo, "query", "SELECT count(*) FROM rollouts", "--run", "other")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_a_terminal_cannot_encode_are_escaped(demo, encoding):
    words = command("query", "SELECT 'λ → x' AS word", "--db", str(demo.path))
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert r"\u03bb \u2192 x" in done.stdout


def test_output_to_a_full_disk_gives_a_readable_error():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("check", "--show"), stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: the output: No space left on device\n  -> ")


def test_show_prints_no_escape_sequences(demo):
    out = run(demo, "show", key_of(demo, "contains(text, 'pwned')"))
    assert "pwned" in out
    assert "\x1b[31m" not in out


def test_show_finds_a_rollout_by_the_end_of_its_key_and_names_candidates(demo):
    only = key_of(demo, "verdicts.purpose = 'evaluation' AND verdicts.step = 12")
    assert only in run(demo, "show", only.removeprefix("demo/"))
    with pytest.raises(HistoryError, match=r"could be .*demo/step/00000/train_adder_000/0"):
        run(demo, "show", "train_adder_000/0")
    with pytest.raises(HistoryError, match="no rollout 'nothing'"):
        run(demo, "show", "nothing")


def test_compare_shows_the_differences_between_two_runs(demo):
    out = run(demo, "compare", "other", "demo")
    assert "Settings that differ" not in out  # the synthetic runs have the same configuration
    assert out.index("other") < out.index("demo")
    tables = (
        "Results in numbers",
        "Kinds of failure",
        "Held-out problems on which other and demo differ most",
    )
    for words in (*tables, "shared", "16", "teacher KL", "demo before"):
        assert words in out
    with pytest.raises(HistoryError, match="two runs"):
        run(demo, "compare", "demo")
    with pytest.raises(HistoryError, match="no run 'x'"):
        run(demo, "compare", "demo", "x")


def test_compare_shows_settings_that_differ(tmp_path):
    history = History(tmp_path / "h.duckdb")
    for name, rate in (("a", 0.001), ("b", 0.002)):
        history.start_run(
            RunRecord(name=name, config={"learning": {"learning_rate": rate, "loss": "ppo"}})
        )
    out = run(history, "compare", "a", "b")
    assert "learning.learning_rate" in out
    assert "0.002" in out
    assert "learning.loss" not in out


def test_watch_shows_the_progress_of_a_run(demo):
    out = run(demo, "watch", "demo", "--once")
    assert "12 of 12 steps" in out
    assert f"{100 * demo.evaluation('demo-student-12').pass_at_1:.1f} %" in out
    assert "step  12/12" in out
    fresh = run(demo, "watch", "fresh", "--once")
    assert "0 of 0 steps" in fresh
    assert "last heartbeat" in fresh


def test_watch_ends_with_the_run(demo, tmp_path):
    assert "finished" in run(demo, "watch", "demo")
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="r"))
    history.set_run_status("r", "failed", "the disk is full")
    done = invoke("watch", "r", "--db", history.path)
    assert done.exit_code == 1
    assert "the disk is full" in done.output


def test_report_snapshot_and_export_write_to_the_given_paths(demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy = History(Path(shutil.copy(demo.path, tmp_path.parent / f"{tmp_path.name}.duckdb")))
    section = {"directory": str(tmp_path.parent / "own")}
    copy.start_run(RunRecord(name="placed", config={"run": section}))
    beside = copy.path.with_name("report-placed.html")
    assert run(copy, "report", "placed").strip() == str(beside), (
        "its folder is on another machine"
    )
    own = tmp_path.parent / "own" / "placed" / "report.html"
    own.parent.mkdir(parents=True)
    assert run(copy, "report", "placed").strip() == str(own)
    beside = copy.path.with_name("report-demo-other.html")
    assert run(copy, "report", "demo", "other").strip() == str(beside)
    assert run(demo, "report", "demo", "other", "-o", "x/both.html").strip() == "x/both.html"
    assert (tmp_path / "x" / "both.html").stat().st_size > 4_000_000
    assert "metrics.jsonl: 13 lines" in run(
        demo, "admin", "export", "demo", "-f", "metrics", "--to", "out"
    )
    assert run(demo, "admin", "snapshot", "copy.duckdb").strip() == "copy.duckdb"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.duckdb", "out", "x"]


@pytest.mark.slow
def test_figures_are_written_as_png_files(demo, tmp_path):
    paths = write_pngs(demo, ["demo"], tmp_path)
    assert len(paths) == 25
    assert all(
        p.read_bytes().startswith(b"\x89PNG") and p.stat().st_size > 8_000 for p in paths
    )


def test_help_imports_no_heavy_packages():
    code = "import sys; import cli; cli.register(); print([m for m in ('torch', 'duckdb', 'plotly', 'transformers') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_report_adds_a_user_defined_section(demo, tmp_path):
    page = tmp_path / "own.html"
    run(demo, "report", "demo", "-o", str(page), "--section", "own_section:lengths")
    assert "How long are answers?" in page.read_text()
    assert 'id="own-lengths"' in page.read_text()
    titles = [
        "Training rollouts",
        "How long are answers?",
        "How close is the student to the teacher?",
    ]  # their places are 30, 35, 40
    assert sorted(titles, key=page.read_text().index) == titles
    run(demo, "report", "demo", "-o", str(page))
    assert "How long are answers?" not in page.read_text()
    for arguments, said in (
        (
            ("demo", "--section", "own_section:by_outcome"),
            "`by_outcome` in own_section is no section",
        ),
        (("demo", "--section", "lengths"), "no section 'lengths'"),
        (("demo", "other", "--section", "own_section:lengths"), "report of one run"),
    ):
        with pytest.raises(ConfigError, match=said):
            run(demo, "report", *arguments, "-o", str(tmp_path / "not.html"))
    assert not (tmp_path / "not.html").exists()
