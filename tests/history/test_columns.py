"""A column is declared once: a line of the schema and a field of the record suffice to store and read it."""

from datetime import UTC, datetime

import duckdb
import pytest
from pydantic import BaseModel

from rtl_core.history import schema
from rtl_core.history.columns import columns_of, from_row, insert, read, table, table_names
from rtl_core.history.records import AuditRecord, EvaluationRecord, RunRecord
from rtl_core.history.store import History
from rtl_grader.validation.record import ValidationRecord


class Lap(BaseModel):
    """New fields of a record, one for each kind of column."""

    laps: dict[str, int] = {}
    lap_names: tuple[str, ...] = ()
    lap_at: datetime | None = None
    lap_s: float | None = None


class LappedRun(RunRecord, Lap):
    """The current run record with the new fields."""


NEW = "laps JSON, lap_names VARCHAR[], lap_at TIMESTAMP, lap_s DOUBLE"


@pytest.fixture
def later(monkeypatch):
    """A later release whose runs have the new columns."""
    tables, views = schema.schema_sql()
    first = "    run           VARCHAR PRIMARY KEY,      -- the name"
    assert first in tables
    changed = tables.replace(first, f"    {NEW},\n{first}")
    monkeypatch.setattr(schema, "schema_sql", lambda: (changed, views))


@pytest.mark.usefixtures("later")
def test_a_new_column_needs_only_the_schema_and_a_field(tmp_path):
    laps = {"laps": {"first": 3}, "lap_names": ("first", "zweite Ründe"), "lap_s": 1.5}
    run = LappedRun(name="r", **laps, lap_at=datetime(2026, 1, 2, tzinfo=UTC))
    history = History(tmp_path / "h.duckdb")
    history.start_run(run)
    history.start_run(RunRecord(name="without"))
    with duckdb.connect(str(history.path)) as con:
        by_name = {
            row["run"]: from_row(LappedRun, row, name=row["run"]) for row in read(con, "runs")
        }
    assert by_name["r"].model_copy(update={"heartbeat_at": None}) == run
    assert (by_name["without"].laps, by_name["without"].lap_s) == ({}, None)
    assert history.run("r") is not None


@pytest.mark.parametrize(
    ("name", "kind", "renamed"),
    [
        ("runs", RunRecord, {"name": "run"}),
        ("evaluations", EvaluationRecord, {"key": "evaluation"}),
        ("validations", ValidationRecord, {}),
        ("audits", AuditRecord, {}),
    ],
)
def test_every_field_of_a_record_has_a_column(name, kind, renamed):
    assert {renamed.get(field, field) for field in kind.model_fields} <= columns_of(name).keys()


def test_every_table_of_the_schema_can_be_written_and_read(tmp_path):
    """Fails for a type of column without conversion."""
    arrays = {
        "VARCHAR[]": ["x"],
        "INTEGER[]": [1, 2],
        "FLOAT[]": [0.5],
        "BOOLEAN[]": [True, False],
    }
    numbers = {"BOOLEAN": True, "INTEGER": 3, "BIGINT": 2**40, "DOUBLE": 0.25}
    expected = {**arrays, **numbers, "VARCHAR": "a?b", "JSON": {"b": [1, None]}, "TIMESTAMP": datetime(2026, 1, 1, tzinfo=UTC)}  # fmt: skip
    values = {
        **expected,
        "VARCHAR": "a\ud800b",
        "INTEGER[]": (1, 2),
        "FLOAT[]": (0.5,),
        "BOOLEAN[]": (True, False),
    }
    History(tmp_path / "h.duckdb").heartbeat("r")
    names = [name for name in table_names() if name != "schema_version"]
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        for name in names:
            kinds = columns_of(name)
            insert(
                con,
                {
                    name: table(
                        name, [], **{column: [values[kind]] for column, kind in kinds.items()}
                    )
                },
            )
            assert read(con, name) == [
                {column: expected[kind] for column, kind in kinds.items()}
            ]
    assert len(names) > 15


def test_an_unknown_column_is_refused():
    with pytest.raises(KeyError, match="runs has no column colour"):
        table("runs", [RunRecord(name="r")], run="r", colour="red")
