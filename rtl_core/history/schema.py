"""Creates and migrates the schema: `schema.sql` is the current version, `migrations/` contains the steps to it.

A migration is a file `NNN_what.sql` that turns version NNN-1 into NNN; the first one starts from `OLDEST`.
All migrations run in one transaction, which then recreates all views and macros from `schema.sql`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

import duckdb

from rtl_core import __version__
from rtl_core.errors import HistoryError

_ROOM = files("rtl_core.history")
_VIEWS_MARK = "\n-- Views\n"
OLDEST = 9
"""The schema of version 0.2.0, the oldest that can be read and migrated."""


@cache
def migrations() -> Mapping[int, str]:
    """Mapping of version to the SQL that migrates the previous version to it."""
    steps = (entry for entry in (_ROOM / "migrations").iterdir() if entry.name.endswith(".sql"))
    return {int(step.name.partition("_")[0]): step.read_text(encoding="utf-8") for step in steps}


@cache
def schema_sql() -> tuple[str, str]:
    """The current schema: (tables, views)."""
    text = (_ROOM / "schema.sql").read_text(encoding="utf-8")
    tables, mark, views = text.partition(_VIEWS_MARK)
    if not mark:
        raise AssertionError("schema.sql has no line `-- Views`")
    return tables, views


def current_version() -> int:
    """The version that this code writes."""
    return max(migrations())


def create(con: duckdb.DuckDBPyConnection) -> None:
    """Write the current schema into an empty database, in one transaction."""
    tables, views = schema_sql()
    con.execute("BEGIN")
    con.execute(tables)
    con.execute(views)
    _stamp(con, current_version())
    con.execute("COMMIT")


@cache
def views_hash() -> str:
    """Hash of the SQL of the views."""
    return hashlib.sha256(schema_sql()[1].encode()).hexdigest()[:16]


def state_of(con: duckdb.DuckDBPyConnection, path: object) -> tuple[int, str]:
    """Schema version and hash of the views of an open database. Raises HistoryError when it is not a
    history, or when this code can neither read nor migrate its version."""
    try:
        ((version, views),) = con.execute(
            "SELECT max(version), arg_max(views, version) FROM schema_version"
        ).fetchall()
    except (duckdb.CatalogException, duckdb.BinderException) as error:
        raise HistoryError(
            f"{path} is a DuckDB file, but not a history of rtl-distill (it has no table schema_version)",
            "name another file (--db, or run.history for a run); this one was left untouched",
        ) from error
    if version is None:
        raise HistoryError(
            f"{path} has an empty schema_version table",
            "restore it from a snapshot; it was left untouched",
        )
    if version < OLDEST:
        raise HistoryError(
            f"{path} was written by an older rtl-distill (schema {version}; this one reads {OLDEST} and later)",
            "read it with the version that wrote it, and name another file for new runs; the file was left untouched",
        )
    if version > current_version():
        raise HistoryError(
            f"{path} was written by a newer rtl-distill (schema {version}; this one knows {current_version()})",
            "install that version or a newer one, or name another file (--db, or run.history for "
            "a run); the file was left untouched",
        )
    return int(version), str(views)


def migrate(con: duckdb.DuckDBPyConnection, version: int) -> None:
    """Migrate an open, writable database from `version` to the current one, and recreate the views, in one
    transaction. After an error the caller closes the database, which rolls back."""
    con.execute("BEGIN")
    for (name,) in con.execute(
        "SELECT view_name FROM duckdb_views() WHERE NOT internal"
    ).fetchall():
        con.execute(f'DROP VIEW "{name}"')
    for number in range(version + 1, current_version() + 1):
        con.execute(migrations()[number])
        _stamp(con, number)
    con.execute(schema_sql()[1])
    con.execute("UPDATE schema_version SET views = ?", [views_hash()])
    con.execute("COMMIT")


def _stamp(con: duckdb.DuckDBPyConnection, version: int) -> None:
    con.execute(
        "INSERT INTO schema_version VALUES (?, ?, ?, ?)",
        [version, datetime.now(UTC).replace(tzinfo=None), __version__, views_hash()],
    )
