"""Creates the schema of a history, `schema.sql`, and refuses files that have another version of it.

A change of the tables is a new `VERSION`. Views and macros need none: a writer that finds others than its own
creates them again.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

import duckdb

from rtl_core import __version__
from rtl_core.errors import HistoryError

VERSION = 20
"""The version of the tables: the only one that this code reads and writes."""
_VIEWS_MARK = "\n-- Views\n"
_ANOTHER_FILE = (
    "or name another file (--db, or run.history for a run); the file was left untouched"
)


@cache
def schema_sql() -> tuple[str, str]:
    """The schema: (tables, views)."""
    text = (files("rtl_core.history") / "schema.sql").read_text(encoding="utf-8")
    tables, mark, views = text.partition(_VIEWS_MARK)
    if not mark:
        raise AssertionError("schema.sql has no line `-- Views`")
    return tables, views


@cache
def views_hash() -> str:
    """Hash of the SQL of the views."""
    return hashlib.sha256(schema_sql()[1].encode()).hexdigest()[:16]


def create(con: duckdb.DuckDBPyConnection) -> None:
    """Write the schema into an empty database, in one transaction."""
    tables, views = schema_sql()
    now = datetime.now(UTC).replace(tzinfo=None)
    con.execute("BEGIN")
    con.execute(tables)
    con.execute(views)
    con.execute(
        "INSERT INTO schema_version VALUES (?, ?, ?, ?)",
        [VERSION, now, __version__, views_hash()],
    )
    con.execute("COMMIT")


def views_of(con: duckdb.DuckDBPyConnection, path: object) -> str:
    """Hash of the views of an open database. Raises HistoryError when it is not a history, or has another
    version of the tables."""
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
    if version < VERSION:
        raise HistoryError(
            f"{path} was written by an older rtl-distill (schema {version}; this one reads {VERSION})",
            f"resume, read and export its runs with the version that wrote it, {_ANOTHER_FILE}",
        )
    if version > VERSION:
        raise HistoryError(
            f"{path} was written by a newer rtl-distill (schema {version}; this one reads {VERSION})",
            f"install that version or a newer one, {_ANOTHER_FILE}",
        )
    return str(views)


def renew_views(con: duckdb.DuckDBPyConnection) -> None:
    """Replace all views of an open, writable database by those of `schema.sql`, in one transaction. After an
    error the caller closes the database, which rolls back."""
    con.execute("BEGIN")
    names = con.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    for (name,) in names:
        con.execute(f'DROP VIEW "{name}"')
    con.execute(schema_sql()[1])
    con.execute("UPDATE schema_version SET views = ?", [views_hash()])
    con.execute("COMMIT")
