"""The columns that `schema.sql` declares, and by them records to rows and rows to records.

A column and a record's field of the same name hold the same fact. So a new column is a line of the schema, a migration, and a
field of the noun; only what has another name, or is computed, is named where it is written or read.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from rtl_core.history import schema

N = TypeVar("N")
CHUNK = 500
"""Keys of one list."""


def storable(text: str) -> str:
    """Text as UTF-8 can hold it: a lone surrogate, which a decoder may leave behind, becomes `?`."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def naive(moment: datetime) -> datetime:
    """For the database: UTC without saying so. A naive moment is taken as UTC already."""
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def dumps(value: Any) -> str:
    """JSON as DuckDB takes it. ValueError for NaN and infinities, which JSON cannot hold."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return storable(json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False))


def _array(code: str, kind: Any) -> Callable[[Any], np.ndarray]:
    # `array` takes a tuple three times as fast as numpy does.
    return lambda values: np.asarray(array(code, values) if isinstance(values, tuple) else values, dtype=kind)


_KINDS: dict[str, tuple[pa.DataType, Callable[[Any], Any] | None]] = {
    "VARCHAR": (pa.string(), storable),
    "JSON": (pa.string(), dumps),
    "TIMESTAMP": (pa.timestamp("us"), naive),
    "BOOLEAN": (pa.bool_(), None),
    "INTEGER": (pa.int32(), None),
    "BIGINT": (pa.int64(), None),
    "DOUBLE": (pa.float64(), float),
    "BOOLEAN[]": (pa.list_(pa.bool_()), None),
    "VARCHAR[]": (pa.list_(pa.string()), lambda texts: [storable(text) for text in texts]),
    "INTEGER[]": (pa.list_(pa.int32()), _array("i", np.int32)),
    "FLOAT[]": (pa.list_(pa.float32()), _array("f", np.float32)),
}
"""DuckDB's type -> Arrow's, and what makes a value of it; None where any value is one."""
_READ: dict[str, Callable[[Any], Any]] = {"JSON": json.loads, "TIMESTAMP": lambda moment: moment.replace(tzinfo=UTC)}


@cache
def _declared(sql: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    with duckdb.connect() as con:
        con.execute(sql)
        columns = (
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY column_index"
        )
        for table_name, column, kind in con.execute(columns).fetchall():
            found.setdefault(table_name, {})[column] = kind
    return found


def table_names() -> list[str]:
    """All tables of the schema."""
    return list(_declared(schema.schema_sql()[0]))


def columns_of(name: str) -> Mapping[str, str]:
    """Column -> DuckDB's type, of a table of the schema."""
    return _declared(schema.schema_sql()[0])[name]


def table(name: str, records: Sequence[Any], /, **given: Any) -> pa.Table:
    """Records as rows of a table, one each.

    A column is what is `given` for it (a list with a value for each record, or one value for all), else the records' field of its
    name; columns of neither kind are left to the database. KeyError for something given that is no column.
    """
    kinds = columns_of(name)
    if unknown := given.keys() - kinds.keys():
        raise KeyError(f"{name} has no column {', '.join(sorted(unknown))}")
    columns = {}
    for column in kinds:
        if column in given:
            values = given[column] if isinstance(given[column], list) else [given[column]] * len(records)
        elif records and hasattr(records[0], column):
            values = [getattr(record, column) for record in records]
        else:
            continue
        kind, made = _KINDS[kinds[column]]
        if made is not None:
            values = [None if value is None else made(value) for value in values]
        columns[column] = pa.array(values, type=kind)
    return pa.table(columns)


def insert(con: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table], conflict: str = "") -> None:
    """Append Arrow tables. `conflict`, as `OR REPLACE`, doubles the price of a row: who can, asks for known keys first."""
    for name, incoming in tables.items():
        # DuckDB finds the table by the name of this variable, for half the price of registering it.
        if incoming.num_rows:
            columns = ", ".join(incoming.column_names)
            con.execute(f"INSERT {conflict} INTO {name} ({columns}) SELECT * FROM incoming")


def among(column: str, keys: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Conditions, with their parameters, that together find the rows of these keys, in lists that the index of the column answers: a
    join with the keys reads the column of all rollouts that are stored."""
    left = iter(keys)
    while chunk := list(islice(left, CHUNK)):
        yield f"{column} IN ({', '.join('?' * len(chunk))})", chunk


def read(
    con: duckdb.DuckDBPyConnection,
    name: str,
    condition: str = "true",
    params: Sequence[Any] = (),
) -> list[dict[str, Any]]:
    """The rows of a table that meet a condition (which may go on with ORDER BY): JSON parsed, times aware of being UTC."""
    kinds = columns_of(name)
    found = con.sql(f"SELECT {', '.join(kinds)} FROM {name} WHERE {condition}", params=list(params)).to_arrow_table()
    columns = []
    for column, kind in kinds.items():
        values, parse = found.column(column).to_pylist(), _READ.get(kind)
        columns.append(values if parse is None else [None if value is None else parse(value) for value in values])
    return [dict(zip(kinds, row, strict=True)) for row in zip(*columns, strict=True)]


def noun(kind: type[N], row: Mapping[str, Any], **given: Any) -> N:
    """A row as the noun whose fields bear its columns' names. What is `given` wins; for NULL the field's own default counts."""
    names = kind.model_fields if issubclass(kind, BaseModel) else [f.name for f in fields(kind)]  # type: ignore[arg-type]
    return kind(**{**{name: row[name] for name in names if row.get(name) is not None}, **given})
