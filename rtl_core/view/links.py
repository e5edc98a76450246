"""Addresses of the pages: all that a page shows stands in its address."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode


def link(path: str, **values: Any) -> str:
    """The address of a page; values that are None or empty are left out."""
    given = [
        (name.rstrip("_"), v) for name, value in values.items() for v in (value if isinstance(value, list) else [value])
    ]
    text = urlencode([(name, value) for name, value in given if value not in (None, "")])
    return f"{path}?{text}" if text else path


def rollout_link(key: str, **values: Any) -> str:
    """One rollout."""
    return link("/rollout", key=key, **values)


def group_link(row: dict[str, Any]) -> str:
    """The group of a row that has a rollout's place."""
    return link("/group", run=row["run"], problem=row["problem_id"], **place(row))


def step_link(row: dict[str, Any]) -> str:
    """The step or evaluation of a row that has a rollout's place."""
    return link("/step", run=row["run"], **place(row))


def place(row: dict[str, Any]) -> dict[str, Any]:
    """Where a rollout stands: its evaluation, or its step with what it was sampled for."""
    if row["evaluation"] is not None:
        return {"evaluation": row["evaluation"]}
    kind = row.get("purpose")
    return {"step": row["step"], "purpose": kind if kind in ("warm_start", "measurement") else None}
