"""An older history is migrated without loss, or left unchanged."""

from pathlib import Path

import duckdb
import pytest

from rtl_core.config import load_config
from rtl_core.errors import HistoryError
from rtl_core.history import connection, schema
from rtl_core.history.export import take_snapshot
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from tests import synthetic
from tests.command import invoke

OLDEST = (Path(__file__).parent / "schema_v9.sql").read_text(encoding="utf-8")
COLUMNS = (
    "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() WHERE NOT internal AND table_name IN"
    " (SELECT table_name FROM duckdb_tables()) ORDER BY ALL"
)
KEYS = "SELECT table_name, constraint_type, constraint_column_names FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY' ORDER BY ALL"
VALUES = {
    "VARCHAR": "'v{i}'", "INTEGER": "{i}", "BIGINT": "{i}", "DOUBLE": "{i}.5", "BOOLEAN": "{i} = 1", "JSON": "'{{\"v\": {i}}}'",
    "TIMESTAMP": "TIMESTAMP '2026-01-0{i} 00:00:00'", "INTEGER[]": "[{i}, 2]", "FLOAT[]": "[{i}.5, NULL]", "VARCHAR[]": "['v{i}']",
}  # fmt: skip


def write_oldest(path: Path, version: int = schema.OLDEST) -> dict[str, list[tuple]]:
    """Write a file of the oldest supported version, with two rows in every table; returns the rows."""
    with duckdb.connect(str(path)) as con:
        con.execute(OLDEST)
        con.execute("INSERT INTO schema_version VALUES (?, '2026-01-01', '0.2.0', '')", [version])
        tables = [
            t
            for (t,) in con.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        ]
        for table in tables:
            if table != "schema_version":
                sql = f"SELECT data_type FROM duckdb_columns() WHERE table_name = '{table}' ORDER BY column_index"
                kinds = [kind for (kind,) in con.execute(sql).fetchall()]
                for i in (1, 2):
                    con.execute(
                        f"INSERT INTO {table} VALUES ({', '.join(VALUES[kind].format(i=i) for kind in kinds)})"
                    )
        return {table: rows_of(con, table) for table in tables}


def rows_of(con: duckdb.DuckDBPyConnection, table: str, columns: str = "*") -> list[tuple]:
    return con.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()


def test_the_shipped_migrations_turn_the_oldest_version_into_the_current_schema(tmp_path):
    """Fails when schema.sql was edited without a migration."""
    write_oldest(tmp_path / "old.duckdb")
    History(tmp_path / "old.duckdb").heartbeat("r")
    History(tmp_path / "new.duckdb").heartbeat("r")
    with (
        duckdb.connect(str(tmp_path / "old.duckdb")) as old,
        duckdb.connect(str(tmp_path / "new.duckdb")) as new,
    ):
        assert old.execute(COLUMNS).fetchall() == new.execute(COLUMNS).fetchall()
        assert old.execute(KEYS).fetchall() == new.execute(KEYS).fetchall()
        views = "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal ORDER BY 1"
        assert old.execute(views).fetchall() == new.execute(views).fetchall()
        state = schema.current_version(), schema.views_hash()
        assert schema.state_of(old, "old") == schema.state_of(new, "new") == state


def test_no_row_of_the_oldest_version_is_lost(tmp_path):
    before = write_oldest(tmp_path / "h.duckdb")
    History(tmp_path / "h.duckdb").start_run(RunRecord(name="after"))
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        for table, rows in before.items():
            now = rows_of(
                con, table, "version, applied_at, written_by" if table == "schema_version" else "*"
            )
            rows = [row[:3] for row in rows] if table == "schema_version" else rows
            assert all(any(row == found[: len(row)] for found in now) for row in rows), table


SHIPPED = dict(schema.migrations())
NOW = schema.current_version()
STEPS = {
    **SHIPPED,
    NOW
    + 1: "ALTER TABLE runs ADD COLUMN note VARCHAR DEFAULT 'none'; CREATE TABLE extra (x INTEGER PRIMARY KEY);",
    NOW + 2: "UPDATE runs SET note = upper(run); INSERT INTO extra VALUES (7);",
}


@pytest.fixture
def newer(monkeypatch):
    """A later release with two more migrations."""
    monkeypatch.setattr(schema, "migrations", lambda: STEPS)


def test_a_writer_migrates_an_old_file_step_by_step(tmp_path, monkeypatch):
    history = synthetic.write_run(
        tmp_path / "h.duckdb", shape=synthetic.Shape(steps=2, train=6, heldout=3)
    )
    stored = history.rollouts_of("demo", 1)
    monkeypatch.setattr(schema, "migrations", lambda: STEPS)
    connection.forget_checks()
    later = History(tmp_path / "h.duckdb")
    assert later.query("SELECT note, x FROM runs, extra").to_pylist() == [{"note": "DEMO", "x": 7}]
    assert later.query("SELECT version FROM schema_version ORDER BY 1").column(0).to_pylist() == [
        NOW,
        NOW + 1,
        NOW + 2,
    ]
    assert later.rollouts_of("demo", 1) == stored
    assert later.query("SELECT count(*) AS n FROM pass_by_step").to_pylist() == [{"n": 2}]
    later.heartbeat("demo")


@pytest.mark.usefixtures("newer")
def test_a_reader_refuses_an_old_file_and_leaves_it_unchanged(tmp_path):
    path = tmp_path / "h.duckdb"
    write_oldest(path)
    before = path.read_bytes()
    with pytest.raises(
        HistoryError, match=f"has schema {schema.OLDEST}; this rtl-distill reads {NOW + 2}"
    ):
        History(path, read_only=True).runs()
    copy = take_snapshot(path, tmp_path / "copy.duckdb")
    assert path.read_bytes() == before
    assert len(History(copy, read_only=True).query("SELECT note FROM runs")) == 2


def test_resume_migrates_an_older_history_and_accepts_changes(tmp_path, monkeypatch):
    path, called = tmp_path / "h.duckdb", []
    write_oldest(path)
    stored = load_config("demo", ["run.name=v1", f"run.directory={tmp_path}"]).model_dump_json()
    with duckdb.connect(str(path)) as con:
        con.execute(
            "UPDATE runs SET config = ?, versions = '{}', status = 'running', ended_by = NULL",
            [stored],
        )
    monkeypatch.setattr(
        "rtl_distill.cli.flow.run_flow", lambda *arguments, **options: called.append(arguments[1:])
    )
    done = invoke("resume", "v1", "--accept-changes", "--db", path)
    assert done.exit_code == 0, done.exception or done.output
    assert called == [(str(tmp_path / "v1" / "config.toml"), [], True)]
    assert load_config(called[0][0], []).run.history == path
    assert len(History(path, read_only=True).runs()) == 2


@pytest.mark.parametrize(
    "use",
    [
        lambda path: History(path).heartbeat("r"),
        lambda path: take_snapshot(path, path.with_name("copy")),
    ],
)
def test_a_file_that_is_too_old_is_refused_and_left_unchanged(tmp_path, use):
    path = tmp_path / "h.duckdb"
    write_oldest(path, version=1)
    before = path.read_bytes()
    with pytest.raises(
        HistoryError, match=r"written by an older rtl-distill \(schema 1; this one reads 9"
    ) as told:
        use(path)
    assert "the version that wrote it" in told.value.hint
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_views_of_an_older_release_are_replaced(tmp_path):
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


def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "h.duckdb"
    before = write_oldest(path)
    monkeypatch.setattr(schema, "migrations", lambda: {**STEPS, NOW + 3: "SELECT * FROM nowhere"})
    with pytest.raises(duckdb.Error, match="nowhere"):
        History(path).runs()
    with duckdb.connect(str(path)) as con:
        assert {t: rows_of(con, t) for t in before} == before
        assert con.execute(
            "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'extra'"
        ).fetchall() == [(0,)]


def test_migration_files_are_numbered_without_gaps():
    numbers = [
        int(file.name[:3]) for file in sorted(Path(schema.__file__).parent.glob("migrations/*.sql"))
    ]
    assert (
        numbers
        == sorted(schema.migrations())
        == list(range(schema.OLDEST + 1, schema.current_version() + 1))
    )
