"""The columns that `schema.sql` declares, and the conversion between records and rows.

A column and a record's field of the same name hold the same fact. So a new column needs a line of the
schema and a field of the record; only fields with another name, and computed ones, are listed
where they are written or read.
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
Row = dict[str, Any]
"""Column -> value."""
CHUNK = 500
"""Keys per condition."""


def storable(text: str) -> str:
    """Text that UTF-8 can encode: lone surrogates, which a decoder may leave, become `?`."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def naive(moment: datetime) -> datetime:
    """A UTC time without time zone, as the database stores it. A naive time counts as UTC."""
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def dumps(value: Any) -> str:
    """JSON text of a value. Raises ValueError for NaN and infinities, which JSON cannot represent."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return storable(json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False))


def _array(code: str, kind: Any) -> Callable[[Any], np.ndarray]:
    # `array` converts a tuple three times as fast as numpy.
    return lambda values: np.asarray(
        array(code, values) if isinstance(values, tuple) else values, dtype=kind
    )


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
"""DuckDB type -> Arrow type and conversion of a value (None: no conversion)."""
_READ: dict[str, Callable[[Any], Any]] = {
    "JSON": json.loads,
    "TIMESTAMP": lambda moment: moment.replace(tzinfo=UTC),
}


@cache
def _declared(sql: str) -> dict[str, dict[str, str]]:
    columns = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY column_index"
    tables: dict[str, dict[str, str]] = {}
    with duckdb.connect() as con:
        con.execute(sql)
        for table_name, column, kind in con.execute(columns).fetchall():
            tables.setdefault(table_name, {})[column] = kind
    return tables


def table_names() -> list[str]:
    """Names of all tables of the schema."""
    return list(_declared(schema.schema_sql()[0]))


def columns_of(name: str) -> Mapping[str, str]:
    """Mapping of a table's columns to their DuckDB types."""
    return _declared(schema.schema_sql()[0])[name]


def table(name: str, records: Sequence[Any], /, **explicit: Any) -> pa.Table:
    """Convert records to rows of a table, one each.

    A column takes its values from `explicit` (a list with a value per record, or one value for all), else
    from the records' field of the same name; other columns are left to the database. Raises KeyError for a
    `explicit` name that is not a column.
    """
    kinds = columns_of(name)
    if unknown := explicit.keys() - kinds.keys():
        raise KeyError(f"{name} has no column {', '.join(sorted(unknown))}")
    columns = {}
    for column in kinds:
        if column in explicit:
            value = explicit[column]
            values = value if isinstance(value, list) else [value] * len(records)
        elif records and hasattr(records[0], column):
            values = [getattr(record, column) for record in records]
        else:
            continue
        kind, convert = _KINDS[kinds[column]]
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        columns[column] = pa.array(values, type=kind)
    return pa.table(columns)


def insert(
    con: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table], conflict: str = ""
) -> None:
    """Append Arrow tables. `conflict`, such as `OR REPLACE`, doubles the cost of a row: query known keys
    first where possible."""
    for name, incoming in tables.items():
        # DuckDB finds the table by the name of this variable, at half the cost of registering it.
        if incoming.num_rows:
            columns = ", ".join(incoming.column_names)
            con.execute(f"INSERT {conflict} INTO {name} ({columns}) SELECT * FROM incoming")


def key_conditions(column: str, keys: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield conditions with their parameters that together select the rows of these keys. Short IN lists
    use the column's index; a join with the keys would read the column of all stored rollouts."""
    remaining = iter(keys)
    while chunk := list(islice(remaining, CHUNK)):
        yield f"{column} IN ({', '.join('?' * len(chunk))})", chunk


def read(
    con: duckdb.DuckDBPyConnection,
    name: str,
    condition: str = "true",
    params: Sequence[Any] = (),
) -> list[Row]:
    """Rows of a table that meet a condition (which may end with ORDER BY): JSON is parsed, times are aware UTC."""
    kinds = columns_of(name)
    result = con.sql(
        f"SELECT {', '.join(kinds)} FROM {name} WHERE {condition}", params=list(params)
    ).to_arrow_table()
    parsers = {column: _READ[kind] for column, kind in kinds.items() if kind in _READ}
    rows: list[Row] = result.to_pylist()
    for row in rows:
        for column, parse in parsers.items():
            if row[column] is not None:
                row[column] = parse(row[column])
    return rows


def from_row(kind: type[N], row: Mapping[str, Any], **explicit: Any) -> N:
    """A record whose fields are the row's columns of the same name. `explicit` overrides; NULL means the
    field's default."""
    values = {name: row[name] for name in _fields_of(kind) if row.get(name) is not None}
    return kind(**{**values, **explicit})


def _fields_of(kind: type[Any]) -> list[str]:
    """Names of the fields of a record."""
    if issubclass(kind, BaseModel):
        return list(kind.model_fields)
    return [field.name for field in fields(kind)]
