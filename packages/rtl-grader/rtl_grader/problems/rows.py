"""Rows of data files: JSON Lines, JSON arrays, CSV and Parquet.

A row that cannot be read becomes a text that says why, and the others go on. DuckDB reads CSV and Parquet and
evaluates `where`; it is imported only then, since this package installs without it.
"""

from __future__ import annotations

import glob
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rtl_grader.errors import ConfigError, ProblemError
from rtl_grader.problems.cvdp import check_text, text_lines
from rtl_grader.problems.fetch import RECORD

if TYPE_CHECKING:
    import duckdb

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
SUFFIXES = (*JSON_SUFFIXES, ".csv", ".parquet")
MAX_LINE_BYTES = 64 << 20
_CHUNK = 1000
_NUMBER = "rtl_row"
"""Column with the number of a row, beside those of the file."""
_READERS = {
    ".parquet": "read_parquet(?)",
    ".csv": f"read_csv(?, header=true, all_varchar=true, store_rejects=true, max_line_size={MAX_LINE_BYTES})",
}


class Row(NamedTuple):
    """A row of a file."""

    number: int
    """Counted from 1: the line of JSON Lines, the row of other files. Of a CSV row that cannot be read DuckDB's
    number, which counts the header."""
    value: Mapping[str, Any] | str
    """Its columns, or what is wrong with it."""


def files_at(path: Path) -> list[Path]:
    """The data files at a path: a file, those of a folder, or those that match a glob, by name.

    Raises ProblemError when there is none.
    """
    if path.is_dir():
        matches = [file for file in path.rglob("*") if file.suffix in SUFFIXES]
        matches = [file for file in matches if file.name != RECORD]
    elif path.is_file():
        matches = [path]
    else:
        matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
    files = sorted(file for file in matches if file.is_file())
    if not files:
        kinds = ", ".join(SUFFIXES)
        raise ProblemError(
            f"there is no data file at {path}", f"give a file, folder or glob of {kinds}"
        )
    return files


def read_rows(file: Path, where: str | None = None) -> Iterator[Row]:
    """Yield the rows of a file, those that match the SQL condition `where` if there is one.

    Raises ConfigError when DuckDB is needed and absent, or cannot evaluate the condition.
    """
    try:
        if file.suffix in _READERS:
            yield from _from_duckdb(file, where)
        elif file.suffix in JSON_SUFFIXES:
            rows = _from_json(file)
            yield from rows if where is None else _matching(file, list(rows), where)
        else:
            yield Row(1, f"is of no known kind ({', '.join(SUFFIXES)})")
    except OSError as error:
        yield Row(1, f"cannot be read: {error.strerror or error}")


def _from_json(file: Path) -> Iterator[Row]:
    with file.open("rb") as opened:
        begin = opened.read(1 << 16).lstrip()
        opened.seek(0)
        if not begin.startswith(b"["):
            for number, value in text_lines(opened, MAX_LINE_BYTES):
                yield Row(number, value)
            return
        try:
            entries = json.load(opened)
            check_text(entries)
        except (ValueError, RecursionError) as error:
            yield Row(1, f"is not a JSON array: {error}")
            return
    for number, value in enumerate(entries, 1):
        is_object = isinstance(value, dict)
        yield Row(
            number, value if is_object else f"is a JSON {type(value).__name__}, not an object"
        )


def _matching(file: Path, rows: list[Row], where: str) -> Iterator[Row]:
    """Yield the rows that match a condition, and those that cannot be read."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as copy:
        for row in rows:
            if not isinstance(row.value, str):
                copy.write(json.dumps({**row.value, _NUMBER: row.number}) + "\n")
        copy.flush()
        source = (
            "read_json(?, format='newline_delimited', sample_size=-1, "
            f"maximum_object_size={2 * MAX_LINE_BYTES})"
        )
        query = f"SELECT {_NUMBER} FROM {source} WHERE ({where})"
        is_empty = copy.tell() == 0
        numbers = [] if is_empty else _run(_connect(), query, copy.name, file).fetchall()
    selected = {number for (number,) in numbers}
    for row in rows:
        if isinstance(row.value, str) or row.number in selected:
            yield row


def _from_duckdb(file: Path, where: str | None) -> Iterator[Row]:
    connection = _connect()
    numbered = f"SELECT row_number() OVER () AS {_NUMBER}, * FROM {_READERS[file.suffix]}"
    query = f"SELECT * FROM ({numbered})" + (f" WHERE ({where})" if where else "")
    import duckdb

    try:
        result = _run(connection, query, str(file), file)
        names = [column[0] for column in result.description or ()]
        while chunk := result.fetchmany(_CHUNK):
            for values in chunk:
                columns = dict(zip(names, values, strict=True))
                yield Row(columns.pop(_NUMBER), columns)
        if file.suffix == ".csv":
            rejects = "SELECT line, first(error_message) FROM reject_errors GROUP BY line ORDER BY line"
            for line, message in connection.execute(rejects).fetchall():
                yield Row(line, f"is not a row of the CSV file: {message}")
    except (duckdb.InvalidInputException, duckdb.IOException) as error:
        yield Row(1, f"cannot be read: {_first_line(error)}")


def _run(
    connection: duckdb.DuckDBPyConnection, query: str, argument: str, file: Path
) -> duckdb.DuckDBPyConnection:
    """Run a query. Raises ConfigError when it cannot be planned: the condition is wrong."""
    import duckdb

    try:
        return connection.execute(query, [argument])
    except (duckdb.ProgrammingError, duckdb.ConversionException) as error:
        if isinstance(error, duckdb.InvalidInputException):
            raise
        raise ConfigError(
            f"`where` cannot select rows of {file}: {_first_line(error)}",
            "it is an SQL condition over the columns of the file",
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _connect() -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
    except ImportError as error:
        raise ConfigError(
            "CSV, Parquet and the key `where` need DuckDB",
            "install it with `pip install rtl-grader[duckdb]`, or give JSON Lines without `where`",
        ) from error
    return duckdb.connect()
