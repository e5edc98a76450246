"""The tables as Arrow sees them: the columns of each in the order of its rows, and how rows are appended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

_TEXT, _INT, _LONG, _REAL, _TIME = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.timestamp("us")
_PLACE = [
    ("rollout", _TEXT),
    ("run", _TEXT),
    ("purpose", _TEXT),
    ("evaluation", _TEXT),
    ("epoch", _INT),
    ("step", _INT),
    ("problem_id", _TEXT),
]
PLACE_COLUMNS = tuple(name for name, _ in _PLACE[1:])
ROLLOUT_COLUMNS = (*PLACE_COLUMNS, "sample", "policy_step", "stop_reason", "text")
"""Those of `rollouts` that are fields of the noun, too."""

SCHEMAS: dict[str, pa.Schema] = {
    "problems": pa.schema(
        [
            ("fingerprint", _TEXT),
            ("problem_id", _TEXT),
            ("prompt", _TEXT),
            ("interface", _TEXT),
            ("record", _TEXT),
            ("first_seen", _TIME),
        ]
    ),
    "run_problems": pa.schema(
        [
            ("run", _TEXT),
            ("problem_id", _TEXT),
            ("fingerprint", _TEXT),
            ("split", _TEXT),
            ("position", _INT),
            ("source", _TEXT),
            ("category", _TEXT),
            ("difficulty", _TEXT),
            ("family", _TEXT),
        ]
    ),
    "validations": pa.schema(
        [
            ("fingerprint", _TEXT),
            ("tools_key", _TEXT),
            ("run", _TEXT),
            ("problem_id", _TEXT),
            ("status", _TEXT),
            ("evidence", _TEXT),
            ("tools", _TEXT),
            ("wall_s", _REAL),
            ("checked_at", _TIME),
        ]
    ),
    "steps": pa.schema([("run", _TEXT), ("step", _INT), ("epoch", _INT), ("status", _TEXT), ("planned_at", _TIME)]),
    "step_problems": pa.schema([("run", _TEXT), ("step", _INT), ("position", _INT), ("problem_id", _TEXT)]),
    "step_times": pa.schema([("run", _TEXT), ("step", _INT), ("stage", _TEXT), ("seconds", _REAL)]),
    "step_metrics": pa.schema([("run", _TEXT), ("step", _INT), ("name", _TEXT), ("value", _REAL)]),
    "rollouts": pa.schema(
        [
            *_PLACE,
            ("sample", _INT),
            ("policy_step", _INT),
            ("stop_reason", _TEXT),
            ("prompt", _TEXT),
            ("n_prompt", _INT),
            ("n_tokens", _INT),
            ("text", _TEXT),
            ("recorded_at", _TIME),
        ]
    ),
    "prompts": pa.schema([("prompt", _TEXT), ("tokens_P", pa.list_(_INT))]),
    "tokens": pa.schema([("rollout", _TEXT), ("tokens_T", pa.list_(_INT)), ("logprobs_T", pa.list_(pa.float32()))]),
    "teacher_tokens": pa.schema([("rollout", _TEXT), ("logprobs_T", pa.list_(pa.float32()))]),
    "teacher_scores": pa.schema(
        [*_PLACE, ("k1_mean", _REAL), ("k2_mean", _REAL), ("k3_mean", _REAL), ("n_tokens", _INT)]
    ),
    "verdicts": pa.schema(
        [
            *_PLACE,
            ("outcome", _TEXT),
            ("format_ok", pa.bool_()),
            ("interface_ok", pa.bool_()),
            ("syntax_ok", pa.bool_()),
            ("tests_passed", _INT),
            ("tests_total", _INT),
            ("reasons", pa.list_(_TEXT)),
            ("executor", _TEXT),
            ("tools", _TEXT),
            ("seed", _LONG),
            ("wall_s", _REAL),
            ("cached", pa.bool_()),
            ("graded_at", _TIME),
        ]
    ),
    "verdict_stages": pa.schema(
        [
            *_PLACE,
            ("position", _INT),
            ("stage", _TEXT),
            ("status", _TEXT),
            ("reasons", pa.list_(_TEXT)),
            ("wall_s", _REAL),
        ]
    ),
    "interface_mismatches": pa.schema(
        [*_PLACE, ("position", _INT), ("kind", _TEXT), ("name", _TEXT), ("expected", _TEXT), ("got", _TEXT)]
    ),
    "rewards": pa.schema([*_PLACE, ("total", _REAL)]),
    "reward_terms": pa.schema([*_PLACE, ("term", _TEXT), ("weight", _REAL), ("value", _REAL)]),
    "advantages": pa.schema([*_PLACE, ("advantage", _REAL), ("reward", _REAL), ("counts", pa.bool_())]),
    "regrades": pa.schema(
        [
            ("label", _TEXT),
            ("rollout", _TEXT),
            ("run", _TEXT),
            ("problem_id", _TEXT),
            ("outcome", _TEXT),
            ("tests_passed", _INT),
            ("tests_total", _INT),
            ("executor", _TEXT),
            ("tools", _TEXT),
            ("seed", _LONG),
            ("verdict", _TEXT),
            ("graded_at", _TIME),
        ]
    ),
    "audits": pa.schema(
        [
            ("rollout", _TEXT),
            ("run", _TEXT),
            ("problem_id", _TEXT),
            ("result", _TEXT),
            ("detail", _TEXT),
            ("key", _TEXT),
            ("executor", _TEXT),
            ("tools", _TEXT),
            ("audited_at", _TIME),
        ]
    ),
    "verdict_cache": pa.schema([("key", _TEXT), ("verdict", _TEXT), ("stored_at", _TIME)]),
}

Place = tuple[Any, ...]
"""(run, purpose, evaluation, epoch, step, problem_id) of a rollout, as `PLACE_COLUMNS`."""


def table(name: str, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Rows, in the order of the columns of `SCHEMAS[name]`, as an Arrow table."""
    schema = SCHEMAS[name]
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(
        [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def insert(con: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table], conflict: str = "") -> None:
    """Append Arrow tables. `conflict`, as `OR REPLACE`, doubles the price of a row: who can, asks for known keys first."""
    for name, incoming in tables.items():
        # DuckDB finds the table by the name of this variable, for half the price of registering it.
        if incoming.num_rows:
            columns = ", ".join(incoming.column_names)
            con.execute(f"INSERT {conflict} INTO {name} ({columns}) SELECT * FROM incoming")
