"""A history of another version is refused and left unchanged; views of another release are replaced."""

import duckdb
import pytest

from rtl_core.errors import HistoryError
from rtl_core.history import connection, schema
from rtl_core.history.export import take_snapshot
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from tests.command import invoke

OLDER = schema.VERSION - 1
USES = {
    "write": lambda path: History(path).heartbeat("r"),
    "read": lambda path: History(path, read_only=True).runs(),
    "snapshot": lambda path: take_snapshot(path, path.with_name("copy")),
}


def written_by(path, version):
    """Write a history with the run `r`, marked as one of another version; returns its bytes."""
    History(path).start_run(RunRecord(name="r"))
    with duckdb.connect(str(path)) as con:
        con.execute("UPDATE schema_version SET version = ?", [version])
    connection.forget_checks()
    return path.read_bytes()


@pytest.mark.parametrize("use", USES)
def test_a_history_of_an_older_version_is_refused_and_left_unchanged(tmp_path, use):
    path = tmp_path / "h.duckdb"
    before = written_by(path, OLDER)
    words = (
        rf"written by an older rtl-distill \(schema {OLDER}; this one reads {schema.VERSION}\)"
    )
    with pytest.raises(HistoryError, match=words) as refusal:
        USES[use](path)
    assert "the version that wrote it" in refusal.value.hint
    assert "another file" in refusal.value.hint
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_resume_says_why_a_run_of_an_older_version_cannot_continue(tmp_path):
    path = tmp_path / "h.duckdb"
    before = written_by(path, OLDER)
    done = invoke("resume", "r", "--db", path)
    assert isinstance(done.exception, HistoryError)
    assert "the version that wrote it" in done.exception.hint
    assert path.read_bytes() == before


def test_views_of_another_release_are_replaced(tmp_path):
    history = History(tmp_path / "h.duckdb")
    history.heartbeat("r")
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        con.execute(
            "CREATE OR REPLACE VIEW pass_by_step AS SELECT 1 AS old; CREATE VIEW gone AS SELECT 2 AS old"
        )
        con.execute("UPDATE schema_version SET views = 'other'")
    connection.forget_checks()
    History(tmp_path / "h.duckdb").heartbeat("r")
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        assert "pass_rate" in [c[0] for c in con.execute("DESCRIBE pass_by_step").fetchall()]
        assert con.execute(
            "SELECT count(*) FROM duckdb_views() WHERE view_name = 'gone'"
        ).fetchall() == [(0,)]


def test_views_that_cannot_be_created_change_nothing(tmp_path, monkeypatch):
    path = tmp_path / "h.duckdb"
    History(path).start_run(RunRecord(name="r"))
    tables, views = schema.schema_sql()
    broken = f"{views}; CREATE VIEW broken AS SELECT * FROM nowhere"
    connection.forget_checks()
    monkeypatch.setattr(schema, "schema_sql", lambda: (tables, broken))
    monkeypatch.setattr(schema, "views_hash", lambda: "other")
    with pytest.raises(duckdb.Error, match="nowhere"):
        History(path).heartbeat("r")
    monkeypatch.undo()
    connection.forget_checks()
    history = History(path)
    assert [run.name for run in history.runs()] == ["r"]
    assert history.query("SELECT count(*) AS n FROM pass_by_step").to_pylist() == [{"n": 0}]
